# SPDX-License-Identifier: Apache-2.0
"""Resize: nearest, linear or cubic interpolation of a tensor along some axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, dim_min, limits
from ...ir.graph import Attrs
from ...ir.narrow import is_float
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..rules import axis_of
from ..tensor.move import emit_slice
from .interpolation import (
    COORDINATES,
    MODES,
    NEAREST,
    SIMPLE,
    Interpolation,
    nearest_indices,
    source_coordinates,
    tables,
)
from .resize_tables import CROP, ResizeTables

#: The largest integer scale for which nearest neighbours are repeated; larger ones use tables.
MOST_REPEATED = 16


def _case(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], mode: str,
          coordinates: str = "half_pixel", rounding: str = "floor") -> Case:
    operands = [table for axis, size in zip(axes, sizes, strict=True)
                for table in tables(source_coordinates(shape[axis], size, size / shape[axis], coordinates),
                                    shape[axis], mode, rounding)]
    return Case((f32(*shape), *((table.shape, table.dtype.name) for table in operands)),
                {"axes": axes, "mode": mode}, tuple(range(1, 1 + len(operands))), dict(enumerate(operands, 1)))


@register
class Resize(Operator):
    """Interpolation along attribute `axes` (one, or two neighbouring ones) by tables. Attribute `mode`: "nearest" or
    "linear".

    Operands: x, then for each axis the index of the (lower) neighbour of each element of the result, int32, and for
    linear the weight of the upper one, float32.
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
            first, second = np.take(x, lower, axis), np.take(x, np.minimum(lower + 1, x.shape[axis] - 1), axis)
            x = (first * (1 - weight) + second * weight).astype(x.dtype)
        return (x,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        interpolation, coordinates = _interpolation_of(node)
        resized_axes = [resized for resized in _axes_of(node, coordinates) if not resized.is_unchanged]
        if all(resized.repeats(interpolation, coordinates) for resized in resized_axes) \
                and not all(resized.known for resized in resized_axes):
            return (_repeated(node, node.inputs[0], resized_axes),)
        tables = [(resized.axis, _tables(node, resized, interpolation, coordinates)) for resized in resized_axes]
        outside = None
        if coordinates == CROP:
            outside = _outside(node, [(axis, table[-1]) for axis, table in tables])
            tables = [(axis, table[:-1]) for axis, table in tables]
        value = _in_float(node, interpolation, lambda value: _interpolated(node, value, tables, interpolation))
        return (_extrapolated(node, outside, value),)


@dataclass(frozen=True)
class _ResizedAxis:
    """An axis to resize.

    axis: its index.
    extent, size: its extents in operand and result.
    scale: size / extent before rounding; the name of a value, float64 [1], if it is known at run time only.
    region: start and end of the region of tf_crop_and_resize, as fractions of the axis; the name of a value, float64
        [2], if they are known at run time only.
    """

    axis: int
    extent: Dim
    size: Dim
    scale: float | str
    region: tuple[float, float] | str = (0.0, 1.0)

    @property
    def is_unchanged(self) -> bool:
        """Whether the axis stays unchanged."""
        same = self.size == self.extent and (self.scale == 1.0 or self.extent == 1)
        return same and self.region == (0.0, 1.0)

    @property
    def known(self) -> bool:
        """Whether the tables can be computed at compile time."""
        return not any(isinstance(part, str) for part in (self.scale, self.region)) \
            and isinstance(self.size, int) and isinstance(self.extent, int)

    def repeats(self, interpolation: Interpolation, coordinates: str) -> bool:
        """Whether each element is repeated equally often, whatever the extent."""
        if interpolation.mode != "nearest" or coordinates == CROP or isinstance(self.scale, str):
            return False
        scale = int(self.scale)
        if not 1 <= scale == self.scale <= MOST_REPEATED:
            return False
        position = source_coordinates(8, 8 * scale, scale, coordinates)
        return bool((nearest_indices(position, 8, interpolation.rounding) == np.arange(8 * scale) // scale).all())


def _interpolation_of(node: OnnxNode) -> tuple[Interpolation, str]:
    """Returns the interpolation of a node, and its coordinates."""
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    is_before_11 = node.op_type == "Upsample" or node.opset < 11
    coordinates = node.attr("coordinate_transformation_mode", "asymmetric" if is_before_11 else "half_pixel")
    rounding = node.attr("nearest_mode", SIMPLE if is_before_11 else "round_prefer_floor")
    if coordinates == "tf_half_pixel_for_nn":
        coordinates, rounding = "half_pixel", "round_prefer_ceil"  # floor((i + 0.5) / scale)
    for name, value, supported in (("mode", mode, MODES), ("coordinates", coordinates, COORDINATES),
                                   ("rounding", rounding, (*NEAREST, *(SIMPLE,) * is_before_11))):
        if value not in supported:
            raise MegccError(f"{name} '{value}' is not supported; one of {', '.join(supported)}")
    antialias, excludes = (bool(node.attr(name, 0)) for name in ("antialias", "exclude_outside"))
    if antialias and mode == "nearest":
        raise MegccError("antialias needs mode linear or cubic")
    cubic_a = float(node.attr("cubic_coeff_a", -0.75))
    if not math.isfinite(cubic_a):
        raise MegccError(f"cubic_coeff_a is {cubic_a}")
    return Interpolation(mode, rounding, cubic_a, excludes, antialias), coordinates


def _in_float(node: OnnxNode, interpolation: Interpolation, interpolate: Callable[[str], str]) -> str:
    """Interpolates in float32, and rounds to integers if the operand is of integers."""
    dtype = node.type(0).dtype
    if interpolation.mode == "nearest" or dtype == "float32":
        return interpolate(node.inputs[0])
    (value,) = cast_to(node, node.inputs[0], "float32")
    value = interpolate(value)
    if not is_float(dtype):
        (value,) = node.emit("round", (value,))
    return cast_to(node, value, dtype)[0]


def _tables(node: OnnxNode, resized: _ResizedAxis, interpolation: Interpolation, coordinates: str) -> tuple[str, ...]:
    """Returns the results of `ResizeTables` for an axis, as constants if everything is known."""
    node.require_budget(*(() if not resized.known else (resized.size,) if interpolation.by_tables else
                        (resized.size, interpolation.reach(max(resized.scale, 1e-9)))))
    scale = resized.scale if isinstance(resized.scale, str) else node.constant(np.array([resized.scale]))
    operands = (scale, node.extent(resized.extent))
    if coordinates == CROP:
        region = resized.region if isinstance(resized.region, str) else node.constant(np.array(resized.region))
        operands = (*operands, region)
    return ResizeTables.of(node, operands, interpolation, size=resized.size, coordinates=coordinates,
                           taps=0 if interpolation.by_tables else _taps(resized, interpolation))


def _taps(resized: _ResizedAxis, interpolation: Interpolation) -> Dim:
    """Returns the largest possible number of neighbours of an element on the axis."""
    if not isinstance(resized.scale, str):
        return dim_min(interpolation.reach(resized.scale), resized.extent)
    if not interpolation.antialias:
        return dim_min(interpolation.reach(1.0), resized.extent)
    if not isinstance(resized.size, int) or not isinstance(resized.extent, int):
        return resized.extent
    least = (resized.size - 0.5) / resized.extent if resized.size else 1.0  # the smallest scale that gives this size
    return min(interpolation.reach(least), resized.extent)


def _interpolated(node: OnnxNode, value: str, tables: list[tuple[int, tuple[str, ...]]],
                  interpolation: Interpolation) -> str:
    """Emits the resize of axes by their tables; two neighbouring axes at a time if it is nearest or linear."""
    if not interpolation.by_tables:
        for axis, operands in tables:
            (value,) = node.emit("resample", (value, *operands), axis=axis)
        return value
    rest = sorted(tables)
    while rest:
        pair = len(rest) > 1 and rest[1][0] == rest[0][0] + 1
        group, rest = rest[:1 + pair], rest[1 + pair:]
        (value,) = node.emit("resize", (value, *(table for _, operands in group for table in operands)),
                             axes=tuple(axis for axis, _ in group), mode=interpolation.mode)
    return value


def _outside(node: OnnxNode, tables: list[tuple[int, str]]) -> str | None:
    """Emits which elements of the result are outside of the operand along some axis."""
    rank, outside = node.type(0).rank, None
    for axis, value in tables:
        (size,) = node.type_of(value).shape
        (value,) = node.emit("reshape", (value,), shape=tuple(size if i == axis else 1 for i in range(rank)))
        outside = value if outside is None else emit_broadcast(node, "logical_or", (outside, value))[0]
    return outside


def _extrapolated(node: OnnxNode, outside: str | None, value: str) -> str:
    if outside is None or (node.is_constant(outside) and not node.constant_of(outside).any()):
        return value
    fill = np.array(node.attr("extrapolation_value", 0.0)).astype(np.dtype(node.type_of(value).dtype))
    return node.emit("where", (outside, node.constant(fill), value))[0]


def _repeated(node: OnnxNode, value: str, resized_axes: Sequence[_ResizedAxis]) -> str:
    """Resizes by integer scales with nearest neighbours: repeats every element."""
    spread, repeated, result = [], [], []
    scales = {resized.axis: int(resized.scale) for resized in resized_axes}
    for axis, extent in enumerate(node.type(0).shape):
        scale = scales.get(axis, 1)
        spread += [extent, 1]
        repeated += [extent, scale]
        result.append(extent * scale)
    (value,) = node.emit("reshape", (value,), shape=tuple(spread))
    (value,) = node.emit("expand", (value,), shape=tuple(repeated))
    return node.emit("reshape", (value,), shape=tuple(result))[0]


def _axes_of(node: OnnxNode, coordinates: str) -> list[_ResizedAxis]:
    """Returns the axes to resize, each with sizes and scale, from the node's sizes or scales."""
    x = node.type(0)
    axes = [axis_of(axis, x.rank) for axis in node.attr("axes", range(x.rank))]
    extents = [x.shape[axis] for axis in axes]
    is_before_11 = node.op_type == "Upsample" or node.opset < 11
    if not is_before_11 and node.has(3) and node.type(3).size:
        sizes, scales = _from_sizes(node, extents, axes)
    elif node.op_type == "Upsample" and node.opset < 9:
        sizes, scales = _from_scales(node, extents, axes, list(node.attr("scales")))
    else:
        sizes, scales = _from_scales(node, extents, axes, _scales(node, 1 if is_before_11 else 2, axes))
    regions: Sequence = [(0.0, 1.0)] * len(axes)
    if coordinates == CROP:
        if node.type(1) is None or node.type(1).shape != (2 * len(axes),):
            raise ShapeError(f"roi is {node.type(1)} for {len(axes)} axes")
        regions = _regions(node, len(axes))
    return [_ResizedAxis(*row) for row in zip(axes, extents, sizes, scales, regions, strict=True)]


def _regions(node: OnnxNode, count: int) -> list[tuple[float, float] | str]:
    if node.is_const(1):
        return [tuple(map(float, pair)) for pair in node.const(1).astype(np.float64).reshape(2, -1).T]
    (roi,) = cast_to(node, node.inputs[1], "float64")
    (pairs,) = node.emit("transpose", node.emit("reshape", (roi,), shape=(2, count)), perm=(1, 0))
    return [node.emit("reshape", (emit_slice(node, pairs, 0, i, i + 1),), shape=(2,))[0] for i in range(count)]


def _elements(node: OnnxNode, index: int, count: int, what: str) -> list[str]:
    """Emits the elements of a run-time operand, each as float64 [1]."""
    if node.type(index).shape != (count,):
        raise ShapeError(f"{what} {node.type(index)} for {count} axes")
    (value,) = cast_to(node, node.inputs[index], "float64")
    return [emit_slice(node, value, 0, i, i + 1) for i in range(count)]


def _scales(node: OnnxNode, index: int, axes: Sequence[int]) -> list:
    if not node.has(index) or node.is_const(index):
        scales = node.const(index, "scales")
        return [] if scales is None else [float(scale) for scale in scales.reshape(-1)]
    return _elements(node, index, len(axes), "scales")


def _from_scales(node: OnnxNode, extents: Sequence[Dim], axes: Sequence[int], scales: list) -> tuple[list[Dim], list]:
    """Returns sizes and scales. Sizes that are known only at run time are taken from the declared shape."""
    if len(scales) != len(extents):
        raise ShapeError(f"{len(scales)} scales for {len(extents)} axes")
    for scale in scales:
        if not isinstance(scale, str) and not 0 <= scale < math.inf:
            raise ShapeError(f"scales an axis by {scale}")
    sizes = [_scaled(node, *row) for row in zip(axes, extents, scales, strict=True)]
    return sizes, scales


def _scaled(node: OnnxNode, axis: int, extent: Dim, scale: float | str, rounding: float = 0.0) -> Dim:
    """Returns floor(extent * scale + rounding) of an axis or, if known at run time only, the declared extent."""
    if not isinstance(scale, str):
        if isinstance(extent, int):
            return math.floor(extent * scale + rounding)
        if scale == int(scale):
            return extent * int(scale)
    declared = node.declared()
    if declared is not None:
        return declared[axis]
    largest = limits(extent)[1]
    most = None if isinstance(scale, str) or largest is None else math.floor(largest * scale + rounding)
    length = _number(node, "mul", _real(node, extent), scale)
    if rounding:
        length = _number(node, "add", length, rounding)
    (size,) = cast_to(node, _number(node, "floor", length), "int64")
    return node.count(size, most)


def _real(node: OnnxNode, extent: Dim) -> str:
    """Emits an extent as float64 [1]."""
    (value,) = cast_to(node, node.extent(extent), "float64")
    return node.emit("reshape", (value,), shape=(1,))[0]


def _number(node: OnnxNode, kind: str, *operands: str | float) -> str:
    """Emits an operator on float64 [1]."""
    names = [operand if isinstance(operand, str) else node.constant(np.array([operand], np.float64))
             for operand in operands]
    return node.emit(kind, names)[0]


def _from_sizes(node: OnnxNode, extents: Sequence[Dim], axes: Sequence[int]) -> tuple[list[Dim], list]:
    """Returns sizes and scales. Sizes that are known only at run time are replaced by the declared shape; then scales
    are known too, unless the aspect ratio is kept."""
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and not (node.is_known(3) and all(isinstance(dim, int) for dim in extents)):
        ratios = [_number(node, "div", size, _real(node, extent)) for size, extent in
                  zip(_elements(node, 3, len(extents), "sizes"), extents, strict=True)]
        chosen = reduce(lambda a, b: _number(node, "min" if policy == "not_larger" else "max", a, b), ratios)
        return [_scaled(node, axis, extent, chosen, 0.5) for axis, extent in zip(axes, extents, strict=True)], \
            [chosen] * len(axes)
    stated = node.stated(3)
    sizes = list(node.dims(3, "sizes") if stated is None else (stated[axis] for axis in axes))
    if len(sizes) != len(extents):
        raise ShapeError(f"{len(sizes)} sizes for {len(extents)} axes")
    scales = [_ratio(node, size, extent) for size, extent in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        chosen = min(scales) if policy == "not_larger" else max(scales)
        scales = [chosen] * len(scales)
        sizes = [math.floor(extent * chosen + 0.5) for extent in extents]
    return sizes, scales


def _ratio(node: OnnxNode, size: Dim, extent: Dim) -> float | str:
    if isinstance(size, int) and isinstance(extent, int):
        return 1.0 if size == extent else size / max(extent, 1)
    for factor in range(1, MOST_REPEATED + 1):
        if size == extent * factor:
            return float(factor)
    return _number(node, "div", _real(node, size), _real(node, extent))
