# SPDX-License-Identifier: Apache-2.0
"""Replaces TFLite's fixed-point requantization by a float32 fused multiply-add and a rounding, which are faster, if the
results are equal for every sum that can occur.

Both functions are monotone, so it suffices that they agree on both sides of each step of the result; an 8-bit result
has at most 255 steps. `step_functions.py` searches the factor and the addends of each channel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...context import Context
from ...ir.expr import FUNCTIONS, Arg, Call, Const, Expr, X, arg, call, maximum, substitute
from ...ir.graph import Graph, Op
from ...ir.intervals import INT32, SATURATED
from ...kernels.support import MAX_EPILOGUE_OPERANDS
from ...ops.base import operator
from ..edit import Editor
from .step_functions import Steps, search_rounding

#: The largest number of steps of a result for which a replacement is searched; an 8-bit result has at most 255.
_MAX_STEPS = 511
#: The requantization functions that are replaced.
_RESCALES = ("rescale_fixed", "rescale_down", "rescale_once")


class _Replacement(NamedTuple):
    """The replacement of a requantized sum.

    expr: an expression over the sum (operand 0) and new operands (1, 2, …).
    operands: the new operands, arrays [C] or [1].
    bias_addends: the numbers to add to the biases, [C] or [1].
    """

    expr: Expr
    operands: tuple[np.ndarray, ...]
    bias_addends: np.ndarray


class _Requantized(NamedTuple):
    """A requantized sum plus a zero point, clipped to [lower, upper], in an epilogue.

    call: the expression of the requantized sum.
    rescale: the same, or, if `call` requantizes both signs separately, the function that it applies to magnitudes.
    """

    call: Call
    rescale: Call
    zero: int
    lower: int
    upper: int

    @property
    def splits_signs(self) -> bool:
        """Whether both signs are requantized separately."""
        return self.rescale is not self.call

    def numpy(self, sums: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Returns the requantized sums, without zero point and clip."""
        function = FUNCTIONS[self.rescale.fn].numpy
        return np.sign(sums) * function(np.abs(sums), multiplier, shift) if self.splits_signs \
            else function(sums, multiplier, shift)


def rescale_in_float32(graph: Graph, context: Context) -> Graph:
    """Rewrites fixed-point requantization to float32 in epilogues over sums of products with known weights."""
    edit = Editor(graph)
    for op in graph.ops if context.isa.fused_rounding else ():
        if op.epilogue is not None and op.kind in ("conv2d_integer", "matmul_integer"):
            found = _requantized_in_float32(edit, op)
            if found is not None:
                edit.replace(op, found)
    return edit.finish()


def _requantized_in_float32(edit: Editor, op: Op) -> Op | None:
    """Returns the operator with float requantization; None if that is impossible."""
    graph, result = edit.graph, edit.types[op.outputs[0]]
    assert op.epilogue is not None
    matched = _requantized(op.epilogue, *SATURATED.get(result.dtype, INT32))
    sums = _sum_bounds(graph, op)
    if matched is None or sums is None or matched.upper - matched.lower > _MAX_STEPS:
        return None
    axis = operator(op.kind).channel_axis
    assert axis is not None
    channels = len(sums[0])
    numbers = [_per_channel(graph, op, argument, channels) for argument in matched.rescale.args[1:]]
    if numbers[0] is None or numbers[1] is None:
        return None
    if all((values == values[0]).all() for values in numbers):
        # One function for all channels stays one: loading operands for each channel would take time.
        numbers, sums = [values[:1] for values in numbers], (sums[0].min(keepdims=True), sums[1].max(keepdims=True))
    replacement = _search_float_parameters(matched, numbers[0], numbers[1], *sums)
    trailing = len(result.shape) - 1 - axis % len(result.shape)
    return None if replacement is None else _replaced(edit, op, matched, replacement, channels, trailing)


def _requantized(expr: Expr, lower: float, upper: float) -> _Requantized | None:
    """Returns the requantized sum in an expression whose result is clipped to [lower, upper]; None if there is none or
    several.

    It goes inwards through the expression: min and max narrow the clip, an added constant shifts it and, if it is added
    to the requantized sum itself, is the zero point.
    """
    if not isinstance(expr, Call):
        return None
    rescale = expr if expr.fn in _RESCALES else _of_magnitudes(expr)
    if rescale:
        reads_sum = rescale is not expr or expr.args[0] == X  # not another expression over the sum
        return _Requantized(expr, rescale, 0, int(lower), int(upper)) if reads_sum else None
    number = expr.args[1].value if len(expr.args) == 2 and isinstance(expr.args[1], Const) else None
    if number is not None and expr.fn in ("add", "sub", "min", "max"):
        if expr.fn in ("min", "max"):
            bound = min(max(number, lower), upper)
            return _requantized(expr.args[0], *((lower, bound) if expr.fn == "min" else (bound, upper)))
        added = number if expr.fn == "add" else -number
        inner = _requantized(expr.args[0], lower - added, upper - added)
        # A number that is added to the requantized sum itself is the zero point.
        adds_zero_point = inner is not None and inner.call == expr.args[0]
        return inner._replace(zero=int(added), lower=int(lower), upper=int(upper)) if inner and adds_zero_point \
            else inner
    requantized_arguments = [inner for argument in expr.args if (inner := _requantized(argument, *INT32)) is not None]
    return requantized_arguments[0] if len(requantized_arguments) == 1 else None


def _of_magnitudes(expr: Call) -> Call | None:
    """Returns the function f of an expression f(max(x, 0)) - f(max(-x, 0)), which requantizes both signs separately, as
    TFLite's fully connected layers do; None for another expression."""
    of_positive, *others = expr.args
    if not isinstance(of_positive, Call) or of_positive.fn != "rescale_once" or expr.fn != "sub":
        return None
    of_negative = Call(of_positive.fn, (maximum(0 - X, 0), *of_positive.args[1:]))
    return of_positive if of_positive.args[0] == maximum(X, 0) and others == [of_negative] else None


def _sum_bounds(graph: Graph, op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the least and the greatest sum of each channel, arrays [C]; None if they are not known or may
    overflow."""
    weights, limits = graph.constants.get(op.inputs[1]), np.iinfo(graph.types[op.inputs[0]].dtype)
    bias = op.own_inputs[2] if len(op.own_inputs) > 2 else ""
    if weights is None or weights.ndim < 2 or (bias and bias not in graph.constants):
        return None
    if op.kind == "conv2d_integer":
        zero, rows = op.attrs.x_zero, weights.reshape(len(weights), -1)
        of_weights = op.attrs.w_zero
    else:
        zero, rows = op.attrs.a_zero, weights if op.attrs.trans_b else weights.swapaxes(-1, -2)
        of_weights = op.attrs.b_zero
    # In a batched product, a channel is a column of each matrix.
    rows = rows.astype(np.int64).reshape(-1, *rows.shape[-2:]) - of_weights
    positive, negative = np.maximum(rows, 0).sum(axis=-1), np.minimum(rows, 0).sum(axis=-1)
    added = graph.constants[bias].astype(np.int64).reshape(-1) if bias else 0
    # A sum is smallest if positive weights meet the least integer, and negative ones the greatest.
    smallest = (positive * (limits.min - zero) + negative * (limits.max - zero)).min(axis=0) + added
    largest = (positive * (limits.max - zero) + negative * (limits.min - zero)).max(axis=0) + added
    return (smallest, largest) if smallest.min() >= INT32[0] and largest.max() <= INT32[1] else None


def _per_channel(graph: Graph, op: Op, argument: Expr, channels: int) -> np.ndarray | None:
    """Returns an argument of a requantization as an array [C] of int64; None if it is not constant."""
    if isinstance(argument, Const):
        return np.full(channels, int(argument.value), np.int64)
    is_operand = isinstance(argument, Arg) and argument.index > 0
    value = graph.constants.get(op.epilogue_inputs[argument.index - 1]) if is_operand else None
    if value is None or value.size not in (1, channels):
        return None
    return np.broadcast_to(value.astype(np.int64).reshape(-1), (channels,))


def _replaced(edit: Editor, op: Op, matched: _Requantized, replacement: _Replacement, channels: int, trailing: int) \
        -> Op | None:
    """Returns the operator with a replacement of its requantized sum, without operands that are no longer read; None if
    it has too many operands. trailing: the number of axes after the axis of channels."""
    assert op.epilogue is not None
    inputs, operands = op.own_inputs, list(op.epilogue_inputs)
    names = [edit.constant(f"{op.outputs[0]}.rescaled", operand.reshape(-1, *[1] * trailing))
             for operand in replacement.operands]
    moved = [arg(0), *(arg(len(operands) + index + 1) for index in range(len(names)))]
    epilogue = _substituted(op.epilogue, matched, substitute(replacement.expr, moved))
    operands += names
    read = sorted(_read(epilogue) - {0})
    if len(read) > MAX_EPILOGUE_OPERANDS:
        return None
    epilogue = substitute(epilogue, [arg(read.index(index) + 1 if index in read else 0)
                                     for index in range(len(operands) + 1)])
    if replacement.bias_addends.any():
        bias = edit.constants[inputs[2]].reshape(-1) if len(inputs) > 2 and inputs[2] else np.zeros(channels, np.int32)
        inputs = *inputs[:2], edit.constant(f"{op.outputs[0]}.moved", bias + replacement.bias_addends)
    return op.with_(inputs=(*inputs, *(operands[index - 1] for index in read)), epilogue_start=len(inputs),
                    epilogue=epilogue)


def _substituted(expr: Expr, matched: _Requantized, new: Expr) -> Expr:
    """Replaces the requantized sum and its zero point in an expression by `new`."""
    if not isinstance(expr, Call):
        return expr
    if matched.zero and expr.args[0] == matched.call and expr.fn in ("add", "sub"):
        return new
    return new if expr == matched.call else \
        Call(expr.fn, tuple(_substituted(argument, matched, new) for argument in expr.args))


def _read(expr: Expr) -> set[int]:
    """Returns the operands of an expression."""
    if isinstance(expr, Arg):
        return {expr.index}
    return set().union(*map(_read, expr.args)) if isinstance(expr, Call) else set()


def _search_float_parameters(matched: _Requantized, multiplier: np.ndarray, shift: np.ndarray, smallest: np.ndarray,
                             largest: np.ndarray) -> _Replacement | None:
    """Searches a float requantization with the same results, within the limits.

    Args:
        multiplier, shift: of each channel, [C] or [1].
        smallest, largest: the range of the sums of each channel, [C] or [1].

    Returns:
        The replacement; None if there is none.
    """
    fn, zero = matched.rescale.fn, matched.zero
    if multiplier.min() < 0 or shift.max() > 0 or shift.min() < -31:  # a shift to the left may overflow
        return None
    multiplier, shift = multiplier[:, None], shift[:, None]
    factor = np.maximum(multiplier, 1) * 2.0**(shift - 31)
    levels = np.arange(matched.lower - zero + 1, matched.upper - zero + 1)[None]
    # `rescale_fixed` and `rescale_down` round twice: x * multiplier / 2^31 to an integer, then that times 2^shift.
    # The first rounding lifts results by up to 2^(shift - 1), half its step in units of the result, so a step is
    # reached this much earlier (negative levels: later). `rescale_once` rounds once.
    early = np.where((fn == "rescale_once") | (shift == 0), 0, np.where(levels > 0, 1, -1) * 2.0**(shift - 1))
    steps = Steps.of(lambda sums: matched.numpy(sums, multiplier, shift), levels, (levels - 0.5 - early) / factor,
                     smallest[:, None], largest[:, None])
    # With ties away from zero the function is odd, so only the steps of magnitudes are searched.
    is_odd = matched.splits_signs or (fn != "rescale_once" and matched.lower < zero)
    rounding = search_rounding(steps.magnitudes() if is_odd else steps, factor.astype(np.float32)) if steps else None
    if steps is None or rounding is None:
        return None
    # Both functions multiply, add and round to the nearest in one operation; nearest_odd does it to the magnitude
    # of the sum, and keeps its sign.
    if is_odd:
        def requantized(sums: np.ndarray) -> np.ndarray:
            return FUNCTIONS["nearest_odd"].numpy(sums, rounding.offsets, rounding.factors, rounding.addends)
    else:
        def requantized(sums: np.ndarray) -> np.ndarray:
            return FUNCTIONS["nearest_fused"].numpy(sums + rounding.offsets, rounding.factors, rounding.addends)
    furthest = np.maximum(np.abs(smallest), np.abs(largest)) + np.abs(rounding.offsets[:, 0].astype(np.int64))
    if furthest.max() > INT32[1] or not steps.are_of(requantized):
        return None
    factors, offsets = rounding.factors[:, 0], rounding.offsets[:, 0]
    if is_odd:
        expr = call("nearest_odd", arg(0), arg(1), arg(2), arg(3))
        return _Replacement(expr + zero if zero else expr, (offsets, factors, rounding.addends[:, 0]),
                            np.zeros_like(offsets))
    addends = rounding.addends[:, 0] + np.float32(zero)
    return _Replacement(call("nearest_fused", arg(0), arg(1), arg(2)), (factors, addends), offsets)
