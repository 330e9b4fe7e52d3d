# SPDX-License-Identifier: Apache-2.0
"""Replaces large biases of channels whose filters are zeros, so that faster kernels can be used.

The sum of such a channel is its bias. Models have biases up to 2^30 there, with tiny scales. A small bias with a scale
of 1/8 and the same result keeps the range of sums small, which faster requantization needs. (`dead_channels.py` removes
such channels, but not if a later convolution pads with another number than the channel's.)
"""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.expr import Arg, Call, Expr, evaluate
from ...ir.graph import Graph, Op
from ..edit import Editor

#: Functions of a sum, a multiplier and a shift, which multiply by multiplier * 2^(shift - 31). With this multiplier and
#: shift, the factor is 1/8, and they return exactly x for the sum 8 * x.
_RESCALES = {"rescale_fixed", "rescale_down", "rescale_once"}
_BIAS_FACTOR, _MULTIPLIER, _SHIFT = 8, 1 << 30, -2
#: The largest magnitude of a requantized number for which the bias is replaced.
_MAX_MAGNITUDE = 1 << 15


def settle_known_sums(graph: Graph, context: Context) -> Graph:
    """Replaces the biases of channels with zero filters in integer convolutions whose epilogue requantizes each
    channel."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind == "conv2d_integer" and op.epilogue is not None:
            _settle(edit, op)
    return edit.finish()


def _settle(edit: Editor, op: Op) -> None:
    """Replaces bias, multiplier and shift of the channels with zero filters and large biases."""
    graph, first_epilogue = edit.graph, len(op.own_inputs)
    rescale = _rescale(op.epilogue)
    if rescale is None or first_epilogue < 3 or not op.inputs[2]:
        return
    # Positions of bias, multiplier and shift. Argument 0 of an epilogue is the sum, argument 1 its first operand.
    operands = (2, *(first_epilogue + argument.index - 1 for argument in rescale.args[1:]))
    numbers = [graph.constants.get(op.inputs[operand]) for operand in (1, *operands)]
    if any(values is None for values in numbers):
        return
    weights, *columns = numbers
    if any(values.size != weights.shape[0] for values in columns):
        return
    bias, multiplier, shift = (values.reshape(-1).astype(np.int32) for values in columns)
    is_constant = (weights == op.attrs.w_zero).reshape(weights.shape[0], -1).all(1)
    results = evaluate(Call(rescale.fn, (Arg(0), Arg(1), Arg(2))), [bias, multiplier, shift]).astype(np.int64)
    is_large = np.abs(bias.astype(np.int64)) > _BIAS_FACTOR * _MAX_MAGNITUDE
    settled = is_constant & is_large & (np.abs(results) <= _MAX_MAGNITUDE)
    if not settled.any():
        return
    inputs = list(op.inputs)
    for operand, old, new in zip(operands, columns, (_BIAS_FACTOR * results, _MULTIPLIER, _SHIFT), strict=True):
        changed = np.where(settled, new, old.reshape(-1)).astype(old.dtype).reshape(old.shape)
        inputs[operand] = edit.constant(f"{op.outputs[0]}.settled{operand}", changed, graph.types[op.inputs[operand]])
    edit.replace(op, op.with_(inputs=tuple(inputs)))


def _rescale(expr: Expr | None) -> Call | None:
    """Returns the call in an epilogue that requantizes the sum by a multiplier and a shift that are operands, and that
    nothing else reads; None if there is none or several."""
    calls, operands = [], []

    def walk(expr: Expr | None) -> None:
        if isinstance(expr, Arg):
            operands.append(expr.index)
        elif isinstance(expr, Call):
            calls.append(expr)
            for argument in expr.args:
                walk(argument)

    walk(expr)
    found = [call for call in calls if call.fn in _RESCALES and all(isinstance(a, Arg) for a in call.args)
             and call.args[0] == Arg(0)]
    return found[0] if len(found) == 1 and all(operands.count(a.index) == 1 for a in found[0].args) else None
