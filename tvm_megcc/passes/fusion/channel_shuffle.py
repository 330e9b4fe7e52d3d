# SPDX-License-Identifier: Apache-2.0
"""Removes channel shuffles by permuting the weights after them.

A shuffle (reshape, transpose, reshape) permutes channels. Per-channel operators can work on the unpermuted channels, if
their constants are permuted instead. A convolution with one group sums over all channels, in any order if its weights
are permuted. So a shuffle is removed if every path after it has only per-channel operators and ends in such a
convolution. ShuffleNet's units are of this form: grouped 1x1 convolution, shuffle, depthwise, 1x1 convolution.
"""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.dims import static
from ...ir.graph import Graph, Op
from ...ir.types import TensorType
from ..edit import Editor
from ..match import Match, is_op, wildcard

_X = wildcard()
_SPLIT = is_op("reshape", _X)
_TRANSPOSE = is_op("transpose", _SPLIT)
_SHUFFLE = is_op("reshape", _TRANSPOSE)

#: Per-channel operators. All except `elementwise` read channels of operand 0 only.
_PER_CHANNEL = ("avg_pool", "max_pool", "resize", "elementwise")


def absorb_shuffles(graph: Graph, context: Context) -> Graph:
    """Removes channel shuffles whose permutation can be folded into the weights after them."""
    edit = Editor(graph)
    readers: dict[str, list[int]] = {}
    for position, op in enumerate(graph.ops):
        for name in dict.fromkeys(op.inputs):
            readers.setdefault(name, []).append(position)
    for op in graph.ops:
        found = _SHUFFLE.match(edit, op.outputs[0]) if op.kind == "reshape" else None
        order = _shuffled_order(edit, found, op) if found is not None else None
        region = _region(graph, readers, op.outputs[0]) if order is not None else None
        if found is None or order is None or region is None:
            continue
        source, inverse = found[_X], np.argsort(order)
        for position, summed in region.items():
            reordered = _reordered(edit, graph.ops[position], inverse, summed)
            edit.replace(reordered, reordered.with_(inputs=tuple(
                source if name == op.outputs[0] else name for name in reordered.inputs)))
    return edit.finish()


def _shuffled_order(edit: Editor, found: Match, op: Op) -> np.ndarray | None:
    """Returns the permutation of a shuffle whose last operator is `op`: channel j of its result is channel order[j] of
    the shuffle's operand; None if it is no shuffle."""
    shape, parts = edit.types[found[_X]].shape, edit.types[found[_SPLIT]].shape
    if found[_X] in edit.constants or len(parts) < 4 or edit.types[op.outputs[0]].shape != shape \
            or found.op(_TRANSPOSE).attrs.perm != (0, 2, 1, *range(3, len(parts))) \
            or (parts[0], *parts[3:]) != (shape[0], *shape[2:]):
        return None
    split_channels = static(parts[1:3])
    if split_channels is None:
        return None
    return np.arange(split_channels[0] * split_channels[1]).reshape(split_channels).T.ravel()


def _region(graph: Graph, readers: dict[str, list[int]], start: str) -> dict[int, bool] | None:
    """Returns the operators after a value whose constants have to be permuted; None if one of them does not allow it.

    The result maps the position of an operator to whether it sums over channels, so that the region ends there.
    """
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
    """Returns whether the operands of an operator other than its permuted one can be permuted, or have no channels."""
    if op.kind == "conv2d" and any(name and name not in graph.constants for name in op.own_inputs[1:]):
        return False
    if summed:
        return permuted.isdisjoint(op.inputs[1:])
    if len(op.outputs) != 1 or (op.kind == "resize" and 1 in op.attrs.axes):
        return False
    output = graph.types[op.outputs[0]]
    operands = op.inputs if op.kind == "elementwise" else (op.inputs[0], *op.epilogue_inputs)
    # Operands with channels are either constants, which get permuted, or permuted values; others have no channels.
    fit = all(name in graph.constants or _has_channels(graph.types[name], output) == (name in permuted)
              for name in operands)
    return fit and all(graph.types[name].shape[1] == output.shape[1] for name in op.inputs if name in permuted)


def _channel_axis(operand: TensorType, output: TensorType) -> int:
    """Returns the axis of an operand that broadcasts to the output's channels, axis 1; negative if it has none."""
    return 1 - (output.rank - operand.rank)


def _has_channels(operand: TensorType, output: TensorType) -> bool:
    """Returns whether an elementwise operand has a channel axis that is not broadcast."""
    axis = _channel_axis(operand, output)
    return axis >= 0 and operand.shape[axis] != 1


def _reordered(edit: Editor, op: Op, inverse: np.ndarray, summed: bool) -> Op:
    """Returns the operator on unpermuted channels, with its constants permuted.

    Args:
        inverse: the inverse permutation of the shuffle.
        summed: the operator is a convolution that sums over the channels.
    """
    def permuted_constant(name: str, axis: int) -> str:
        if not name or name not in edit.constants or axis < 0 or edit.types[name].shape[axis] == 1:
            return name
        array = np.ascontiguousarray(np.take(edit.constants[name], inverse, axis))
        return edit.constant(f"{name}.reordered", array)

    operands = list(op.own_inputs)
    if summed:
        return op.with_(inputs=(operands[0], permuted_constant(operands[1], 1), *op.inputs[2:]))
    output = edit.types[op.outputs[0]]

    def permuted_operand(name: str) -> str:
        return permuted_constant(name, _channel_axis(edit.types[name], output))

    epilogue_operands = list(map(permuted_operand, op.epilogue_inputs))
    if op.kind == "conv2d":
        operands[1:] = [permuted_constant(name, 0) for name in operands[1:]]
    elif op.kind == "elementwise":
        operands = list(map(permuted_operand, operands))
    return op.with_(inputs=(*operands, *epilogue_operands))
