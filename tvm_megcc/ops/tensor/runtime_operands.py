# SPDX-License-Identifier: Apache-2.0
"""Importer helpers for operands that are usually constant but are known only at run time: bounds of slices and ranges,
shapes, and pads with their axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..rules import END_OF_AXIS, axis_of, emit_arange


def slice_at_run_time(node: OnnxNode) -> str:
    """Emits ONNX's Slice with bounds that are known only at run time, and may count from the end, as a gather of a
    data-dependent number of elements. If the number of bounds is data-dependent too, a run with another number than 1
    fails."""
    value, type_ = node.inputs[0], node.type(0)
    operands = [node.type(index) for index in (1, 2, 3, 4) if node.has(index)]
    if any(operand.rank != 1 for operand in operands):
        raise ShapeError(f"starts {node.type(1)} for {type_}")
    count = next((operand.shape[0] for operand in operands if operand.is_static), 1)  # of sliced axes
    axes: list[int] | None = None  # None: known only at run time
    if not node.has(3):
        axes = list(range(count))
    elif node.is_const(3):
        axes = [int(axis) for axis in node.const(3).reshape(-1)]
    zero, one = (node.constant(np.array(n)) for n in (0, 1))

    def element_of(operand: int, element: int) -> str:
        """Emits an element of an operand, int64 []."""
        (elements,) = cast_to(node, node.inputs[operand], "int64")
        if node.type_of(elements).shape != (count,):
            (elements,) = node.emit("reshape", (elements,), shape=(count,))
        (element_1d,) = node.emit("slice", (elements,), axes=(0,), starts=(element,), ends=(element + 1,), steps=(1,))
        return node.emit("reshape", (element_1d,), shape=())[0]

    def element_for(operand: int, axis: int, default: str) -> str:
        """Emits the element of an operand that belongs to an axis, int64 []; the default if there is none."""
        if not node.has(operand):
            return default
        if axes is not None:
            return element_of(operand, axes.index(axis))
        value = default
        for element in range(count):
            hits = [node.emit("equal", (element_of(3, element), node.constant(np.array(number))))[0]
                    for number in (axis, axis - type_.rank)]
            value = node.emit("where", (*node.emit("logical_or", hits), element_of(operand, element), value))[0]
        return value

    axes = None if axes is None else [axis_of(axis, type_.rank) for axis in axes]
    for axis in range(type_.rank) if axes is None else axes:
        extent = node.extent(type_.shape[axis])
        step = element_for(4, axis, one)
        start, end = _clamped_bounds(node, element_for(1, axis, zero), element_for(2, axis, extent), step, extent)
        extent_of_slice = number_of_steps(node, start, end, step, type_.shape[axis])
        (steps,) = node.emit("mul", (emit_arange(node, extent_of_slice, "int64"), step))
        (value,) = node.emit("gather", (value, *node.emit("add", (steps, start))), axis=axis)
    return value


def _clamped_bounds(node: OnnxNode, start: str, end: str, step: str, extent: str) -> list[str]:
    """Emits the bounds of a slice as ONNX's Slice clamps them, int64 []: to [0, extent]; for a negative step `start` to
    [0, extent - 1] and `end` to [-1, extent - 1]. Negative bounds count from the end of the axis."""
    zero, one = (node.constant(np.array(n)) for n in (0, 1))
    (is_backwards,) = node.emit("less", (step, zero))
    (last,) = node.emit("sub", (extent, one))
    (lower,) = node.emit("where", (is_backwards, node.constant(np.array(-1)), zero))
    (upper,) = node.emit("where", (is_backwards, last, extent))
    bounds: list[str] = []
    for index, lower_bound in ((start, zero), (end, lower)):
        (bounded,) = node.emit("max", (index, node.constant(np.array(-END_OF_AXIS))))  # so that the sum fits int64
        (from_front,) = node.emit("add", (bounded, extent))
        (from_any,) = node.emit("where", (*node.emit("less", (index, zero)), from_front, index))
        bounds += node.emit("min", (*node.emit("max", (from_any, lower_bound)), upper))
    return bounds


def number_of_steps(node: OnnxNode, start: str, stop: str, step: str, limit: Dim | None) -> Dim:
    """Returns the number of elements of start, start + step, … before stop, as an extent. The values are of any dtype.

    limit: upper bound of the number, None for none.
    """
    (distance,) = node.emit("sub", (stop, start))
    (ratio,) = node.emit("div", tuple(cast_to(node, name, "float64")[0] for name in (distance, step)))
    (count,) = cast_to(node, node.emit("ceil", (ratio,))[0], "int64")
    return node.unbacked_extent(node.emit("max", (count, node.constant(np.array(0))))[0], limit)


def resolve_reshape_shape(node: OnnxNode) -> str:
    """Emits the shape of the result of ONNX's Reshape for a shape that is known only at run time, int64 [rank]: 0
    (without `allowzero`) copies an extent of the operand, -1 is inferred.

    Raises:
        ShapeError: if the rank of the result is not known.
    """
    operand, type_ = node.type(1), node.type(0)
    if not operand.is_static or operand.rank != 1:
        raise ShapeError(f"shape {operand}")
    zero, one, minus_one = (node.constant(np.array(number)) for number in (0, 1, -1))
    (shape,) = cast_to(node, node.inputs[1], "int64")
    if not node.attr("allowzero", 0):
        x_shape = [*type_.shape, *[0] * operand.size][:operand.size]  # of x, cut or filled with 0 to the same rank
        (x_shape,) = node.emit("dims", (), extents=tuple(x_shape), shape=(operand.size,), dtype="int64")
        (shape,) = node.emit("where", (*node.emit("equal", (shape, zero)), x_shape, shape))
    (is_inferred,) = node.emit("equal", (shape, minus_one))
    (known_size,) = node.emit("reduce_prod", node.emit("where", (is_inferred, one, shape)), axes=(0,), keepdims=False)
    (inferred,) = node.emit("div", (node.extent(type_.size), *node.emit("max", (known_size, one))))
    return node.emit("where", (is_inferred, inferred, shape))[0]


def resolve_expand_shape(node: OnnxNode) -> tuple[Dim, ...]:
    """Returns the operand `shape` of ONNX's Expand as extents. A run fails if an element that is known only at run time
    is neither 1 nor the value's extent, where that is not 1."""
    shape, x_shape = list(node.dims(1, "shape") or ()), node.type(0).shape
    # The extents of x on the axes of `shape`: both are aligned at the last axis.
    x_shape = (1,) * (len(shape) - len(x_shape)) + x_shape[max(len(x_shape) - len(shape), 0):]
    run_time_axes = [axis for axis, dim in enumerate(shape)
                     if not isinstance(dim, int) and x_shape[axis] not in (1, dim)]
    if node.is_known(1) or not run_time_axes:
        return tuple(shape)
    (operand,) = cast_to(node, node.inputs[1], "int64")
    (extents,) = node.emit("dims", (), extents=x_shape, shape=(len(shape),), dtype="int64")
    (result_extents,) = node.emit("where", (*node.emit("equal", (operand, node.constant(np.array(1)))), extents,
                                            operand))
    for axis in run_time_axes:
        shape[axis] = node.unbacked_extent(result_extents, x_shape[axis], axis,
                                           name=f"{shape[axis]}.expanded")
    return tuple(shape)


def pads_of_run_time_axes(node: OnnxNode) -> str:
    """Emits the pads before and after all axes, int64 [2 * rank], if it is known only at run time which axes they are
    for: the sum of the pads whose entry in operand `axes` is this axis."""
    rank, (count,) = node.type(0).rank, node.type(3).shape
    (axes,), (pads,) = (cast_to(node, node.inputs[index], "int64") for index in (3, 1))
    (back,) = emit_broadcast(node, "add", (axes, node.constant(np.array(rank))))
    (axes,) = node.emit("where", (*emit_broadcast(node, "less", (axes, node.constant(np.array(0)))), back, axes))
    (pads,) = node.emit("reshape", (pads,), shape=(2, 1, count))
    (hits,) = emit_broadcast(node, "equal", (axes, node.constant(np.arange(rank)[:, None])))
    (spread,) = node.emit("where", (hits, pads, node.constant(np.array(0))))
    (pads,) = node.emit("reduce_sum", (spread,), axes=(2,), keepdims=False)
    return node.emit("reshape", (pads,), shape=(2 * rank,))[0]


def read_pads(node: OnnxNode, value: str, axes: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Returns the numbers of elements that the pads of ONNX's Pad add, and those that they take away, before all axes
    and then after all of them. A pad that is known only at run time may do either.

    value: the pads, of any integer dtype, before and after each of `axes`.

    Raises:
        ShapeError: if their number is wrong.
    """
    removed: dict[int, str] = {}  # the value of max(-pads, 0), for each pad that is known only at run time

    def emit_added(indices: Collection[int]) -> str:
        """Emits max(pads, 0), whose elements become the extents of the pads `indices`, and max(-pads, 0) for `removed`.
        `resolve_dims` calls it once, with the pads that are known only at run time, if there are any."""
        zero = node.constant(np.array(0))
        (pads,) = cast_to(node, value, "int64")
        (crops,) = node.emit("max", (*node.emit("sub", (zero, pads)), zero))
        removed.update(dict.fromkeys(indices, crops))
        return node.emit("max", (pads, zero))[0]

    pads, shape = node.resolve_dims(value, limit=None, resolve=emit_added), node.type(0).shape
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"{len(pads)} pads for {len(axes)} axes")
    cropped: list[Dim] = []
    for index, pad in enumerate(pads):
        if isinstance(pad, int):
            cropped.append(max(-pad, 0))
        elif index in removed:
            extent = shape[axes[index % len(axes)]]
            cropped.append(node.unbacked_extent(removed[index], extent, index, name=f"{pad}.cropped"))
        else:
            cropped.append(0)
    return tuple(max(pad, 0) if isinstance(pad, int) else pad for pad in pads), tuple(cropped)
