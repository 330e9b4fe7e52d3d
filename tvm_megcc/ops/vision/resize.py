# SPDX-License-Identifier: Apache-2.0
"""The operator `resize` (nearest and linear interpolation by tables), and the importer of ONNX's Resize and Upsample,
which emits it, or a `resample` for cubic and antialiased interpolation.

The tables are constants if scales and extents are known; else the operator `resize_tables` computes them in the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, dim_min
from ...ir.extent_bounds import limits
from ...ir.graph import Attrs
from ...ir.narrow import is_float
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..rules import axis_of
from ..tensor.move import emit_slice
from .interpolation import (
    COORDINATES,
    LEGACY_ROUNDING,
    MODES,
    NEAREST,
    Interpolation,
    axis_tables,
    nearest_indices,
    source_coordinates,
)
from .resize_tables import CROP, ResizeTables

#: The largest integer scale for which nearest neighbours are repeated; larger ones use tables.
MAX_REPEAT_SCALE = 16


def _case(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], mode: str,
          coordinates: str = "half_pixel", rounding: str = "floor") -> Case:
    operands = [table for axis, size in zip(axes, sizes, strict=True)
                for table in axis_tables(source_coordinates(shape[axis], size, size / shape[axis], coordinates),
                                    shape[axis], mode, rounding)]
    return Case((f32(*shape), *((table.shape, table.dtype.name) for table in operands)),
                {"axes": axes, "mode": mode}, tuple(range(1, 1 + len(operands))), dict(enumerate(operands, 1)))


@register
class Resize(Operator):
    """Nearest or linear interpolation along one axis, or two neighbouring ones, by tables, for ONNX's Resize and
    Upsample, relax.image.resize2d and Relay's image.resize2d.

    Operands: x; then for each axis the index of the nearest or lower neighbour of each element of the result, int32
    [extent of the result], and for linear the weight of the upper one, float32. Result: x's dtype. Attributes: `axes`;
    `mode`, "nearest" or "linear".
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
        _case((1, 2, 3, 13), (2, 3), (6, 26), "nearest", "asymmetric"), _case((2, 3, 21), (2,), (70,), "nearest"),
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
        remaining = iter(operands)
        for axis in attrs.axes:
            lower = next(remaining)
            if attrs.mode == "nearest":
                x = np.take(x, lower, axis)
                continue
            weight = next(remaining).reshape([-1 if index == axis else 1 for index in range(x.ndim)])
            first, second = np.take(x, lower, axis), np.take(x, np.minimum(lower + 1, x.shape[axis] - 1), axis)
            x = (first * (1 - weight) + second * weight).astype(x.dtype)
        return (x,)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        interpolation, coordinates = _interpolation_of(node)
        resized_axes = [resized for resized in _axes_of(node, coordinates) if not resized.is_unchanged]
        # Where everything is known, the tables are constants and one `resize` is enough.
        if all(resized.repeats(interpolation, coordinates) for resized in resized_axes) \
                and not all(resized.is_known for resized in resized_axes):
            return (_repeat_elements(node, node.inputs[0], resized_axes),)
        tables = [(resized.axis, _emit_tables(node, resized, interpolation, coordinates)) for resized in resized_axes]
        outside = None
        if coordinates == CROP:
            outside = _emit_outside_mask(node, [(axis, table[-1]) for axis, table in tables])
            tables = [(axis, table[:-1]) for axis, table in tables]
        value = _interpolate_in_float(node, interpolation,
                                      lambda value: _emit_resize(node, value, tables, interpolation))
        return (_extrapolate(node, outside, value),)


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
        """Returns whether the axis stays unchanged."""
        same = self.size == self.extent and (self.scale == 1.0 or self.extent == 1)
        return same and self.region == (0.0, 1.0)

    @property
    def is_known(self) -> bool:
        """Returns whether the tables can be computed at compile time."""
        return not any(isinstance(part, str) for part in (self.scale, self.region)) \
            and isinstance(self.size, int) and isinstance(self.extent, int)

    def repeats(self, interpolation: Interpolation, coordinates: str) -> bool:
        """Returns whether each element is repeated equally often, whatever the extent."""
        if interpolation.mode != "nearest" or coordinates == CROP or isinstance(self.scale, str):
            return False
        scale = int(self.scale)
        if not 1 <= scale == self.scale <= MAX_REPEAT_SCALE:
            return False
        # 8 stands for every extent. The results of one element lie alike in each element; with align_corners they do
        # not, but there an extent of 8 repeats only for scales of 1 and 2, and then so does every other extent.
        extent = 8
        position = source_coordinates(extent, extent * scale, scale, coordinates)
        indices = nearest_indices(position, extent, interpolation.rounding)
        return bool((indices == np.arange(extent * scale) // scale).all())


def _interpolation_of(node: OnnxNode) -> tuple[Interpolation, str]:
    """Returns the interpolation of a node, and its coordinates, one of COORDINATES.

    Raises:
        MegccError: for attributes that are not supported.
    """
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    is_before_11 = node.op_type == "Upsample" or node.opset < 11
    coordinates = node.attr("coordinate_transformation_mode", "asymmetric" if is_before_11 else "half_pixel")
    rounding = node.attr("nearest_mode", LEGACY_ROUNDING if is_before_11 else "round_prefer_floor")
    if coordinates == "tf_half_pixel_for_nn":
        coordinates, rounding = "half_pixel", "round_prefer_ceil"  # floor((i + 0.5) / scale)
    for name, value, supported in (("mode", mode, MODES), ("coordinates", coordinates, COORDINATES),
                                   ("rounding", rounding, (*NEAREST, *(LEGACY_ROUNDING,) * is_before_11))):
        if value not in supported:
            raise MegccError(f"{name} '{value}' is not supported; one of {', '.join(supported)}")
    antialias, excludes = (bool(node.attr(name, 0)) for name in ("antialias", "exclude_outside"))
    if antialias and mode == "nearest":
        raise MegccError("antialias needs mode linear or cubic")
    cubic_a = float(node.attr("cubic_coeff_a", -0.75))
    if not math.isfinite(cubic_a):
        raise MegccError(f"cubic_coeff_a is {cubic_a}")
    return Interpolation(mode, rounding, cubic_a, excludes, antialias), coordinates


def _interpolate_in_float(node: OnnxNode, interpolation: Interpolation, interpolate: Callable[[str], str]) -> str:
    """Emits an interpolation of the node's operand, computed in float32 unless it is nearest; results of integers are
    rounded. interpolate: emits the interpolation of a value."""
    dtype = node.type(0).dtype
    if interpolation.mode == "nearest" or dtype == "float32":
        return interpolate(node.inputs[0])
    (value,) = cast_to(node, node.inputs[0], "float32")
    value = interpolate(value)
    if not is_float(dtype):
        (value,) = node.emit("round", (value,))
    return cast_to(node, value, dtype)[0]


def _emit_tables(node: OnnxNode, resized: _ResizedAxis, interpolation: Interpolation,
                 coordinates: str) -> tuple[str, ...]:
    """Emits the results of `ResizeTables` for an axis; they are constants if everything is known."""
    if resized.is_known:
        # The tables are computed at import, so their size is limited.
        neighbours = (interpolation.neighbour_count(resized.scale),) if interpolation.has_windows else ()
        node.require_budget(resized.size, *neighbours)
    scale = resized.scale if isinstance(resized.scale, str) else node.constant(np.array([resized.scale]))
    operands = (scale, node.extent(resized.extent))
    if coordinates == CROP:
        region = resized.region if isinstance(resized.region, str) else node.constant(np.array(resized.region))
        operands = (*operands, region)
    return ResizeTables.of(node, operands, interpolation, size=resized.size, coordinates=coordinates,
                           taps=_max_taps(resized, interpolation) if interpolation.has_windows else 0)


def _max_taps(resized: _ResizedAxis, interpolation: Interpolation) -> Dim:
    """Returns the largest possible number of neighbours of an element on the axis."""
    if not isinstance(resized.scale, str):
        return dim_min(interpolation.neighbour_count(resized.scale), resized.extent)
    if not interpolation.antialias:
        return dim_min(interpolation.neighbour_count(1.0), resized.extent)  # which is the same for every scale
    if not isinstance(resized.size, int) or not isinstance(resized.extent, int):
        return resized.extent
    # The smallest scale that gives this size: it is extent * scale, rounded down or, with keep_aspect_ratio_policy, to
    # the nearest.
    least = (resized.size - 0.5) / resized.extent if resized.size else 1.0
    return min(interpolation.neighbour_count(least), resized.extent)


def _emit_resize(node: OnnxNode, value: str, tables: list[tuple[int, tuple[str, ...]]],
                 interpolation: Interpolation) -> str:
    """Emits the interpolation of a value along axes, given with their tables; two neighbouring axes at a time with
    `resize`."""
    if interpolation.has_windows:
        for axis, operands in tables:
            (value,) = node.emit("resample", (value, *operands), axis=axis)
        return value
    rest = sorted(tables)
    while rest:
        are_neighbours = len(rest) > 1 and rest[1][0] == rest[0][0] + 1
        count = 2 if are_neighbours else 1
        group, rest = rest[:count], rest[count:]
        (value,) = node.emit("resize", (value, *(table for _, operands in group for table in operands)),
                             axes=tuple(axis for axis, _ in group), mode=interpolation.mode)
    return value


def _emit_outside_mask(node: OnnxNode, tables: list[tuple[int, str]]) -> str | None:
    """Emits which elements of the result are outside of the operand along some axis, bool, for axes with their bool
    tables; None without axes."""
    rank, outside = node.type(0).rank, None
    for axis, value in tables:
        (size,) = node.type_of(value).shape
        (value,) = node.emit("reshape", (value,), shape=tuple(size if i == axis else 1 for i in range(rank)))
        outside = value if outside is None else emit_broadcast(node, "logical_or", (outside, value))[0]
    return outside


def _extrapolate(node: OnnxNode, outside: str | None, value: str) -> str:
    """Emits attribute extrapolation_value for elements that are outside of the operand, else the value."""
    if outside is None or (node.is_constant(outside) and not node.constant_of(outside).any()):
        return value
    fill = np.array(node.attr("extrapolation_value", 0.0)).astype(np.dtype(node.type_of(value).dtype))
    return node.emit("where", (outside, node.constant(fill), value))[0]


def _repeat_elements(node: OnnxNode, value: str, resized_axes: Sequence[_ResizedAxis]) -> str:
    """Emits a nearest interpolation by integer scales, which repeats every element: each axis gets an axis of extent 1
    after it, which is broadcast to the scale and merged with it."""
    split_shape, repeated_shape, shape = [], [], []
    scales = {resized.axis: int(resized.scale) for resized in resized_axes}
    for axis, extent in enumerate(node.type(0).shape):
        scale = scales.get(axis, 1)
        split_shape += [extent, 1]
        repeated_shape += [extent, scale]
        shape.append(extent * scale)
    (value,) = node.emit("reshape", (value,), shape=tuple(split_shape))
    (value,) = node.emit("expand", (value,), shape=tuple(repeated_shape))
    return node.emit("reshape", (value,), shape=tuple(shape))[0]


def _axes_of(node: OnnxNode, coordinates: str) -> list[_ResizedAxis]:
    """Returns the axes that a node resizes, from its operand or attribute `sizes` or `scales`.

    Raises:
        ShapeError: if these contradict the operand.
    """
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
    """Returns the region of each axis from the operand `roi`, as in `_ResizedAxis`."""
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
    """Returns the scales in operand `index`: numbers or, if known at run time only, names of values, float64 [1]."""
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
    sizes = [_scaled_extent(node, *row) for row in zip(axes, extents, scales, strict=True)]
    return sizes, scales


def _scaled_extent(node: OnnxNode, axis: int, extent: Dim, scale: float | str, rounding: float = 0.0) -> Dim:
    """Returns floor(extent * scale + rounding) of an axis or, if known at run time only, the declared extent."""
    if not isinstance(scale, str):
        if isinstance(extent, int):
            return math.floor(extent * scale + rounding)
        if scale == int(scale):
            return extent * int(scale)
    declared = node.declared_shape()
    if declared is not None:
        return declared[axis]
    largest = limits(extent)[1]
    limit = None if isinstance(scale, str) or largest is None else math.floor(largest * scale + rounding)
    length = _emit_scalar(node, "mul", _float_extent(node, extent), scale)
    if rounding:
        length = _emit_scalar(node, "add", length, rounding)
    (size,) = cast_to(node, _emit_scalar(node, "floor", length), "int64")
    return node.unbacked_extent(size, limit)


def _float_extent(node: OnnxNode, extent: Dim) -> str:
    """Emits an extent as float64 [1]."""
    (value,) = cast_to(node, node.extent(extent), "float64")
    return node.emit("reshape", (value,), shape=(1,))[0]


def _emit_scalar(node: OnnxNode, kind: str, *operands: str | float) -> str:
    """Emits the operator `kind` on values float64 [1] and numbers."""
    names = [operand if isinstance(operand, str) else node.constant(np.array([operand], np.float64))
             for operand in operands]
    return node.emit(kind, names)[0]


def _from_sizes(node: OnnxNode, extents: Sequence[Dim], axes: Sequence[int]) -> tuple[list[Dim], list]:
    """Returns the sizes of the axes, and their scales (values for those that are known only at run time), from the
    operand `sizes`. Sizes that are known only at run time are replaced by the declared shape, if there is one; then the
    scales are known too, unless the aspect ratio is kept."""
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and not (node.is_known(3) and all(isinstance(dim, int) for dim in extents)):
        ratios = [_emit_scalar(node, "div", size, _float_extent(node, extent)) for size, extent in
                  zip(_elements(node, 3, len(extents), "sizes"), extents, strict=True)]
        scale = reduce(lambda a, b: _emit_scalar(node, "min" if policy == "not_larger" else "max", a, b), ratios)
        return [_scaled_extent(node, axis, extent, scale, 0.5) for axis, extent in zip(axes, extents, strict=True)], \
            [scale] * len(axes)
    declared = node.declared_if_unknown(3)
    sizes = list(node.dims(3, "sizes") if declared is None else (declared[axis] for axis in axes))
    if len(sizes) != len(extents):
        raise ShapeError(f"{len(sizes)} sizes for {len(extents)} axes")
    scales = [_ratio(node, size, extent) for size, extent in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(scales)
        sizes = [math.floor(extent * scale + 0.5) for extent in extents]
    return sizes, scales


def _ratio(node: OnnxNode, size: Dim, extent: Dim) -> float | str:
    """Returns size / extent; the value of it, float64 [1], if it is known only at run time."""
    if isinstance(size, int) and isinstance(extent, int):
        return 1.0 if size == extent else size / max(extent, 1)
    for factor in range(1, MAX_REPEAT_SCALE + 1):
        if size == extent * factor:
            return float(factor)
    return _emit_scalar(node, "div", _float_extent(node, size), _float_extent(node, extent))
