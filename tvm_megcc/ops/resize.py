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
        return position * (extent - 1) / (result - 1) if result > 1 else np.zeros(result)
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


@register
class Resize(Operator):
    """Attributes: `axes` and, an entry each, `sizes` and `scales` (of coordinates); `mode`, `coordinates`, `rounding`.

    mode: "nearest" or "linear". coordinates: one of COORDINATES. rounding: one of NEAREST.
    """

    kind = "resize"
    relax = ("relax.image.resize2d",)
    relay = ("image.resize2d",)
    onnx = ("Resize", "Upsample")
    cases = (
        Case((f32(1, 16, 3, 5),), {"axes": (2, 3), "sizes": (6, 10), "scales": (2.0, 2.0), "mode": "nearest",
                                   "coordinates": "asymmetric", "rounding": "floor"}),
        Case((f32(2, 5, 3, 4),), {"axes": (2, 3), "sizes": (9, 8), "scales": (3.0, 2.0), "mode": "nearest",
                                  "coordinates": "half_pixel", "rounding": "round_prefer_floor"}),
        Case((f32(1, 3, 5, 7),), {"axes": (2, 3), "sizes": (3, 5), "scales": (3 / 5, 5 / 7), "mode": "nearest",
                                  "coordinates": "half_pixel", "rounding": "round_prefer_ceil"}),
        *(Case((f32(1, 3, 4, 5),), {"axes": (2, 3), "sizes": (7, 11), "scales": (7 / 4, 11 / 5), "mode": "linear",
                                    "coordinates": coordinates, "rounding": "floor"}) for coordinates in COORDINATES),
        Case((f32(1, 2, 6, 6),), {"axes": (2, 3), "sizes": (3, 1), "scales": (0.5, 1 / 6), "mode": "linear",
                                  "coordinates": "align_corners", "rounding": "floor"}),
        Case((f32(2, 9),), {"axes": (1,), "sizes": (13,), "scales": (13 / 9,), "mode": "linear",
                            "coordinates": "half_pixel", "rounding": "floor"}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        shape = list(x.shape)
        for axis, size in zip(attrs.axes, attrs.sizes, strict=True):
            shape[axis] = size
            if isinstance(size, int) and size < 1:
                raise ShapeError(f"size {size} of axis {axis}")
        return (TensorType(x.dtype, tuple(shape)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        for axis, size, scale in zip(attrs.axes, attrs.sizes, attrs.scales, strict=True):
            extent = x.shape[axis]
            if attrs.mode == "nearest":
                x = np.take(x, nearest_indices(extent, size, scale, attrs.coordinates, attrs.rounding), axis)
                continue
            lower, weight = linear_weights(extent, size, scale, attrs.coordinates)
            weight = weight.reshape([-1 if index == axis else 1 for index in range(x.ndim)])
            low, high = np.take(x, lower, axis), np.take(x, np.minimum(lower + 1, extent - 1), axis)
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
            coordinates, rounding = "half_pixel", "floor"
        for name, value, supported in (("mode", mode, MODES), ("coordinates", coordinates, COORDINATES),
                                       ("rounding", rounding, NEAREST)):
            if value not in supported:
                raise MegccError(f"{name} '{value}' is not supported; one of {', '.join(supported)}")
        if node.attr("antialias", 0):
            raise MegccError("antialias is not supported")
        kept = [(axis, size, scale) for axis, size, scale in zip(axes, sizes, scales, strict=True)
                if size != x.shape[axis] or scale != 1.0]
        if not kept:
            return node.inputs[:1]
        axes, sizes, scales = zip(*kept, strict=True)
        return node.emit("resize", node.inputs[:1], axes=axes, sizes=sizes, scales=scales, mode=mode,
                         coordinates=coordinates, rounding=rounding)


def _target(node: OnnxNode, extents: Sequence) -> tuple[list, list[float]]:
    """Sizes and scales of the axes, each from what the node gives."""
    where = {True: (None, 1, None), False: (2, None, 3)}[node.op_type == "Upsample" or node.opset < 11]
    if node.op_type == "Upsample" and node.opset < 9:
        scales, sizes = node.attr("scales"), None
    elif where[1] is not None:
        scales, sizes = node.const(1, "scales"), None
    else:
        scales, sizes = None, node.dims(3, "sizes")
        if not sizes:
            scales, sizes = node.const(2, "scales") if node.has(2) else None, None
            if node.opset == 11 and scales is None:
                scales = node.const(1, "scales")
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
    if not all(isinstance(dim, int) for dim in (*extents, *sizes)):
        changed = [(a, b) for a, b in zip(extents, sizes, strict=True) if a != b]
        if any(not isinstance(dim, int) for pair in changed for dim in pair):
            raise MegccError("resizes a symbolic extent; give the input a shape")
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    scales = [1.0 if size == extent else size / extent for size, extent in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        chosen = min(scales) if policy == "not_larger" else max(scales)
        scales = [chosen] * len(scales)
        sizes = [math.floor(extent * chosen + 0.5) for extent in extents]
    return sizes, scales
