# SPDX-License-Identifier: Apache-2.0
"""Hides calls of the module's functions from TVM's passes that follow every call, which do not terminate on recursive
functions. Loops in Relax are recursive functions."""

from __future__ import annotations

import tvm
from tvm import ir, relax

from ..tvm_versions import Call, type_of
from .prepare import is_partitioned

#: The prefix of external functions that stand for functions of the module.
_STANDS_FOR = "megcc.function."


@relax.expr_functor.mutator
class HideCalls(relax.PyExprMutator):
    """Replaces calls of the module's own functions, except regions, by calls of external ones."""

    def __init__(self, mod: tvm.IRModule):
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if isinstance(call.op, ir.GlobalVar) and isinstance(self.mod[call.op], relax.Function) \
                and not is_partitioned(self.mod[call.op]):
            return Call(relax.ExternFunc(_STANDS_FOR + call.op.name_hint), call.args, call.attrs, [type_of(call)])
        return call


@relax.expr_functor.mutator
class RestoreCalls(relax.PyExprMutator):
    """Restores the calls that `HideCalls` replaced."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if isinstance(call.op, relax.ExternFunc) and str(call.op.global_symbol).startswith(_STANDS_FOR):
            name = str(call.op.global_symbol).removeprefix(_STANDS_FOR)
            return Call(self.builder_.get().get_global_var(name), call.args, call.attrs)
        return call
