# SPDX-License-Identifier: Apache-2.0
"""Resize by the text of the specification: a matrix of weights for each axis, in float64."""

from __future__ import annotations

import math

import numpy as np

from .cases import Case
from .operands import attribute, operands

CROP = "tf_crop_and_resize"


def resized(case: Case) -> np.ndarray:
    """Resize: "every value in the output tensor is a weighted average of neighborhood in the input tensor".

    Raises:
        ValueError: for operator set 10, which has other operands, and for averages of truth values.
    """
    if case.opset < 11:
        raise ValueError("has other operands")
    x, roi, scales, sizes = (*operands(case), None, None, None)[:4]
    if x.dtype.kind == "b" and attribute(case, "mode") != "nearest":
        raise ValueError("has an average of truth values")
    axes = [axis % x.ndim for axis in _said(case, "axes", range(x.ndim))]
    lengths = [x.shape[axis] for axis in axes]
    if sizes is None or not sizes.size:
        scales = scales.astype(np.float64)  # the text multiplies by roi, too; no reference does
        counts = [math.floor(wide) for wide in lengths * scales]
    else:
        counts, scales = _kept_ratio(lengths, [int(size) for size in sizes], _said(case, "keep_aspect_ratio_policy"))
    y, beside = x.astype(np.float64), np.zeros([1] * x.ndim, bool)
    for place, axis in enumerate(axes):
        region = (float(roi[place]), float(roi[len(axes) + place])) if roi is not None and roi.size else (0.0, 1.0)
        places = _places(case, lengths[place], counts[place], float(scales[place]), region)
        if _said(case, "coordinate_transformation_mode") == CROP:
            shape = [-1 if other == axis else 1 for other in range(x.ndim)]
            beside = beside | ((places < 0) | (places > lengths[place] - 1)).reshape(shape)
        weights = _weights(case, places, lengths[place], float(scales[place]))
        y = np.moveaxis(np.tensordot(weights, y, (1, axis)), 0, axis)
    y = np.where(beside, _said(case, "extrapolation_value"), y)
    return (np.rint(y) if x.dtype.kind in "ui" else y).astype(x.dtype)


def _said(case: Case, name: str, otherwise: object = None):
    """The attribute; what a version does that has none, or no default of it."""
    try:
        found = attribute(case, name)
    except (KeyError, ValueError):
        return otherwise
    return otherwise if found is None else found


def _kept_ratio(lengths: list[int], sizes: list[int], policy: str | None) -> tuple[list[int], list[float]]:
    """"scale = Min(sizes[i] / in_size[d]), out_size[d] = round_int(scale * in_size[d])"."""
    scales = [size / length for size, length in zip(sizes, lengths, strict=True)]
    if policy in (None, "stretch"):
        return sizes, scales
    scale = (min if policy == "not_larger" else max)(scales)
    return [math.floor(scale * length + 0.5) for length in lengths], [scale] * len(lengths)


def _places(case: Case, length: int, count: int, scale: float, region: tuple[float, float]) -> np.ndarray:
    """x_original of each x_resized. Where a length may be a fraction, as ONNX's own tests have it."""
    mode, x, wide = _said(case, "coordinate_transformation_mode"), np.arange(count, dtype=np.float64), length * scale
    if mode == "align_corners":
        return x * (length - 1) / (wide - 1) if count > 1 else 0 * x
    if mode == CROP:
        start, end = region
        along = x / (wide - 1) if wide > 1 else 0 * x + 0.5
        return (start + along * (end - start)) * (length - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "pytorch_half_pixel" and count == 1:
        return 0 * x
    offset = length / 2 * (1 - count / wide) if mode == "half_pixel_symmetric" else 0
    return offset + (x + 0.5) / scale - 0.5


def _weights(case: Case, places: np.ndarray, length: int, scale: float) -> np.ndarray:
    """[results, operands]; what lies beside the tensor counts for its edge, or not at all."""
    mode, weights = attribute(case, "mode"), np.zeros((len(places), length))
    for row, place in zip(weights, places, strict=True):
        if mode == "nearest":
            row[min(max(_nearest(place, attribute(case, "nearest_mode")), 0), length - 1)] = 1
            continue
        shrink = min(scale, 1.0) if _said(case, "antialias", 0) else 1.0
        reach = math.ceil((2 if mode == "cubic" else 1) / shrink)
        taps = np.arange(math.floor(place) - reach, math.floor(place) + reach + 2)
        values = np.array([_kernel(abs(tap - place) * shrink, mode, attribute(case, "cubic_coeff_a")) for tap in taps])
        if attribute(case, "exclude_outside"):
            values[(taps < 0) | (taps >= length)] = 0
        np.add.at(row, np.clip(taps, 0, length - 1), values / (values.sum() or 1))
    return weights


def _nearest(place: float, mode: str) -> int:
    return {"floor": math.floor(place), "ceil": math.ceil(place), "round_prefer_ceil": math.floor(place + 0.5)}.get(
        mode, math.ceil(place - 0.5))


def _kernel(far: float, mode: str, a: float) -> float:
    """Equation (4) of Keys, "Cubic convolution interpolation"; a triangle for linear."""
    if mode == "linear":
        return max(1 - far, 0)
    if far <= 1:
        return (a + 2) * far**3 - (a + 3) * far**2 + 1
    return a * (far**3 - 5 * far**2 + 8 * far - 4) if far < 2 else 0
