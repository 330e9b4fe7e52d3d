# SPDX-License-Identifier: Apache-2.0
"""Converts `patterns.py` and the registry of operators to Relax patterns, registered with the prefix `megcc.`"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tvm import IRModule, ir, relax, tirx
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.backend.utils import has_leaking_intermediate_variables
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.dpl.pattern import DFPattern
from tvm.relax.transform import FusionPattern, PatternCheckContext

from ... import patterns
from ...errors import MegccError
from ...ops.base import OPERATORS
from ...target import Target, native
from ..tir.legalize import has_loops
from ..tvm_common.pattern_converter import PatternConverter
from ..tvm_common.support import why_unsupported
from ..tvm_versions import match_attributes
from .importer import CALL_TIR, TIR_PREFIX, import_match, is_operator
from .ops import importable

PREFIX = "megcc."

#: The last has the target that checks ask about, and the TIR functions that they know. `partition_for_megcc` adds it;
#: without one the target is the host, and there are no TIR functions.
_CHECKED: list[tuple[Target | None, Mapping[str, tirx.PrimFunc]]] = [(None, {})]


@contextmanager
def checking_for(target: Target, mod: IRModule) -> Iterator[None]:
    """Makes checks within the block ask for kernels of this target, and know the TIR functions of this module."""
    _CHECKED.append((target, tir_functions(mod)))
    try:
        yield
    finally:
        _CHECKED.pop()


def tir_functions(mod: IRModule) -> dict[str, tirx.PrimFunc]:
    """Returns the TIR functions of a module by name."""
    return {var.name_hint: function for var, function in mod.functions.items() if isinstance(function, tirx.PrimFunc)}


def refusal(expr, bindings=None, target: Target | None = None, loops: bool = False,
            functions: Mapping[str, tirx.PrimFunc] | None = None) -> str | None:
    """Returns why no kernel realises an expression, None if one does.

    bindings: the variables that are part of the match, with their expressions; others are inputs. loops: whether to ask
    for a kernel that is printed from TIR. target, functions: by default those of `checking_for`.
    """
    checked_target, checked_functions = _CHECKED[-1]
    try:
        graph = import_match(expr, bindings, loops, checked_functions if functions is None else functions)
    except MegccError as error:
        return str(error)
    return why_unsupported(graph, target or checked_target or native())


def check(context: PatternCheckContext) -> bool:
    """Whether a kernel realises a match, as the code generator would find."""
    if len(context.matched_bindings) > 1 and has_leaking_intermediate_variables(context):
        return False
    return refusal(context.matched_expr, dict(context.matched_bindings.items())) is None


def check_loops(context: PatternCheckContext) -> bool:
    """Whether the loops that TVM lowers an operator to can be printed as a kernel."""
    return refusal(context.matched_expr, dict(context.matched_bindings.items()), loops=True) is None


class _Converter(PatternConverter):
    """Builds Relax patterns from the rows of `patterns.py`."""

    dialect = "Relax"

    def __init__(self):
        super().__init__()
        self.available = set(importable())

    def any(self) -> DFPattern:
        return wildcard()

    def constant(self) -> DFPattern:
        return is_const()

    def names(self, kind: str, operands: Sequence[patterns.Term]) -> list[str]:
        declared = OPERATORS[kind].relax if kind in OPERATORS else ()
        return [name for name in declared if name in self.available]

    def call(self, name: str, operands: Sequence[DFPattern]) -> DFPattern:
        return is_op(name)(*operands, varg_default_wildcard=True)


def pattern_table() -> list[FusionPattern]:
    """Returns all patterns, most specific first: the composites, then every operator by itself."""
    composites = [FusionPattern(row.name, _Converter().pattern(row.term), {}, check, match_attributes())
                  for row in patterns.COMPOSITES]
    singles = [FusionPattern(PREFIX + name.removeprefix("relax."), _any_call(name), {}, check, match_attributes())
               for name in importable()]
    return composites + singles


def loops_table(mod: IRModule) -> list[FusionPattern]:
    """Returns a pattern for each operator in a module that TVM may lower to loops. They match what the patterns of
    hand-written kernels left."""
    found: set[tuple[str, int]] = set()

    def visit(expr) -> None:
        if is_operator(expr):
            found.add((expr.op.name, len(expr.args)))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return [FusionPattern(TIR_PREFIX + name.removeprefix("relax."), is_op(name)(*(wildcard() for _ in range(count))),
                          {}, check_loops, match_attributes())
            for name, count in sorted(found) if name == CALL_TIR or has_loops(name)]


def _any_call(name: str) -> DFPattern:
    """Returns a pattern for any call of an operator. Operands are explicit where TVM's matcher requires them, as for
    products and quotients."""
    operands = [wildcard() for _ in range(max(ir.Op.get(name).num_inputs, 0))]
    return is_op(name)(*operands, varg_default_wildcard=True)


def register() -> None:
    """Registers the table with TVM, in reverse: later entries of its registry have the higher priority."""
    if not get_patterns_with_prefix(PREFIX):
        register_patterns([(row.name, row.pattern, row.annotation_patterns, check, match_attributes())
                           for row in reversed(pattern_table())])


def registered() -> list[FusionPattern]:
    return list(get_patterns_with_prefix(PREFIX))
