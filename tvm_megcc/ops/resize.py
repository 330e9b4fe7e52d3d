# SPDX-License-Identifier: Apache-2.0
"""Images (and any tensor) brought to another size by nearest or linear interpolation along some axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import MegccError, ShapeError
from ..ir.graph import Attrs
from ..ir.types import TensorType
from .base import Case, OnnxNode, Operator, f32, register
from .resize_kernels import ResizeLinear, ResizeNearest
from .rules import axis_of

MODES = ("nearest", "linear")
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def source_coordinates(extent: int, result: int, scale: float, coordinates: str) -> np.ndarray:
    """Where on the operand's axis each element of the result's axis lies, float64[result]."""
    position = np.arange(result, dtype=np.float64)
    if coordinates == "asymmetric":
        return position / scale
    if coordinates == "align_corners":
        length = extent * scale
        return position * (extent - 1) / (length - 1) if result > 1 else np.zeros(result)
    if coordinates == "pytorch_half_pixel" and result == 1:
        return np.zeros(1)
    if coordinates == "half_pixel_symmetric":
        offset = extent / 2 * (1 - result / (extent * scale))
        return offset + (position + 0.5) / scale - 0.5
    return (position + 0.5) / scale - 0.5


def nearest_indices(extent: int, result: int, scale: float, coordinates: str, rounding: str) -> np.ndarray:
    """Index of the operand that each element of the result's axis is, int64[result]."""
    position = source_coordinates(extent, result, scale, coordinates)
    if rounding == "floor":
        index = np.floor(position)
    elif rounding == "ceil":
        index = np.ceil(position)
    elif rounding == "round_prefer_ceil":
        index = np.floor(position + 0.5)
    else:
        index = np.ceil(position - 0.5)
    return np.clip(index, 0, extent - 1).astype(np.int64)


def linear_weights(extent: int, result: int, scale: float, coordinates: str) -> tuple[np.ndarray, np.ndarray]:
    """The lower of the two indices each element lies between, int64[result], and the weight of the upper one,
    float32[result]. The upper index is the lower + 1, or the last."""
    position = np.clip(source_coordinates(extent, result, scale, coordinates), 0, extent - 1)
    lower = np.minimum(np.floor(position), max(extent - 2, 0))
    return lower.astype(np.int64), (position - lower).astype(np.float32)


def tables(extent: int, result: int, scale: float, mode: str, coordinates: str, rounding: str) -> list[np.ndarray]:
    """The operands of a resize that say, for each element of the result's axis, where it comes from."""
    if mode == "nearest":
        return [nearest_indices(extent, result, scale, coordinates, rounding).astype(np.int32)]
    lower, weight = linear_weights(extent, result, scale, coordinates)
    return [lower.astype(np.int32), weight]


def _case(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], mode: str,
          coordinates: str = "half_pixel", rounding: str = "floor") -> Case:
    operands = [table for axis, size in zip(axes, sizes, strict=True)
                for table in tables(shape[axis], size, size / shape[axis], mode, coordinates, rounding)]
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
    kernels = (ResizeNearest(), ResizeLinear())
    cases = (
        _case((1, 16, 3, 5), (2, 3), (6, 10), "nearest", "asymmetric"),
        _case((2, 5, 3, 4), (2, 3), (9, 8), "nearest", rounding="round_prefer_floor"),
        _case((1, 3, 5, 7), (2, 3), (3, 5), "nearest", rounding="round_prefer_ceil"),
        *(_case((1, 3, 4, 5), (2, 3), (7, 11), "linear", coordinates) for coordinates in COORDINATES),
        _case((1, 20, 6, 6), (2, 3), (3, 1), "linear", "align_corners"),
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
        sizes, scales = _target(node, [x.shape[axis] for axis in axes])
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
        if node.attr("antialias", 0):
            raise MegccError("antialias is not supported")
        kept = [(axis, size, scale) for axis, size, scale in zip(axes, sizes, scales, strict=True)
                if size != x.shape[axis] or scale != 1.0]
        value = node.inputs[0]
        if any(not isinstance(dim, int) for axis, size, _ in kept for dim in (x.shape[axis], size)):
            return (_repeated(node, value, kept, mode, coordinates, rounding),)
        while kept:
            pair = len(kept) > 1 and kept[1][0] == kept[0][0] + 1
            group, kept = kept[:1 + pair], kept[1 + pair:]
            operands = []
            for axis, size, scale in group:
                operands += tables(x.shape[axis], size, scale, mode, coordinates, rounding)
            (value,) = node.emit("resize", (value, *map(node.constant, operands)),
                                 axes=tuple(axis for axis, _, _ in group), mode=mode)
        return (value,)


def _repeated(node: OnnxNode, value: str, axes: Sequence[tuple], mode: str, coordinates: str, rounding: str) -> str:
    """Nearest neighbours of symbolic extents by whole scales: every element so many times."""
    shape, spread, repeated, result = node.type(0).shape, [], [], []
    scales = {axis: scale for axis, _, scale in axes}
    for axis, extent in enumerate(shape):
        scale = int(scales.get(axis, 1))
        whole = nearest_indices(8, 8 * scale, scale, coordinates, rounding) == np.arange(8 * scale) // scale
        if scale != scales.get(axis, 1) or mode != "nearest" or not whole.all():
            raise MegccError(f"resizes the symbolic extent {extent} in a way that needs its value; give the input "
                             "a shape")
        spread += [extent, 1]
        repeated += [extent, scale]
        result.append(extent * scale)
    (value,) = node.emit("reshape", (value,), shape=tuple(spread))
    (value,) = node.emit("expand", (value,), shape=tuple(repeated))
    return node.emit("reshape", (value,), shape=tuple(result))[0]


def _target(node: OnnxNode, extents: Sequence) -> tuple[list, list[float]]:
    """Sizes and scales of the axes, each from what the node gives."""
    sizes = None
    if node.op_type == "Upsample" and node.opset < 9:
        scales = node.attr("scales")
    elif node.op_type == "Upsample" or node.opset < 11:
        scales = node.const(1, "scales")
    else:
        scales, sizes = node.const(2, "scales"), node.dims(3, "sizes")
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
