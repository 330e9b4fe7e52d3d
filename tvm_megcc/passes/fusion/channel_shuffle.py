# SPDX-License-Identifier: Apache-2.0
"""Removes channel shuffles by reordering the weights after them.

A shuffle (reshape, transpose, reshape) permutes channels. Operators that treat each channel by itself do as well on
the channels in their old order, if their constants take that order too; a convolution over all channels sums them in
any order. So a shuffle vanishes where every path after it passes operators of the first sort and ends in one of the
second, as in units of a grouped 1x1, a shuffle, a depthwise and a 1x1 convolution.
"""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.graph import Graph, Op
from ...ir.types import TensorType
from ..edit import Editor
from ..match import Match, is_op, wildcard

_X = wildcard()
_SPLIT = is_op("reshape", _X)
_TURN = is_op("transpose", _SPLIT)
_SHUFFLE = is_op("reshape", _TURN)

#: Operators that keep every channel where it is; all but `elementwise` read channels by operand 0 only.
_PER_CHANNEL = ("avg_pool", "max_pool", "resize", "elementwise")


def absorb_shuffles(graph: Graph, context: Context) -> Graph:
    """Removes channel shuffles whose permutation the weights after them can take."""
    edit = Editor(graph)
    readers: dict[str, list[int]] = {}
    for position, op in enumerate(graph.ops):
        for name in dict.fromkeys(op.inputs):
            readers.setdefault(name, []).append(position)
    for op in graph.ops:
        found = _SHUFFLE.match(edit, op.outputs[0]) if op.kind == "reshape" else None
        order = _shuffled_order(edit, found, op) if found is not None else None
        region = _region(graph, readers, op.outputs[0]) if order is not None else None
        if found is None or region is None:
            continue
        source, back = found[_X], np.argsort(order)
        for position, summed in region.items():
            reordered = _reordered(edit, graph.ops[position], back, summed)
            edit.replace(reordered, reordered.with_(inputs=tuple(
                source if name == op.outputs[0] else name for name in reordered.inputs)))
    return edit.finish()


def _shuffled_order(edit: Editor, found: Match, op: Op) -> np.ndarray | None:
    """For the reshape that ends a shuffle: channel j of its result is channel order[j] of the operand."""
    whole, parts = edit.types[found[_X]].shape, edit.types[found[_SPLIT]].shape
    if found[_X] in edit.constants or len(parts) < 4 or edit.types[op.outputs[0]].shape != whole \
            or found.op(_TURN).attrs.perm != (0, 2, 1, *range(3, len(parts))) \
            or (parts[0], *parts[3:]) != (whole[0], *whole[2:]) or not all(isinstance(d, int) for d in parts[1:3]):
        return None
    return np.arange(parts[1] * parts[2]).reshape(parts[1:3]).T.ravel()


def _region(graph: Graph, readers: dict[str, list[int]], start: str) -> dict[int, bool] | None:
    """Returns positions of the operators after the value that take over its permutation, and whether each ends it by a
    sum over channels; None if some operator cannot."""
    permuted, pending = {start}, [start]
    region: dict[int, bool] = {}
    while pending:
        name = pending.pop()
        if name in graph.outputs or name not in readers:
            return None
        for position in readers[name]:
            op = graph.ops[position]
            if op.kind == "conv2d" and op.attrs.groups == 1:
                region[position] = True
            elif op.kind in _PER_CHANNEL or _is_depthwise(graph, op):
                region[position] = False
                if op.outputs[0] not in permuted:
                    permuted.add(op.outputs[0])
                    pending.append(op.outputs[0])
            else:
                return None
    return region if all(_agrees(graph, graph.ops[i], summed, permuted) for i, summed in region.items()) else None


def _is_depthwise(graph: Graph, op: Op) -> bool:
    return op.kind == "conv2d" and graph.types[op.inputs[1]].shape[:2] == (op.attrs.groups, 1)


def _agrees(graph: Graph, op: Op, summed: bool, permuted: set[str]) -> bool:
    """Whether the operator's other operands can follow the permutation, or need not."""
    if op.kind == "conv2d" and any(name and name not in graph.constants for name in op.own_inputs[1:]):
        return False
    if summed:
        return permuted.isdisjoint(op.inputs[1:])
    if len(op.outputs) != 1 or (op.kind == "resize" and 1 in op.attrs.axes):
        return False
    output = graph.types[op.outputs[0]]
    beside = op.inputs if op.kind == "elementwise" else (op.inputs[0], *op.epilogue_inputs)
    return all(name in graph.constants or _same_channels(graph.types[name], output) == (name in permuted)
               for name in beside) and all(graph.types[name].shape[1] == output.shape[1]
                                           for name in op.inputs if name in permuted)


def _same_channels(operand: TensorType, output: TensorType) -> bool:
    """Whether the elementwise operand has channels of its own rather than one for all."""
    axis = 1 - (output.rank - operand.rank)
    return axis >= 0 and operand.shape[axis] != 1


def _reordered(edit: Editor, op: Op, back: np.ndarray, summed: bool) -> Op:
    """Returns the operator on channels of which number back[j] was number j."""
    def taken(name: str, axis: int) -> str:
        if not name or name not in edit.constants or axis < 0 or edit.types[name].shape[axis] == 1:
            return name
        array = np.ascontiguousarray(np.take(edit.constants[name], back, axis))
        return edit.constant(f"{name}.reordered", array)

    own = list(op.own_inputs)
    if summed:
        return op.with_(inputs=(own[0], taken(own[1], 1), *op.inputs[2:]))
    rank = edit.types[op.outputs[0]].rank
    followers = [taken(name, 1 - (rank - edit.types[name].rank)) for name in op.epilogue_inputs]
    if op.kind == "conv2d":
        own[1:] = [taken(name, 0) for name in own[1:]]
    elif op.kind == "elementwise":
        own = [taken(name, 1 - (rank - edit.types[name].rank)) for name in own]
    return op.with_(inputs=(*own, *followers))
