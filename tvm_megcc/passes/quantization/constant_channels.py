# SPDX-License-Identifier: Apache-2.0
"""Replaces biases of channels whose filters are zeros, and whose sum is therefore the bias. Such channels remain if the
padding after them is another number. Models give them biases up to 2^30 with tiny factors; a small bias with the same
result keeps the range of sums small, which faster kernels need."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.expr import Arg, Call, Expr, evaluate
from ...ir.graph import Graph, Op
from ..edit import Editor

#: Functions of a sum, a multiplier and a shift. With a factor of 1/8 they give back a number exactly from 8 times it.
_RESCALES = {"rescale_fixed", "rescale_down", "rescale_once"}
_TIMES, _MULTIPLIER, _SHIFT = 8, 1 << 30, -2
#: The largest magnitude of a requantized number for which the bias is replaced.
_MOST = 1 << 15


def settle_known_sums(graph: Graph, context: Context) -> Graph:
    """Replaces known sums in integer convolutions whose epilogue requantizes each channel."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind == "conv2d_integer" and op.epilogue is not None:
            _settle(edit, op)
    return edit.finish()


def _settle(edit: Editor, op: Op) -> None:
    graph, first_epilogue = edit.graph, len(op.own_inputs)
    rescale = _rescale(op.epilogue)
    if rescale is None or first_epilogue < 3 or not op.inputs[2]:
        return
    operands = (2, *(first_epilogue - 1 + argument.index for argument in rescale.args[1:]))
    numbers = [graph.constants.get(op.inputs[operand]) for operand in (1, *operands)]
    if any(values is None for values in numbers):
        return
    weights, *columns = numbers
    if any(values.size != weights.shape[0] for values in columns):
        return
    bias, multiplier, shift = (values.reshape(-1).astype(np.int32) for values in columns)
    known = (weights == op.attrs.w_zero).reshape(weights.shape[0], -1).all(1)
    results = evaluate(Call(rescale.fn, (Arg(0), Arg(1), Arg(2))), [bias, multiplier, shift]).astype(np.int64)
    settled = known & (np.abs(bias.astype(np.int64)) > _TIMES * _MOST) & (np.abs(results) <= _MOST)
    if not settled.any():
        return
    inputs = list(op.inputs)
    for operand, old, new in zip(operands, columns, (_TIMES * results, _MULTIPLIER, _SHIFT), strict=True):
        changed = np.where(settled, new, old.reshape(-1)).astype(old.dtype).reshape(old.shape)
        inputs[operand] = edit.constant(f"{op.outputs[0]}.settled{operand}", changed, graph.types[op.inputs[operand]])
    edit.replace(op, op.with_(inputs=tuple(inputs)))


def _rescale(expr: Expr | None) -> Call | None:
    """Returns the only call in an epilogue that requantizes the sum by two operands that nothing else reads; None if
    there is none."""
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
