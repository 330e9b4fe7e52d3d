# SPDX-License-Identifier: Apache-2.0
"""Images (and any tensor) brought to another size by nearest, linear or cubic interpolation along some axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import MegccError, ShapeError
from ..ir.dims import Dim
from ..ir.graph import Attrs
from ..ir.narrow import is_real
from ..ir.types import TensorType
from .base import Case, OnnxNode, Operator, f32, register
from .elementwise import cast_to
from .interpolation import (
    COORDINATES,
    MODES,
    NEAREST,
    Interpolation,
    nearest_indices,
    source_coordinates,
    tables,
)
from .move import emit_slice
from .resample import resampled
from .rules import axis_of


def _case(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], mode: str,
          coordinates: str = "half_pixel", rounding: str = "floor") -> Case:
    operands = [table for axis, size in zip(axes, sizes, strict=True)
                for table in tables(source_coordinates(shape[axis], size, size / shape[axis], coordinates),
                                    shape[axis], mode, rounding)]
    return Case((f32(*shape), *((table.shape, table.dtype.name) for table in operands)),
                {"axes": axes, "mode": mode}, tuple(range(1, 1 + len(operands))), dict(enumerate(operands, 1)))


@register
class Resize(Operator):
    """Attributes `axes` (one, or two neighbours) and `mode` ("nearest" or "linear").

    After x come, for each axis, the index of the (lower) neighbour of each element of the result as int32 and, for
    linear, the weight of the upper one as float32.
    """

    kind = "resize"
    operands = ("x", "table*")
    onnx = ("Resize", "Upsample")
    relax = ("relax.image.resize2d",)
    relay = ("image.resize2d",)
    cases = (
        _case((1, 16, 3, 5), (2, 3), (6, 10), "nearest", "asymmetric"),
        _case((2, 5, 3, 4), (2, 3), (9, 8), "nearest", rounding="round_prefer_floor"),
        _case((1, 3, 5, 7), (2, 3), (3, 5), "nearest", rounding="round_prefer_ceil"),
        *(_case((1, 3, 4, 5), (2, 3), (7, 11), "linear", coordinates) for coordinates in COORDINATES),
        _case((1, 20, 6, 6), (2, 3), (3, 1), "linear", "align_corners"),
        _case((1, 2, 3, 21), (2, 3), (5, 42), "linear"), _case((1, 1, 3, 90), (2, 3), (4, 35), "linear"),
        _case((2, 9), (1,), (13,), "linear"), _case((3, 4, 2), (1,), (7,), "nearest"))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, *operands: TensorType) -> tuple[TensorType, ...]:
        shape = list(x.shape)
        for axis, table in zip(attrs.axes, operands[::len(operands) // len(attrs.axes)], strict=True):
            shape[axis] = table.shape[0]
        return (TensorType(x.dtype, tuple(shape)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        given = iter(operands)
        for axis in attrs.axes:
            lower = next(given)
            if attrs.mode == "nearest":
                x = np.take(x, lower, axis)
                continue
            weight = next(given).reshape([-1 if index == axis else 1 for index in range(x.ndim)])
            low, high = np.take(x, lower, axis), np.take(x, np.minimum(lower + 1, x.shape[axis] - 1), axis)
            x = (low * (1 - weight) + high * weight).astype(x.dtype)
        return (x,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        x = node.type(0)
        axes = [axis_of(axis, x.rank) for axis in node.attr("axes", range(x.rank))]
        sizes, scales = _target(node, [x.shape[axis] for axis in axes], axes)
        how, coordinates = _how(node)
        rows = [_Axis(*row) for row in zip(axes, sizes, scales, strict=True)]
        if coordinates == "tf_crop_and_resize":
            return (_cropped(node, rows, how),)
        rows = [row for row in rows if row.size != x.shape[row.axis] or row.scale != 1.0]
        if any(not isinstance(dim, int) for row in rows for dim in (x.shape[row.axis], row.size)):
            return (_repeated(node, node.inputs[0], rows, how, coordinates),)
        positions = [_positions(node, row, coordinates) for row in rows]
        return (_in_float(node, how, lambda value: _interpolated(node, value, rows, positions, how)),)


@dataclass(frozen=True)
class _Axis:
    """An axis to resize: extent of the result, and the result's extent over the operand's before rounding."""

    axis: int
    size: Dim
    scale: float


def _positions(node: OnnxNode, row: _Axis, coordinates: str, roi: tuple[float, float] = (0.0, 1.0)) -> np.ndarray:
    """Where the elements of the result's axis lie on the operand's."""
    node.require_room(row.size)
    return source_coordinates(node.type(0).shape[row.axis], row.size, row.scale, coordinates, roi)


def _how(node: OnnxNode) -> tuple[Interpolation, str]:
    """How a node interpolates, and its coordinates."""
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    first = node.op_type == "Upsample" or node.opset < 11
    coordinates = node.attr("coordinate_transformation_mode", "asymmetric" if first else "half_pixel")
    rounding = node.attr("nearest_mode", "floor" if first else "round_prefer_floor")
    if coordinates == "tf_half_pixel_for_nn":
        coordinates, rounding = "half_pixel", "round_prefer_ceil"  # floor((i + 0.5) / scale)
    for name, value, supported in (("mode", mode, MODES), ("coordinates", coordinates, COORDINATES),
                                   ("rounding", rounding, NEAREST)):
        if value not in supported:
            raise MegccError(f"{name} '{value}' is not supported; one of {', '.join(supported)}")
    antialias, excludes = (bool(node.attr(name, 0)) for name in ("antialias", "exclude_outside"))
    if antialias and mode == "nearest":
        raise MegccError("antialias needs mode linear or cubic")
    return Interpolation(mode, rounding, node.attr("cubic_coeff_a", -0.75), excludes, antialias), coordinates


def _in_float(node: OnnxNode, how: Interpolation, interpolate: Callable[[str], str]) -> str:
    """Interpolates in float32; integers are rounded to."""
    dtype = node.type(0).dtype
    if how.mode == "nearest" or dtype == "float32":
        return interpolate(node.inputs[0])
    (value,) = cast_to(node, node.inputs[0], "float32")
    value = interpolate(value)
    if not is_real(dtype):
        (value,) = node.emit("round", (value,))
    return cast_to(node, value, dtype)[0]


def _interpolated(node: OnnxNode, value: str, rows: list[_Axis], positions: list[np.ndarray],
                  how: Interpolation) -> str:
    """The resize of axes of known extents, two neighbouring ones at a time where tables of neighbours do."""
    extents = node.type_of(value).shape
    if not how.by_tables:
        for row, position in zip(rows, positions, strict=True):
            node.require_room(row.size, how.reach(row.scale))
            value = resampled(node, value, row.axis, *how.windows(position, extents[row.axis], row.scale))
        return value
    rest = sorted(zip(rows, positions, strict=True), key=lambda pair: pair[0].axis)
    while rest:
        pair = len(rest) > 1 and rest[1][0].axis == rest[0][0].axis + 1
        group, rest = rest[:1 + pair], rest[1 + pair:]
        operands = [table for row, position in group
                    for table in tables(position, extents[row.axis], how.mode, how.rounding)]
        (value,) = node.emit("resize", (value, *map(node.constant, operands)),
                             axes=tuple(row.axis for row, _ in group), mode=how.mode)
    return value


def _cropped(node: OnnxNode, rows: list[_Axis], how: Interpolation) -> str:
    """tf_crop_and_resize: elements that come from beside the operand are `extrapolation_value`."""
    shape = node.type(0).shape
    if any(not isinstance(dim, int) for row in rows for dim in (shape[row.axis], row.size)):
        raise MegccError("tf_crop_and_resize of a symbolic extent; give the input a shape")
    if node.type(1) is None or node.type(1).shape != (2 * len(rows),):
        raise ShapeError(f"roi is {node.type(1)} for {len(rows)} axes")
    if not node.is_const(1):
        return crop_at_run_time(node, rows, how)
    roi = node.const(1).astype(np.float64).reshape(2, -1).T
    kept = [(row, tuple(part)) for row, part in zip(rows, roi, strict=True)
            if row.size != shape[row.axis] or tuple(part) != (0.0, 1.0)]
    rows = [row for row, _ in kept]
    positions = [_positions(node, row, "tf_crop_and_resize", part) for row, part in kept]
    value = _in_float(node, how, lambda value: _interpolated(node, value, rows, positions, how))
    node.require_room(*(row.size for row in rows))
    outside = np.zeros((1,) * len(shape), bool)
    for row, position in zip(rows, positions, strict=True):
        beside = (position < 0) | (position > shape[row.axis] - 1)
        outside = outside | beside.reshape([-1 if axis == row.axis else 1 for axis in range(len(shape))])
    if not outside.any():
        return value
    return _extrapolated(node, node.constant(outside), value)


def _extrapolated(node: OnnxNode, outside: str, value: str) -> str:
    fill = np.array(node.attr("extrapolation_value", 0.0)).astype(np.dtype(node.type_of(value).dtype))
    return node.emit("where", (outside, node.constant(fill), value))[0]


def crop_at_run_time(node: OnnxNode, rows: list[_Axis], how: Interpolation) -> str:
    """tf_crop_and_resize whose roi is an operand: the tables are computed from it."""
    if not how.by_tables:
        raise MegccError("a roi that is computed at run time needs mode nearest or linear, without exclude_outside and "
                         "antialias")
    shape, count = node.type(0).shape, len(rows)

    def op(kind: str, *operands: str | float) -> str:
        names = [node.constant(np.array(o, np.float32)) if isinstance(o, float) else o for o in operands]
        return node.emit(kind, names)[0]

    (roi,) = cast_to(node, node.inputs[1], "float32")
    resized: list[tuple[_Axis, list[str]]] = []
    beside: str | None = None
    for index, row in enumerate(rows):
        last = float(shape[row.axis] - 1)
        start, end = (emit_slice(node, roi, 0, i, i + 1) for i in (index, count + index))
        node.require_room(row.size)
        fraction = source_coordinates(2, row.size, row.size / 2, "tf_crop_and_resize").astype(np.float32)
        position = op("mul", op("add", start, op("mul", op("sub", end, start), node.constant(fraction))), last)
        shape_here = tuple(row.size if axis == row.axis else 1 for axis in range(len(shape)))
        (out,) = node.emit("reshape", (op("logical_or", op("less", position, 0.0), op("less", node.constant(
            np.array(last, np.float32)), position)),), shape=shape_here)
        beside = out if beside is None else op("logical_or", beside, out)
        position = op("min", op("max", position, 0.0), last)
        if how.mode == "nearest":
            shift = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(how.rounding, 0.0)
            kind = "floor" if how.rounding in ("floor", "round_prefer_ceil") else "ceil"
            tables_ = [*cast_to(node, op(kind, op("add", position, shift)), "int32")]
        else:
            lower = op("min", op("floor", position), float(max(shape[row.axis] - 2, 0)))
            tables_ = [*cast_to(node, lower, "int32"), op("sub", position, lower)]
        resized.append((row, tables_))

    def interpolate(value: str) -> str:
        for row, operands in resized:
            (value,) = node.emit("resize", (value, *operands), axes=(row.axis,), mode=how.mode)
        return value

    return _extrapolated(node, beside, _in_float(node, how, interpolate))


def _repeated(node: OnnxNode, value: str, rows: Sequence[_Axis], how: Interpolation, coordinates: str) -> str:
    """Nearest neighbours of symbolic extents by whole scales: every element so many times."""
    shape, spread, repeated, result = node.type(0).shape, [], [], []
    scales = {row.axis: row.scale for row in rows}
    for axis, extent in enumerate(shape):
        scale = int(scales.get(axis, 1))
        node.require_room(8 * scale)
        position = source_coordinates(8, 8 * scale, scale or 1, coordinates)
        whole = nearest_indices(position, 8, how.rounding) == np.arange(8 * scale) // (scale or 1)
        if scale < 1 or scale != scales.get(axis, 1) or how.mode != "nearest" or not whole.all():
            raise MegccError(f"resizes the symbolic extent {extent} in a way that needs its value; give the input "
                             "a shape")
        spread += [extent, 1]
        repeated += [extent, scale]
        result.append(extent * scale)
    (value,) = node.emit("reshape", (value,), shape=tuple(spread))
    (value,) = node.emit("expand", (value,), shape=tuple(repeated))
    return node.emit("reshape", (value,), shape=tuple(result))[0]


def _target(node: OnnxNode, extents: Sequence, axes: Sequence[int]) -> tuple[list, list[float]]:
    """Sizes and scales of the axes, each from what the node gives. Sizes that only the run knows are those of the shape
    that the model states, which leaves nothing open unless the ratio of sides is kept."""
    sizes = None
    if node.op_type == "Upsample" and node.opset < 9:
        scales = node.attr("scales")
    elif node.op_type == "Upsample" or node.opset < 11:
        scales = node.const(1, "scales")
    else:
        stretched = node.attr("keep_aspect_ratio_policy", "stretch") == "stretch"
        stated = node.stated(3) if stretched else None
        sizes = node.dims(3, "sizes") if stated is None else [stated[axis] for axis in axes]
        scales = node.const(2, "scales")
    if sizes:
        return _from_sizes(node, extents, list(sizes))
    if scales is None or len(scales) != len(extents):
        raise ShapeError(f"{0 if scales is None else len(scales)} scales for {len(extents)} axes")
    scales = [float(scale) for scale in scales]
    sizes = [_scaled(extent, scale) for extent, scale in zip(extents, scales, strict=True)]
    return sizes, scales


def _scaled(extent, scale: float):
    if isinstance(extent, int):
        return math.floor(extent * scale)
    if scale != int(scale):
        raise MegccError(f"scales a symbolic extent by {scale}; give the input a shape")
    return extent * int(scale)


def _from_sizes(node: OnnxNode, extents: Sequence, sizes: list) -> tuple[list, list[float]]:
    if len(sizes) != len(extents):
        raise ShapeError(f"{len(sizes)} sizes for {len(extents)} axes")
    if any(not isinstance(dim, int) for dim in (*extents, *sizes)):
        scales = [next((float(n) for n in range(1, 17) if size == extent * n), 0.0)
                  for size, extent in zip(sizes, extents, strict=True)]
        return sizes, scales
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    scales = [1.0 if size == extent else size / extent for size, extent in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        chosen = min(scales) if policy == "not_larger" else max(scales)
        scales = [chosen] * len(scales)
        sizes = [math.floor(extent * chosen + 0.5) for extent in extents]
    return sizes, scales
