# SPDX-License-Identifier: Apache-2.0
"""Removes constant channels: their filters are dropped, and their contribution is added to the following bias.

A channel is constant if all its elements are the same known number. A filter of zeros computes such a channel. Pools
and depthwise convolutions keep it constant if they have no padding, or padding with the same number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...context import Context
from ...ir.dims import number
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.support import operand_class
from ...ops.base import operator
from ..edit import Editor

_CONVOLUTIONS = ("conv2d", "conv2d_integer")
_CHANNEL = 1


@dataclass
class _Channels:
    """The constant channels of a value [N, C, H, W] or [N, C].

    same: bool [C], whether a channel is constant.
    numbers: [C], the numbers of the constant channels.
    """

    same: np.ndarray
    numbers: np.ndarray


def drop_dead_channels(graph: Graph, context: Context) -> Graph:
    """Removes the constant channels that no reader needs."""
    if not any(op.kind in _CONVOLUTIONS and _dead_filters(op, _weights(graph, op)).any() for op in graph.ops):
        return graph
    constant: dict[str, _Channels] = {}
    for op in graph.ops:
        if (found := _constant_channels(graph, op, constant)) is not None:
            constant[op.outputs[0]] = found
    dropped = _droppable(graph, constant)
    return _without_channels(graph, constant, dropped) if any(mask.any() for mask in dropped.values()) else graph


def _weights(graph: Graph, op: Op) -> np.ndarray | None:
    """Returns the weights of a convolution, if they and its bias are constants; else None."""
    if op.epilogue is not None or any(name and name not in graph.constants for name in op.inputs[1:3]):
        return None
    return graph.constants[op.inputs[1]]


def _centred_weights(op: Op, w: np.ndarray) -> np.ndarray:
    """Returns the weights minus their zero point."""
    return w.astype(np.int64) - op.attrs.w_zero if op.kind == "conv2d_integer" else w.astype(np.float64)


def _dead_filters(op: Op, w: np.ndarray | None) -> np.ndarray:
    """Returns which filters are zeros, bool [C]."""
    zero = op.attrs.w_zero if op.kind == "conv2d_integer" else 0
    return np.zeros(0, bool) if w is None else (w == zero).reshape(w.shape[0], -1).all(1)


def _bias(graph: Graph, op: Op, channels: int) -> np.ndarray:
    """Returns the bias of a convolution or product as float64 or int64 [C]; zeros if it has none."""
    given = len(op.inputs) > 2 and op.inputs[2]
    dtype = np.float64 if op.kind == "conv2d" else np.int64
    return graph.constants[op.inputs[2]].astype(dtype) if given else np.zeros(channels, dtype)


def _is_depthwise(op: Op, w: np.ndarray) -> bool:
    """Returns whether each of several filters reads only the channel of the same index."""
    return op.attrs.groups == w.shape[0] > 1 and w.shape[1] == 1


def _equals_padding(op: Op, numbers: np.ndarray) -> np.ndarray:
    """Returns which constant channels are equal to the padding, or all if there are no pads; bool [C]. All windows of
    such a channel have the same elements."""
    padding = op.attrs.x_zero if op.kind == "conv2d_integer" else 0
    return numbers == padding if any(pad != 0 for pad in op.attrs.pads) else np.ones(numbers.shape, bool)


def _centred_numbers(op: Op, numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.int64) - op.attrs.x_zero if op.kind == "conv2d_integer" else numbers.astype(np.float64)


def _constant_channels(graph: Graph, op: Op, constant: dict[str, _Channels]) -> _Channels | None:
    """Returns the constant channels of an operator's result; None if there are none."""
    if op.epilogue is not None or len(op.outputs) != 1:
        return None
    y = graph.types[op.outputs[0]]
    if _is_flattened(graph, op):
        return constant.get(op.inputs[0])
    if y.rank != 4:
        return None
    if op.kind in _CONVOLUTIONS:
        w = _weights(graph, op)
        if w is None or not (_is_depthwise(op, w) or op.attrs.groups == 1):
            return None
        same, numbers = _dead_filters(op, w), _bias(graph, op, w.shape[0])
        x = constant.get(op.inputs[0])
        if _is_depthwise(op, w) and x is not None:
            stays_constant = x.same & _equals_padding(op, x.numbers)
            products = _centred_weights(op, w).sum((1, 2, 3)) * _centred_numbers(op, x.numbers)
            numbers = np.where(stays_constant, numbers + products, numbers)
            same = same | stays_constant
        return _Channels(same, numbers.astype(y.dtype))
    if op.kind == "max_pool" and op.inputs[0] in constant:
        return constant[op.inputs[0]]
    if op.kind == "sum_pool_integer" and op.inputs[0] in constant:
        return _pool_sums(op, graph.types[op.inputs[0]], constant[op.inputs[0]])
    operands = _operands(graph, op, constant)
    if operands is None or not isinstance(y.shape[_CHANNEL], int):
        return None
    same = np.ones(y.shape[_CHANNEL], bool)
    arrays = []
    for name, channels in operands:
        if channels is not None:
            same = same & channels.same
        arrays.append(graph.constants[name] if channels is None else channels.numbers.reshape(1, -1, 1, 1))
    (result,) = operator(op.kind).compute(op.attrs, *arrays)
    return _Channels(same, np.broadcast_to(result, (1, len(same), 1, 1)).reshape(-1))


def _is_flattened(graph: Graph, op: Op) -> bool:
    """Returns whether the operator reshapes [N, C, 1, 1] to [N, C]."""
    if op.kind != "reshape":
        return False
    x, y = graph.types[op.inputs[0]], graph.types[op.outputs[0]]
    return x.rank == 4 and x.shape == (*y.shape, 1, 1)


def _pool_sums(op: Op, x: TensorType, found: _Channels) -> _Channels | None:
    """Returns the constant channels of a sum pool: those whose sums are equal although windows at an edge may have
    fewer elements."""
    if not all(isinstance(extent, int) for extent in x.shape):
        return None
    numbers = found.numbers.astype(x.dtype).reshape(1, -1, 1, 1)
    (result,) = operator(op.kind).compute(op.attrs, np.broadcast_to(numbers, (1, *x.shape[1:])))
    first = result[:, :, :1, :1]
    return _Channels(found.same & (result == first).all((0, 2, 3)), first.reshape(-1))


def _is_product(graph: Graph, op: Op) -> bool:
    """Returns whether the operator is a product with a constant matrix and, if any, a constant bias."""
    return op.kind == "matmul_integer" and op.epilogue is None and not op.attrs.trans_a \
        and all(not name or name in graph.constants for name in op.inputs[1:]) \
        and graph.types[op.inputs[1]].rank == graph.types[op.inputs[0]].rank == 2


def _operands(graph: Graph, op: Op, constant: dict[str, _Channels]) -> list[tuple[str, _Channels | None]] | None:
    """Returns the operands of an elementwise operator with their constant channels (None for constants). Returns None
    for another operator, or if an operand has no constant channels."""
    if op.kind != "lookup" and operator(op.kind).expression(op.attrs) is None:
        return None
    y, found = graph.types[op.outputs[0]], []
    for index, name in enumerate(op.inputs):
        type_ = graph.types[name]
        if name in graph.constants:
            if op.kind != "lookup" and operand_class(type_, y, _CHANNEL) not in ("scalar", "channel"):
                return None
            found.append((name, None))
        elif type_.shape == y.shape and name in constant and (op.kind != "lookup" or index == 0):
            found.append((name, constant[name]))
        else:
            return None
    return found if any(channels is not None for _, channels in found) else None


def _droppable(graph: Graph, constant: dict[str, _Channels]) -> dict[str, np.ndarray]:
    """Returns value -> which of its channels can be removed, bool [C], because no reader needs them.

    It begins with all constant channels and removes those that an operator needs, until nothing changes.
    """
    dropped = {name: found.same.copy() for name, found in constant.items()}
    for name in graph.outputs:
        dropped.pop(name, None)
    changed = True
    while changed:
        before = sum(int(mask.sum()) for mask in dropped.values())
        for op in graph.ops:
            y, w = op.outputs[0], _weights(graph, op) if op.kind in _CONVOLUTIONS else None
            if w is not None and not _is_depthwise(op, w):
                if op.inputs[0] in dropped:
                    # A bias takes over the sums over a channel, which are equal at all positions; not with groups.
                    dropped[op.inputs[0]] &= (_equals_padding(op, constant[op.inputs[0]].numbers)
                                              & (op.attrs.groups == 1))
                continue
            if _is_product(graph, op):
                continue  # its bias takes over the sums of any removed column
            # An operator that works on each channel alone loses a channel in all of these values, or in none. Another
            # operator (`follows` is false) needs all channels.
            linked = [name for name in (*op.inputs, y) if name in graph.types and name not in graph.constants]
            follows = y in constant and (w is not None or op.kind in ("max_pool", "sum_pool_integer")
                                      or _is_flattened(graph, op) or _operands(graph, op, constant) is not None)
            if follows and all(name in dropped for name in linked):
                mask = np.logical_and.reduce([dropped[name] for name in linked])
            else:
                mask = np.zeros(1, bool)
            for name in linked:
                if name in dropped:
                    dropped[name] &= mask
        for mask in dropped.values():
            if mask.all():
                mask[0] = False  # a tensor keeps at least one channel
        changed = sum(int(mask.sum()) for mask in dropped.values()) != before
    return dropped


def _without_channels(graph: Graph, constant: dict[str, _Channels], dropped: dict[str, np.ndarray]) -> Graph:
    """Returns the graph without channels. dropped: value -> which of its channels are removed."""
    edit = Editor(graph)

    def stays(name: str) -> np.ndarray:
        return ~dropped[name]

    for name, mask in dropped.items():
        type_ = edit.types[name]
        edit.types[name] = TensorType(type_.dtype, (type_.shape[0], int((~mask).sum()), *type_.shape[2:]))
    for op in graph.ops:
        (y, *_), x = op.outputs, op.inputs[0] if op.inputs else ""
        drops = [name for name in (x, y) if name in dropped and dropped[name].any()]
        if op.kind in _CONVOLUTIONS and drops:
            edit.replace(op, _convolution_without(edit, op, constant, dropped))
        elif x in drops and _is_product(graph, op):
            edit.replace(op, _product_without(edit, op, constant[x], dropped[x]))
        elif y in drops and op.kind == "reshape":
            edit.replace(op, op.with_(attrs=Attrs(op.attrs, shape=edit.types[y].shape)))
        elif y in drops:
            inputs = []
            for name in op.inputs:
                if op.kind != "lookup" and name in graph.constants and number(graph.types[name].size) > 1:
                    axis = graph.types[name].rank - 3  # it broadcasts to [N, C, H, W]
                    name = edit.constant(f"{name}.kept", graph.constants[name].compress(stays(y), axis))
                inputs.append(name)
            edit.replace(op, op.with_(inputs=tuple(inputs)))
    return edit.finish()


def _convolution_without(edit: Editor, op: Op, constant: dict[str, _Channels], dropped: dict[str, np.ndarray]) -> Op:
    """Returns the convolution without the removed channels of its operand and its result. The bias takes over the sums
    of the operand's removed channels."""
    graph, (x, weight, *_), (y,) = edit.graph, op.inputs, op.outputs
    w = _weights(graph, op)
    assert w is not None
    live = ~dropped[y] if y in dropped else np.ones(w.shape[0], bool)
    bias, stored, attrs = _bias(graph, op, w.shape[0]), w, op.attrs
    if _is_depthwise(op, w):
        attrs = Attrs(attrs, groups=int(live.sum()))
    elif x in dropped:
        gone = dropped[x]
        sums = _centred_weights(op, w[:, gone]).sum((2, 3)) @ _centred_numbers(op, constant[x].numbers)[gone]
        bias, stored = bias + sums, stored[:, ~gone]
    dtype = np.int32 if op.kind == "conv2d_integer" else stored.dtype
    has_bias = (len(op.inputs) > 2 and op.inputs[2]) or bias.any()
    inputs = (x, edit.constant(f"{weight}.kept", np.ascontiguousarray(stored[live])),
              *([edit.constant(f"{y}.bias", bias[live].astype(dtype))] if has_bias else []))
    return op.with_(inputs=inputs, attrs=attrs)


def _product_without(edit: Editor, op: Op, constant: _Channels, gone: np.ndarray) -> Op:
    """Returns the product without the removed columns of its first operand. The bias takes over their sums."""
    graph, (x, weight, *_) = edit.graph, op.inputs
    stored, axis = graph.constants[weight], 1 if op.attrs.trans_b else 0
    lost = stored.compress(gone, axis).astype(np.int64) - op.attrs.b_zero
    centred = constant.numbers.astype(np.int64)[gone] - op.attrs.a_zero
    bias = _bias(graph, op, stored.shape[1 - axis]) + (lost @ centred if axis else centred @ lost)
    return op.with_(inputs=(x, edit.constant(f"{weight}.kept", np.ascontiguousarray(stored.compress(~gone, axis))),
                            edit.constant(f"{op.outputs[0]}.bias", bias.astype(np.int32))))
