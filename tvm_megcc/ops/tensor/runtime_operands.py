# SPDX-License-Identifier: Apache-2.0
"""Decomposes operators for operands that are usually constant but are computed at run time here: bounds of slices and
ranges, shapes, and axes of pads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..rules import FAR, axis_of, ramp


def sliced_at_run_time(node: OnnxNode) -> str:
    """Emits a slice with run-time bounds, which may count from the end, as a gather of a data-dependent number of
    elements. If the number of bounds is data-dependent too, it must be 1; otherwise the run fails."""
    value, type_ = node.inputs[0], node.type(0)
    operands = [node.type(index) for index in (1, 2, 3, 4) if node.has(index)]
    if any(operand.rank != 1 for operand in operands):
        raise ShapeError(f"starts {node.type(1)} for {type_}")
    indices = next((operand.shape[0] for operand in operands if operand.is_static), 1)
    axes = list(range(indices)) if not node.has(3) else \
        [int(axis) for axis in node.const(3).reshape(-1)] if node.is_const(3) else None
    zero, one = (node.constant(np.array(n)) for n in (0, 1))

    def number(operand: int, element: int) -> str:
        (wide,) = cast_to(node, node.inputs[operand], "int64")
        if node.type_of(wide).shape != (indices,):
            (wide,) = node.emit("reshape", (wide,), shape=(indices,))
        (one,) = node.emit("slice", (wide,), axes=(0,), starts=(element,), ends=(element + 1,), steps=(1,))
        return node.emit("reshape", (one,), shape=())[0]

    def chosen(operand: int, axis: int, otherwise: str) -> str:
        """Emits the element of an operand that belongs to an axis; axes may be known at run time only."""
        if not node.has(operand):
            return otherwise
        if axes is not None:
            return number(operand, axes.index(axis))
        for element in range(indices):
            hits = [node.emit("equal", (number(3, element), node.constant(np.array(this))))[0]
                    for this in (axis, axis - type_.rank)]
            otherwise = node.emit("where", (*node.emit("logical_or", hits), number(operand, element), otherwise))[0]
        return otherwise

    axes = None if axes is None else [axis_of(axis, type_.rank) for axis in axes]
    for axis in range(type_.rank) if axes is None else axes:
        extent = node.extent(type_.shape[axis])
        step = chosen(4, axis, one)
        (back,) = node.emit("less", (step, zero))
        (last,) = node.emit("sub", (extent, one))
        (front,) = node.emit("where", (back, node.constant(np.array(-1)), zero))
        (most,) = node.emit("where", (back, last, extent))
        ends = []
        for operand, otherwise, least in ((1, zero, zero), (2, extent, front)):
            index = chosen(operand, axis, otherwise)
            (from_front,) = node.emit("add", node.emit("max", (index, node.constant(np.array(-FAR)))) + (extent,))
            (index,) = node.emit("where", (*node.emit("less", (index, zero)), from_front, index))
            ends += node.emit("min", (*node.emit("max", (index, least)), most))
        start, end = ends
        count = counted_steps(node, start, end, step, type_.shape[axis])
        (steps,) = node.emit("mul", (ramp(node, count, "int64"), step))
        (value,) = node.emit("gather", (value, *node.emit("add", (steps, start))), axis=axis)
    return value


def counted_steps(node: OnnxNode, start: str, limit: str, step: str, most: Dim | None) -> Dim:
    """Returns the number of elements of start, start + step, … before the limit, as an extent, for any dtype."""
    (distance,) = node.emit("sub", (limit, start))
    (ratio,) = node.emit("div", tuple(cast_to(node, name, "float64")[0] for name in (distance, step)))
    (count,) = cast_to(node, node.emit("ceil", (ratio,))[0], "int64")
    return node.count(node.emit("max", (count, node.constant(np.array(0))))[0], most)


def shape_meant(node: OnnxNode) -> str:
    """Emits the shape of a Reshape's result, int64: 0 (without `allowzero`) copies an extent of the operand, -1 is
    inferred."""
    given, type_ = node.type(1), node.type(0)
    if not given.is_static or given.rank != 1:
        raise ShapeError(f"shape {given}")
    zero, one, minus = (node.constant(np.array(number)) for number in (0, 1, -1))
    (shape,) = cast_to(node, node.inputs[1], "int64")
    if not node.attr("allowzero", 0):
        x_shape = [*type_.shape, *[0] * given.size][:given.size]
        (x_shape,) = node.emit("dims", (), extents=tuple(x_shape), shape=(given.size,), dtype="int64")
        (shape,) = node.emit("where", (*node.emit("equal", (shape, zero)), x_shape, shape))
    (left_over,) = node.emit("equal", (shape, minus))
    (stated,) = node.emit("reduce_prod", node.emit("where", (left_over, one, shape)), axes=(0,), keepdims=False)
    (rest,) = node.emit("div", (node.extent(type_.size), *node.emit("max", (stated, one))))
    return node.emit("where", (left_over, rest, shape))[0]


def shape_expanded_to(node: OnnxNode) -> tuple[Dim, ...]:
    """Returns the operand `shape` of an Expand as extents. A run-time element must be 1 or the value's extent, unless
    that is 1; otherwise the run fails."""
    shape, x_shape = list(node.dims(1, "shape") or ()), node.type(0).shape
    x_shape = (1,) * (len(shape) - len(x_shape)) + x_shape[max(len(x_shape) - len(shape), 0):]
    read = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int) and x_shape[axis] not in (1, dim)]
    if node.is_known(1) or not read:
        return tuple(shape)
    (given,) = cast_to(node, node.inputs[1], "int64")
    (extents,) = node.emit("dims", (), extents=x_shape, shape=(len(shape),), dtype="int64")
    (meant,) = node.emit("where", (*node.emit("equal", (given, node.constant(np.array(1)))), extents, given))
    for axis in read:
        shape[axis] = node.count(meant, x_shape[axis], axis, f"{shape[axis]}.expanded")
    return tuple(shape)


def pads_of_run_time_axes(node: OnnxNode) -> str:
    """Emits the pads before and after all axes, if it is known only at run time which axes they are for."""
    rank, (named,) = node.type(0).rank, node.type(3).shape
    (axes,), (pads,) = (cast_to(node, node.inputs[index], "int64") for index in (3, 1))
    (back,) = emit_broadcast(node, "add", (axes, node.constant(np.array(rank))))
    (axes,) = node.emit("where", (*emit_broadcast(node, "less", (axes, node.constant(np.array(0)))), back, axes))
    (pads,) = node.emit("reshape", (pads,), shape=(2, 1, named))
    (hits,) = emit_broadcast(node, "equal", (axes, node.constant(np.arange(rank)[:, None])))
    (spread,) = node.emit("where", (hits, pads, node.constant(np.array(0))))
    (pads,) = node.emit("reduce_sum", (spread,), axes=(2,), keepdims=False)
    return node.emit("reshape", (pads,), shape=(2 * rank,))[0]


def read_pads(node: OnnxNode, value: str, axes: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Returns the numbers of elements that pads add and that they crop, before each axis and then after it. A run-time
    pad may do either."""
    read: dict[int, str] = {}

    def added(indices: Collection[int]) -> str:
        zero = node.constant(np.array(0))
        (pads,) = cast_to(node, value, "int64")
        read.update(dict.fromkeys(indices, *node.emit("max", (*node.emit("sub", (zero, pads)), zero))))
        return node.emit("max", (pads, zero))[0]
    pads, shape = node.resolved(value, None, added), node.type(0).shape
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"{len(pads)} pads for {len(axes)} axes")
    cropped: list[Dim] = []
    for index, pad in enumerate(pads):
        cropped.append(max(-pad, 0) if isinstance(pad, int) else 0 if index not in read else
                       node.count(read[index], shape[axes[index % len(axes)]], index, f"{pad}.cropped"))
    return tuple(max(pad, 0) if isinstance(pad, int) else pad for pad in pads), tuple(cropped)
