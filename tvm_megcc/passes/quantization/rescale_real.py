# SPDX-License-Identifier: Apache-2.0
"""Replaces TFLite's fixed-point requantization by one float fused multiply-add, if the results are equal for every sum
that can occur. Both functions are monotone, so it suffices that they agree on both sides of each step of the result, of
which an 8-bit result has at most 255. The factor and the addend of each channel are searched until they do."""

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
from .step_functions import Steps, searched

#: The most steps of a result.
_STEPS = 511
#: Requantization functions -> the least right shift that is supported, so that sums do not overflow.
_SHIFTS = {"rescale_fixed": 0, "rescale_down": 1, "rescale_once": 1}


class _Found(NamedTuple):
    """The replacement of a requantized sum: an expression over the sum and new operands, these operands, and numbers to
    add to the biases of the channels."""

    expr: Expr
    operands: tuple[np.ndarray, ...]
    bias_addends: np.ndarray


class _Requantized(NamedTuple):
    """A requantized sum plus `zero`, which is clipped to [low, high]. rescale: the function of the sum or, if both
    signs are handled separately, of its magnitude."""

    call: Call
    rescale: Call
    zero: int
    low: int
    high: int

    @property
    def has_outer_call(self) -> bool:
        return self.rescale is not self.call

    def numpy(self, sums: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
        function = FUNCTIONS[self.rescale.fn].numpy
        return np.sign(sums) * function(np.abs(sums), multiplier, shift) if self.has_outer_call \
            else function(sums, multiplier, shift)


def rescale_in_float32(graph: Graph, context: Context) -> Graph:
    """Rewrites fixed-point requantization to float32 in epilogues over sums of products with known weights."""
    edit = Editor(graph)
    for op in graph.ops if context.isa.fused_rounding else ():
        if op.epilogue is not None and op.kind in ("conv2d_integer", "matmul_integer"):
            found = _in_floats(edit, op)
            if found is not None:
                edit.replace(op, found)
    return edit.finish()


def _in_floats(edit: Editor, op: Op) -> Op | None:
    graph, result = edit.graph, edit.types[op.outputs[0]]
    assert op.epilogue is not None
    matched = _requantized(op.epilogue, *SATURATED.get(result.dtype, INT32))
    sums = _sums(graph, op)
    if matched is None or sums is None or matched.high - matched.low > _STEPS:
        return None
    axis = operator(op.kind).channel_axis
    assert axis is not None
    channels = len(sums[0])
    numbers = [_numbers(graph, op, argument, channels) for argument in matched.rescale.args[1:]]
    if numbers[0] is None or numbers[1] is None:
        return None
    if all((each == each[0]).all() for each in numbers):
        # One function for all channels stays one, since loading per-channel operands would take time.
        numbers, sums = [each[:1] for each in numbers], (sums[0].min(keepdims=True), sums[1].max(keepdims=True))
    found = _by_floats(matched, numbers[0], numbers[1], *sums)
    trailing = len(result.shape) - 1 - axis % len(result.shape)
    return None if found is None else _replaced(edit, op, matched, found, channels, trailing)


def _requantized(expr: Expr, low: float, high: float) -> _Requantized | None:
    """Returns the requantized sum in an expression that is clipped to [low, high]; None if there is none or several."""
    if not isinstance(expr, Call):
        return None
    rescale = expr if expr.fn in _SHIFTS else _of_magnitudes(expr)
    if rescale:
        known = rescale is not expr or expr.args[0] == X
        return _Requantized(expr, rescale, 0, int(low), int(high)) if known else None
    number = expr.args[1].value if len(expr.args) == 2 and isinstance(expr.args[1], Const) else None
    if number is not None and expr.fn in ("add", "sub", "min", "max"):
        if expr.fn in ("min", "max"):
            bound = min(max(number, low), high)
            return _requantized(expr.args[0], *((low, bound) if expr.fn == "min" else (bound, high)))
        added = number if expr.fn == "add" else -number
        found = _requantized(expr.args[0], low - added, high - added)
        is_next = found is not None and found.call == expr.args[0]
        return found._replace(zero=int(added), low=int(low), high=int(high)) if found and is_next else found
    requantized_arguments = [found for argument in expr.args if (found := _requantized(argument, *INT32)) is not None]
    return requantized_arguments[0] if len(requantized_arguments) == 1 else None


def _of_magnitudes(expr: Call) -> Call | None:
    """Returns the requantization that is applied to both signs separately, as in fully connected layers; else None."""
    up, *down = expr.args
    if not isinstance(up, Call) or up.fn != "rescale_once" or expr.fn != "sub":
        return None
    mirrored = Call(up.fn, (maximum(0 - X, 0), *up.args[1:]))
    return up if up.args[0] == maximum(X, 0) and down == [mirrored] else None


def _sums(graph: Graph, op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the least and the greatest sum of each channel; None if they are not known or may overflow."""
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
    up, down = np.maximum(rows, 0).sum(axis=-1), np.minimum(rows, 0).sum(axis=-1)
    added = graph.constants[bias].astype(np.int64).reshape(-1) if bias else 0
    least = (up * (limits.min - zero) + down * (limits.max - zero)).min(axis=0) + added
    most = (up * (limits.max - zero) + down * (limits.min - zero)).max(axis=0) + added
    return (least, most) if least.min() >= INT32[0] and most.max() <= INT32[1] else None


def _numbers(graph: Graph, op: Op, argument: Expr, channels: int) -> np.ndarray | None:
    """Returns the constant numbers of a requantization argument, one for each channel; None if they are not
    constant."""
    if isinstance(argument, Const):
        return np.full(channels, int(argument.value), np.int64)
    is_operand = isinstance(argument, Arg) and argument.index > 0
    value = graph.constants.get(op.epilogue_inputs[argument.index - 1]) if is_operand else None
    if value is None or value.size not in (1, channels):
        return None
    return np.broadcast_to(value.astype(np.int64).reshape(-1), (channels,))


def _replaced(edit: Editor, op: Op, matched: _Requantized, found: _Found, channels: int, trailing: int) \
        -> Op | None:
    """Returns the operator with `found` in place of the requantized sum, without operands that are no longer read.
    trailing: the number of axes after that of the channels."""
    assert op.epilogue is not None
    inputs, operands = op.own_inputs, list(op.epilogue_inputs)
    names = [edit.constant(f"{op.outputs[0]}.rescaled", operand.reshape(-1, *[1] * trailing))
             for operand in found.operands]
    moved = [arg(0), *(arg(len(operands) + index + 1) for index in range(len(names)))]
    epilogue = _substituted(op.epilogue, matched, substitute(found.expr, moved))
    operands += names
    read = sorted(_read(epilogue) - {0})
    if len(read) > MAX_EPILOGUE_OPERANDS:
        return None
    epilogue = substitute(epilogue, [arg(read.index(index) + 1 if index in read else 0)
                                     for index in range(len(operands) + 1)])
    if found.bias_addends.any():
        bias = edit.constants[inputs[2]].reshape(-1) if len(inputs) > 2 and inputs[2] else np.zeros(channels, np.int32)
        inputs = *inputs[:2], edit.constant(f"{op.outputs[0]}.moved", bias + found.bias_addends)
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


def _by_floats(matched: _Requantized, multiplier: np.ndarray, shift: np.ndarray, least: np.ndarray,
               most: np.ndarray) -> _Found | None:
    """Searches float parameters that give the same results, within the limits, for the sums of each channel from
    `least` to `most`."""
    fn, zero = matched.rescale.fn, matched.zero
    if multiplier.min() < 0 or shift.max() > -_SHIFTS[fn] or shift.min() < -31:
        return None
    multiplier, shift = multiplier[:, None], shift[:, None]
    factor = np.maximum(multiplier, 1) * 2.0**(shift - 31)
    levels = np.arange(matched.low - zero + 1, matched.high - zero + 1)[None]
    # The first of two roundings is to multiples of 2^shift, so sums up to half of that below a step reach it.
    early = np.where((fn == "rescale_once") | (shift == 0), 0, np.where(levels > 0, 1, -1) * 2.0**(shift - 1))
    steps = Steps.of(lambda sums: matched.numpy(sums, multiplier, shift), levels, (levels - 0.5 - early) / factor,
                     least[:, None], most[:, None])
    # With ties away from zero the function is odd, so only the steps of magnitudes are searched.
    is_odd = matched.has_outer_call or (fn != "rescale_once" and matched.low < zero)
    found = searched(steps.magnitudes() if is_odd else steps, factor.astype(np.float32)) if steps else None
    if steps is None or found is None:
        return None
    if is_odd:
        def requantized(sums: np.ndarray) -> np.ndarray:
            return FUNCTIONS["nearest_odd"].numpy(sums, found.moves, found.factors, found.added)
    else:
        def requantized(sums: np.ndarray) -> np.ndarray:
            return FUNCTIONS["nearest_fused"].numpy(sums + found.moves, found.factors, found.added)
    furthest = np.maximum(np.abs(least), np.abs(most)) + np.abs(found.moves[:, 0].astype(np.int64))
    if furthest.max() > INT32[1] or not steps.are_of(requantized):
        return None
    factors, moves = found.factors[:, 0], found.moves[:, 0]
    if is_odd:
        expr = call("nearest_odd", arg(0), arg(1), arg(2), arg(3))
        return _Found(expr + zero if zero else expr, (moves, factors, found.added[:, 0]), np.zeros_like(moves))
    return _Found(call("nearest_fused", arg(0), arg(1), arg(2)), (factors, found.added[:, 0] + np.float32(zero)), moves)
