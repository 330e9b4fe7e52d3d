# SPDX-License-Identifier: Apache-2.0
"""Converts modules from channels last to channels first, which our passes and epilogues expect, without transposes
between convolutions. Layouts in memory are chosen later, by cost."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax

from ..tvm_versions import Call, Constant, RelaxTensor, number_of, type_of, value_of, with_arguments

#: Operators whose layout is converted -> the layouts of their data and weight operands.
TARGET_LAYOUTS = {"relax.nn.conv2d": ["NCHW", "OIHW"], "relax.nn.conv2d_transpose": ["NCHW", "IOHW"]}
#: Operators through which TVM propagates layouts if both operands have the same rank.
_BINARY = tuple(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"))


def channels_first(mod: tvm.IRModule) -> tvm.IRModule:
    """Converts two-dimensional convolutions to NCHW. Returns the module unchanged if all are, or if TVM fails."""
    data_layouts: list[str] = []

    def visit(expr) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, ir.Op) and expr.op.name in TARGET_LAYOUTS:
            data_layouts.append(str(expr.attrs.data_layout))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    if all(layout == "NCHW" for layout in data_layouts):
        return mod
    mutator = _ExpandRanks(mod)
    for var, function in mod.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(var, mutator.visit_expr(function))
    try:
        return relax.transform.ConvertLayout(TARGET_LAYOUTS)(mutator.builder_.get())
    except Exception:  # TVM raises many kinds; channels last are only slower
        return mod


@relax.expr_functor.mutator
class _ExpandRanks(relax.PyExprMutator):
    """Reshapes constants of binary operators to four axes, and replaces clip by minimum and maximum, so that TVM
    propagates layouts through them."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, ir.Op) or not isinstance(type_of(call), RelaxTensor) or type_of(call).ndim != 4:
            return call
        if call.op.name == "relax.clip" and str(type_of(call).dtype) == "float32":
            x, lower, upper = call.args
            at_least = self.builder_.normalize(relax.op.maximum(x, _scalar(lower)))
            return self.builder_.normalize(relax.op.minimum(at_least, _scalar(upper)))
        if call.op.name not in _BINARY:
            return call
        operands = [_with_four_axes(operand) for operand in call.args]
        return self.builder_.normalize(with_arguments(call, operands))


def _with_four_axes(operand):
    """Returns a constant of fewer than four axes with leading axes of extent 1; other operands unchanged."""
    if not isinstance(operand, Constant) or type_of(operand).ndim == 4:
        return operand
    array = value_of(operand).numpy()
    return relax.const(tvm.runtime.tensor(array.reshape((1,) * (4 - array.ndim) + array.shape)))


def _scalar(bound):
    """Returns a bound of a clip as a float32 constant of shape [1, 1, 1, 1]."""
    value = float(number_of(bound).value)
    return relax.const(tvm.runtime.tensor(np.full((1, 1, 1, 1), value, np.float32)))
