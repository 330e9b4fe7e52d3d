# SPDX-License-Identifier: Apache-2.0
"""ONNX's GridSample, relax.image.grid_sample: samples images or volumes at the coordinates of a grid."""

from __future__ import annotations

import math

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register

#: ONNX's modes, and ours.
MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
PADDINGS = ("zeros", "border", "reflection")
#: Positions are clamped to this distance from the origin, in elements; float32 holds all integers up to it.
MAX_POSITION = 2.0**24
#: The parameter of the cubic convolution kernel (Keys 1981, as in vision/interpolation.py), which ONNX fixes.
CUBIC_A = -0.75


@register
class GridSample(Operator):
    """y[n, c, p] = x[n, c] at the position grid[n, p], interpolated.

    Operands: x [N, C, H, W] or [N, C, D, H, W] of floats; grid, of x's dtype, [N, …, 2 or 3], coordinates from -1 to 1
    along each axis, that of W first. Result: [N, C, …] with the grid's axes.

    Attributes: `mode`: "nearest", "linear" or "cubic"; `padding`: the values outside of x: "zeros", "border" or
    "reflection"; `align`: -1 and 1 are the centres of the first and the last element, else their outer edges.

    With "border", a position outside of x is clamped to the border. Cubic weights are those of the unclamped position,
    with its 16 or 64 neighbours clamped, as in PyTorch and ONNX Runtime. Positions are clamped to 2^24 elements; NaN
    counts as the lowest one.
    """

    kind = "grid_sample"
    operands = ("x", "grid")
    onnx = ("GridSample",)
    relax = ("relax.image.grid_sample",)
    relay = ("image.grid_sample",)

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, grid: TensorType) -> tuple[TensorType, ...]:
        axes = x.rank - 2
        if axes not in (2, 3) or grid.rank != x.rank or grid.shape[-1] != axes:
            raise ShapeError(f"grid {grid} for {x}; images and volumes are sampled by grids of the same rank, whose "
                             "last axis holds the coordinates")
        require_equal(x.shape[0], grid.shape[0], f"grid {grid} for {x.shape[0]} images")
        for extent in x.shape[2:]:
            require_at_most(1, extent, f"samples of an empty image {x}")
        return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, ...]:
        spatial = x.shape[2:]
        points = grid.reshape(len(grid), math.prod(grid.shape[1:-1]), len(spatial)).astype(np.float32)
        # After the elements of each image a 0, which neighbours outside of x refer to.
        padded = np.pad(x.reshape(*x.shape[:2], math.prod(spatial)), ((0, 0), (0, 0), (0, 1)))
        # The neighbours of each point on the axes so far, [N, points, T], are combined with those on the next axis.
        index, weight = np.zeros((*points.shape[:2], 1), np.int64), np.ones((*points.shape[:2], 1))
        outside = np.zeros(index.shape, bool)
        for axis, extent in enumerate(spatial):
            taps, shares = _neighbours(attrs, points[..., len(spatial) - 1 - axis], extent)
            shape = (*points.shape[:2], index.shape[2] * taps.shape[2])
            index = (index[..., None] * extent + np.maximum(taps, 0)[..., None, :]).reshape(shape)
            weight = (weight[..., None] * shares[..., None, :]).reshape(shape)
            outside = (outside[..., None] | (taps < 0)[..., None, :]).reshape(shape)
        index, weight = np.where(outside, padded.shape[2] - 1, index), np.where(outside, 0, weight)
        result = np.empty((*x.shape[:2], points.shape[1]), x.dtype)
        for image, where, share, sums in zip(padded, index, weight, result, strict=True):
            sums[:] = (image[:, where].astype(np.float64) * share).sum(-1)
        return (result.reshape(*x.shape[:2], *grid.shape[1:-1]),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        mode, padding = node.attr("mode", "linear"), node.attr("padding_mode", "zeros")
        if mode not in MODES or padding not in PADDINGS:
            raise MegccError(f"mode '{mode}' with padding '{padding}' is not supported")
        return {"mode": MODES[mode], "padding": padding, "align": bool(node.attr("align_corners", 0))}


def _reflect(v: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """Reflects v at both ends of [lower, upper] until it is within."""
    span = np.float32(upper - lower)
    if span <= 0:
        return np.clip(v, lower, upper)
    distance = np.where(v < lower, lower - v, v - upper)
    times = np.floor(distance / span)
    rest = distance - times * span
    reflected = np.where((times % 2 == 0) == (v < lower), lower + rest, upper - rest)
    return np.where((v < lower) | (v > upper), reflected, v)


def _neighbours(attrs: Attrs, g: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices and weights of the neighbours of coordinates g along an axis: int64, -1 for one that is zero,
    and float64, [..., T] with 1, 2 or 4 neighbours. Positions are computed in float32, as in C."""
    last, half_pixel, one = np.float32(extent - 1), np.float32(0.5), np.float32(1)
    lower, upper = (np.float32(0), last) if attrs.align else (-half_pixel, last + half_pixel)
    with np.errstate(over="ignore", invalid="ignore"):
        v = (g + one) * half_pixel * last if attrs.align else ((g + one) * np.float32(extent) - one) * half_pixel
    furthest = np.float32(MAX_POSITION)
    v = np.clip(np.where(np.isnan(v), -furthest, v), -furthest, furthest)
    if attrs.mode == "nearest":
        v = np.rint(v)
    if attrs.padding == "border" and attrs.mode != "cubic":
        v = np.where((v < lower) | (v > upper), np.clip(v, 0, last), v)
    elif attrs.padding == "reflection":
        v = _reflect(v, lower, upper)
    first = np.floor(v)
    t = (v - first)[..., None].astype(np.float64)
    if attrs.mode == "nearest":
        offsets, weights = np.arange(1), np.ones_like(t)
    elif attrs.mode == "linear":
        offsets, weights = np.arange(2), np.concatenate([1 - t, t], -1)
    else:
        offsets, a = np.arange(-1, 3), CUBIC_A
        d = np.abs(offsets - t)  # the distance of each neighbour, from 0 to 2
        weights = np.where(d <= 1, ((a + 2) * d - (a + 3)) * d**2 + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)
    index = first[..., None] + offsets
    if attrs.padding == "zeros":
        return np.where((index < 0) | (index >= extent), -1, index).astype(np.int64), weights
    if attrs.padding == "reflection":
        index = np.trunc(_reflect(index.astype(np.float32), lower, upper))
    return np.clip(index, 0, extent - 1).astype(np.int64), weights


def _case(x, result, mode, padding, align) -> Case:
    return Case((f32(*x), f32(x[0], *result, len(result))), {"mode": mode, "padding": padding, "align": align})


GridSample.cases = (
    _case((2, 5, 4, 6), (3, 5), "linear", "zeros", align=False),
    _case((1, 4, 3, 1), (4, 4), "cubic", "reflection", align=True),
    _case((2, 3, 5, 6), (3, 3), "nearest", "reflection", align=False),
    _case((1, 2, 3, 4, 5), (2, 3, 2), "linear", "reflection", align=False),
    _case((1, 33, 7, 5), (1, 9), "linear", "border", align=True),
    _case((1, 17, 5, 4), (2, 7), "cubic", "zeros", align=False),
    _case((1, 3, 5, 4), (3, 7), "cubic", "border", align=False),
    _case((1, 2, 3, 4, 5), (2, 2, 3), "nearest", "zeros", align=True),
)
