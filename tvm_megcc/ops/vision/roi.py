# SPDX-License-Identifier: Apache-2.0
"""ONNX's RoiAlign and MaxRoiPool, with TVM's: they pool regions of images (RoI, region of interest) to one size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register

#: Coordinates, and the samples of a bin along an axis, are clamped to this; float32 holds all integers up to it.
MAX_COORDINATE = np.float32(2**24)


class _Roi(Operator):
    """The base of pools of regions. Attributes: `size` (h, w), that of each pooled region; `scale`: the factor from the
    regions' coordinates to pixels.

    columns: the number of columns of operand rois.
    """

    columns = 4

    @classmethod
    def infer(cls, attrs: Attrs, x: TensorType, rois: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4 or rois.rank != 2 or rois.shape[1] != cls.columns or len(attrs.size) != 2 or min(attrs.size) < 1:
            raise ShapeError(f"regions {rois} of {x} to size {attrs.size}")
        for extent in x.shape[2:]:
            require_at_most(1, extent, f"regions of an empty image {x}")
        return (TensorType(x.dtype, (rois.shape[0], x.shape[1], *attrs.size)),)


@register
class RoiAlign(_Roi):
    """ONNX's RoiAlign: the mean or maximum of bilinear samples in each bin of each region (He et al. 2017).

    Operands: x [N, C, H, W] of floats; rois of x's dtype [R, 4], the corners x1, y1, x2, y2; image int32 or int64 [R],
    the batch element of each region. Result: x's dtype, [R, C, h, w].

    Further attributes: `mode`: "avg" or "max"; `samples`: their number in a bin along each axis, 0 for as many as a bin
    has pixels; `half_pixel`: the centre of pixel i is i + 0.5; else it is i, and regions have at least the size of a
    pixel. Samples outside of the image are 0, and are counted. As in ONNX's reference, "max" is the maximum of the
    weighted neighbours, not of the samples.
    """

    kind = "roi_align"
    operands = ("x", "rois", "image")
    onnx = ("RoiAlign",)
    relax = ("relax.vision.roi_align",)
    relay = ("vision.roi_align",)

    @classmethod
    def infer(cls, attrs: Attrs, x: TensorType, rois: TensorType, image: TensorType) -> tuple[TensorType, ...]:
        why = f"images {image} of regions {rois}"
        if image.dtype not in ("int32", "int64"):
            raise ShapeError(why)
        require_shape(image.shape, rois.shape[:1], why)
        return super().infer(attrs, x, rois)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        return {2: (0, inputs[0].shape[0] - 1)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, rois: np.ndarray, image: np.ndarray) -> tuple[np.ndarray, ...]:
        spatial, regions = x.shape[2:], len(rois)
        offset = np.float32(0.5 if attrs.half_pixel else 0)
        corners = np.nan_to_num(rois.astype(np.float32) * np.float32(attrs.scale) - offset, nan=-MAX_COORDINATE)
        corners = np.clip(corners, -MAX_COORDINATE, MAX_COORDINATE)
        result = np.zeros((regions, x.shape[1], *attrs.size))
        for region in range(regions):
            start, stop = corners[region, 1::-1], corners[region, 3:1:-1]
            length = stop - start if attrs.half_pixel else np.maximum(stop - start, np.float32(1))
            samples = [[_samples(attrs, start[axis], length[axis], bin_, attrs.size[axis], spatial[axis])
                        for bin_ in range(attrs.size[axis])] for axis in range(2)]
            pixels = x[int(image[region])].astype(np.float64)
            for i, (rows, row_count) in enumerate(samples[0]):
                for j, (columns, column_count) in enumerate(samples[1]):
                    result[region, :, i, j] = _pool_bin(attrs.mode, pixels, rows, columns, row_count * column_count)
        return (result.astype(x.dtype),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        mode = node.attr("mode", "avg").lower()
        if mode not in ("avg", "max"):
            raise MegccError(f"mode '{mode}' is not supported")
        first = "half_pixel" if node.opset >= 16 else "output_half_pixel"
        return {"size": (node.attr("output_height", 1), node.attr("output_width", 1)), "mode": mode,
                "scale": node.attr("spatial_scale", 1.0), "samples": max(node.attr("sampling_ratio", 0), 0),
                "half_pixel": node.attr("coordinate_transformation_mode", first) == "half_pixel"}


def _pool_bin(mode: str, pixels: np.ndarray, rows: tuple, columns: tuple, count: int) -> np.ndarray:
    """Returns one pooled bin, [C]. rows, columns: the samples along each axis, as from `_samples`. count: the number of
    samples, including those outside of the image."""
    parts = [pixels[:, row_indices][:, :, column_indices] * np.multiply.outer(row_weights, column_weights)
             for row_indices, row_weights in zip(rows[:2], rows[2], strict=True)
             for column_indices, column_weights in zip(columns[:2], columns[2], strict=True)]
    if mode == "avg":
        return sum(parts).sum((1, 2)) / max(count, 1)
    inside_count = parts[0].shape[1] * parts[0].shape[2]
    return np.maximum.reduce(parts).max((1, 2), initial=-np.inf if inside_count == count and count else 0)


def _samples(attrs: Attrs, start: float, length: float, bin_: int, bins: int, extent: int) -> tuple[tuple, int]:
    """Returns the samples along one axis of a bin, computed in float32 as in the kernel: lower and upper neighbours of
    the samples in the image, their weights [2, samples], and the number of all samples."""
    size = np.float32(length) / np.float32(bins)
    count = attrs.samples or int(np.clip(np.ceil(size), 0, MAX_COORDINATE))
    first = np.float32(start) + np.float32(bin_) * size
    step = size / np.float32(count) if count else np.float32(1)
    # There may be 2^24 samples: only those in the image are computed, and 8 more at each end for errors of rounding.
    ends = sorted((edge - float(first)) / float(step) if step else 0.0 for edge in (-1, extent))
    indices = np.arange(max(min(ends[0] - 8, count), 0), max(min(ends[1] + 8, count), 0)) if step else np.arange(count)
    coordinates = first + (np.floor(indices).astype(np.float32) + np.float32(0.5)) * size / np.float32(max(count, 1))
    coordinates = np.clip(coordinates[(coordinates >= -1) & (coordinates <= extent)], 0, extent - 1)
    lower = coordinates.astype(np.int64)
    rest = (coordinates - lower).astype(np.float64)
    return (lower, np.minimum(lower + 1, extent - 1), np.stack([1 - rest, rest])), count


@register
class MaxRoiPool(_Roi):
    """ONNX's MaxRoiPool: the largest pixel of each bin of each region, whose borders are rounded to pixels; 0 for an
    empty bin. Borders are clamped to 2^24; NaN counts as the lowest one.

    Operands: x [N, C, H, W] of floats; rois of x's dtype [R, 5]: batch element, x1, y1, x2, y2. Result: x's dtype,
    [R, C, h, w].
    """

    kind = "roi_max_pool"
    operands = ("x", "rois")
    onnx = ("MaxRoiPool",)
    relax = ("relax.vision.roi_pool",)
    relay = ("vision.roi_pool",)
    columns = 5

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, rois: np.ndarray) -> tuple[np.ndarray, ...]:
        scaled = np.nan_to_num(rois[:, 1:].astype(np.float32) * np.float32(attrs.scale), nan=-MAX_COORDINATE)
        scaled = np.clip(scaled, -MAX_COORDINATE, MAX_COORDINATE)
        corners = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int64)
        result = np.zeros((len(rois), x.shape[1], *attrs.size), x.dtype)
        for region, (left, top, right, bottom) in enumerate(corners):
            ranges = []
            for first, last, bins, extent in ((top, bottom, attrs.size[0], x.shape[2]),
                                              (left, right, attrs.size[1], x.shape[3])):
                size = np.float32(max(last - first + 1, 1)) / np.float32(bins)
                edges = np.arange(bins + 1, dtype=np.float32) * size
                begins = np.clip(np.floor(edges[:-1]) + first, 0, extent).astype(int)
                ends = np.clip(np.ceil(edges[1:]) + first, 0, extent).astype(int)
                ranges.append(list(zip(begins, ends, strict=True)))
            for i, (h0, h1) in enumerate(ranges[0]):
                for j, (w0, w1) in enumerate(ranges[1]):
                    if h0 < h1 and w0 < w1:
                        result[region, :, i, j] = x[int(rois[region, 0]), :, h0:h1, w0:w1].max((1, 2))
        return (result,)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"size": tuple(node.attr("pooled_shape")), "scale": node.attr("spatial_scale", 1.0)}


_REGIONS = np.array([[0.5, 1, 6.2, 4.9], [-3, -2, 20, 9], [4, 3, 2, 2], [2, 2, 2.2, 2.1]])


def _align(x, size, dtype="int64", **attrs) -> Case:
    return Case((f32(*x), f32(4, 4), ((4,), dtype)),
                {"size": size, "scale": 1.0, "samples": 0, "half_pixel": True, "mode": "avg", **attrs},
                values={1: _REGIONS, 2: np.arange(4) % x[0]})


RoiAlign.cases = (
    _align((2, 5, 6, 7), (3, 2)),
    _align((1, 33, 5, 9), (2, 2), samples=3, scale=0.75, half_pixel=False, dtype="int32"),
    _align((2, 4, 6, 7), (2, 3), half_pixel=False, mode="max"),
    # Bins with more samples than the image has pixels, most of them outside of it.
    _align((2, 4, 3, 4), (1, 1), scale=5.0), _align((2, 4, 3, 4), (1, 2), scale=7.0, mode="max"),
)
MaxRoiPool.cases = tuple(
    Case((f32(*x), f32(4, 5)), {"size": size, "scale": scale},
         values={1: np.concatenate([np.arange(4)[:, None] % x[0], _REGIONS], 1)})
    for x, size, scale in (((2, 5, 6, 7), (3, 2), 1.0), ((1, 33, 9, 4), (2, 2), 0.625)))
