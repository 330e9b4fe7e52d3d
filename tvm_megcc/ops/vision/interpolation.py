# SPDX-License-Identifier: Apache-2.0
"""Source coordinates and weights of a resized axis, by the rules of ONNX's Resize."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

#: The values of Resize's attributes mode, coordinate_transformation_mode and nearest_mode.
MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
               "tf_crop_and_resize")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
#: The rounding of Upsample, and of Resize of operator set 10, which have no attribute for it: positions in float32 are
#: rounded up if the axis becomes shorter, else down. Source: ONNX Runtime, and ONNX's test resize_downsample_nearest of
#: version 1.5.
LEGACY_ROUNDING = "simple"
#: Antialiasing treats smaller scales as this one, so that 1 / scale does not overflow. They leave no element of an axis
#: that is shorter than 1e9.
MIN_SCALE = 1e-9


def source_coordinates(extent: int, result: int, scale: float, coordinates: str,
                       roi: tuple[float, float] = (0.0, 1.0)) -> np.ndarray:
    """Returns the position on the operand's axis for each element of the result's axis, float64 [result].

    Args:
        extent, result: the extents of the operand's and the result's axis.
        scale: result / extent before rounding.
        coordinates: one of COORDINATES.
        roi: start and end of the region, as fractions of the axis, for tf_crop_and_resize.
    """
    position, length = np.arange(result, dtype=np.float64), extent * scale
    if coordinates == "asymmetric":
        return position / scale
    if coordinates == "align_corners":
        return position * (extent - 1) / (length - 1) if result > 1 else np.zeros(result)
    if coordinates == "tf_crop_and_resize":
        start, end = roi
        fraction = position / (length - 1) if length > 1 else np.full(result, 0.5)
        return (start + fraction * (end - start)) * (extent - 1)
    if coordinates == "pytorch_half_pixel" and result == 1:
        return np.zeros(1)
    if coordinates == "half_pixel_symmetric":
        offset = extent / 2 * (1 - result / length)
        return offset + (position + 0.5) / scale - 0.5
    return (position + 0.5) / scale - 0.5


def nearest_indices(position: np.ndarray, extent: int, rounding: str) -> np.ndarray:
    """Returns the nearest index of the operand's axis for each position, int64. rounding: one of NEAREST, or
    LEGACY_ROUNDING."""
    if rounding == LEGACY_ROUNDING:
        # The last element is from a position beyond its own index if the axis becomes shorter.
        is_shorter = len(position) > 1 and position[-1] > len(position) - 1
        position, rounding = position.astype(np.float32), "ceil" if is_shorter else "floor"
    if rounding == "floor":
        index = np.floor(position)
    elif rounding == "ceil":
        index = np.ceil(position)
    elif rounding == "round_prefer_ceil":
        index = np.floor(position + 0.5)
    else:
        index = np.ceil(position - 0.5)
    inside: np.ndarray = np.clip(index, 0, extent - 1).astype(np.int64)
    return inside


def linear_weights(position: np.ndarray, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower neighbour of each position, int64, and the weight of the upper one, float32. The upper
    neighbour is the lower one + 1, or the last index."""
    position = np.clip(position, 0, extent - 1)
    lower = np.minimum(np.floor(position), max(extent - 2, 0))
    return lower.astype(np.int64), (position - lower).astype(np.float32)


def axis_tables(position: np.ndarray, extent: int, mode: str, rounding: str) -> list[np.ndarray]:
    """Returns the operands of a `resize` for an axis: the index of each element, int32, and for linear the weight of
    its upper neighbour, float32."""
    if mode == "nearest":
        return [nearest_indices(position, extent, rounding).astype(np.int32)]
    lower, weight = linear_weights(position, extent)
    return [lower.astype(np.int32), weight]


@dataclass(frozen=True)
class Interpolation:
    """The attributes of an interpolation, except its coordinates.

    mode: one of MODES.
    rounding: one of NEAREST or LEGACY_ROUNDING, for nearest.
    cubic_a: the parameter of the cubic convolution kernel (R. G. Keys, IEEE Transactions on Acoustics, Speech, and
        Signal Processing 29, 1981).
    excludes: whether neighbours outside of the axis have weight 0; else they are clamped to its border.
    antialias: whether the kernel of an axis that shrinks widens by 1 / scale.
    """

    mode: str
    rounding: str
    cubic_a: float
    excludes: bool
    antialias: bool

    @property
    def has_windows(self) -> bool:
        """Returns whether an element may have more than two neighbours, or neighbours outside of the axis are excluded.
        Then it is a `resample`, else a `resize`."""
        return self.mode == "cubic" or (self.mode == "linear" and (self.excludes or self.antialias))

    def _shrink(self, scale: float) -> float:
        """Returns the factor of neighbours' distances: with antialiasing the kernel of an axis that shrinks widens by
        1 / scale."""
        return min(max(scale, MIN_SCALE), 1.0) if self.antialias else 1.0

    def neighbour_count(self, scale: float) -> int:
        """Returns the number of neighbours of each element."""
        shrink = self._shrink(scale)
        return 2 * math.ceil((2 if self.mode == "cubic" else 1) / shrink)

    def windows(self, position: np.ndarray, extent: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices and weights of the neighbours of each position, int64 and float64 [positions, T]; indices
        may be outside of the axis."""
        shrink = self._shrink(scale)
        reach = self.neighbour_count(scale) // 2
        indices = np.floor(position).astype(np.int64)[:, None] + np.arange(1 - reach, 1 + reach)
        weights = self._kernel(np.abs(indices - position[:, None]) * shrink)
        if self.excludes:
            weights = np.where((indices < 0) | (indices >= extent), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        return indices, weights / np.where(total == 0, 1.0, total)

    def _kernel(self, distance: np.ndarray) -> np.ndarray:
        """Returns the weight, before it is normalised, of a neighbour at a distance."""
        if self.mode == "linear":
            falling: np.ndarray = np.maximum(1 - distance, 0)
            return falling
        a = self.cubic_a
        within_one = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, within_one, np.where(distance < 2, far, 0.0))
