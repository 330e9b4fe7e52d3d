# SPDX-License-Identifier: Apache-2.0
"""Computes TFLite's quantisation parameters at compile time: fixed-point multipliers, ranges and tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tflite

from ....ir.expr import FUNCTIONS
from ...fixed_point import Multiplier, Range, integer_range, multiplier
from ..file import Quantization


def rounded(values: np.ndarray) -> np.ndarray:
    """Rounds float32 to the nearest integer, ties away from zero."""
    truncated = np.trunc(values)
    return truncated + np.where(np.abs(values - truncated) >= np.float32(0.5), np.sign(values), 0).astype(np.float32)


#: Fused activations -> the bounds of their results, in floats.
_BOUNDS: dict[int, tuple[float | None, float | None]] = {
    tflite.ActivationFunctionType.NONE: (None, None), tflite.ActivationFunctionType.RELU: (0.0, None),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0), tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0)}


def activation_range(function: int, dtype: str, result: Quantization) -> Range | None:
    """Returns the integer range of the results after a fused activation; None for one that LiteRT does not quantise."""
    return None if function not in _BOUNDS else quantized_range(*_BOUNDS[function], dtype, result)


def quantized_range(lower: float | None, upper: float | None, dtype: str, result: Quantization) -> Range:
    """Returns the range of the integers that represent floats from `lower` to `upper`; None for no bound."""
    limits = integer_range(dtype)

    def quantize(bound: float) -> int:
        return int(rounded(np.float32(bound) / result.scale)[0]) + int(result.zero_point[0])

    return Range(limits.minimum if lower is None else max(quantize(lower), limits.minimum),
                 limits.maximum if upper is None else min(quantize(upper), limits.maximum))


def scale(quantization: Quantization) -> float:
    """Returns the scale of a per-tensor quantisation, in float64, in which TFLite computes with it."""
    return float(quantization.scale[0])


def product_multipliers(x: Quantization, w: Quantization, result: Quantization, per_channel: bool
                        ) -> list[Multiplier]:
    """Returns the requantization multipliers of sums of products, one for each scale of the weights. As in TFLite, the
    scales are multiplied in float64 if they are per channel, and the product is rounded to float32 otherwise."""
    if per_channel:
        return [multiplier(scale(x) * float(weight_scale) / scale(result)) for weight_scale in w.scale]
    return [multiplier(float(x.scale[0] * w.scale[0]) / scale(result))]


def rescale(values: np.ndarray, factor: Multiplier) -> np.ndarray:
    """Multiplies int32 numbers by a factor, as `rescale_fixed` does at run time."""
    significand, shift = (np.full(values.shape, part, np.int64) for part in factor)
    return FUNCTIONS["rescale_fixed"].numpy(values.astype(np.int32), significand, shift)


def codes(dtype: str) -> np.ndarray:
    """Returns all values of an 8-bit type, in the order of a lookup table."""
    smallest, largest = integer_range(dtype)
    return np.arange(smallest, largest + 1, dtype=np.int32)


def table(function: Callable[[np.ndarray], np.ndarray], x: Quantization, dtype: str, result: Quantization,
          result_dtype: str) -> np.ndarray:
    """Tabulates a float function over all values of an 8-bit type, computed in float32."""
    real = x.scale[0] * (codes(dtype) - np.int32(x.zero_point[0])).astype(np.float32)
    with np.errstate(all="ignore"):
        entries = rounded(function(real).astype(np.float32) * (np.float32(1) / result.scale[0]))
    return saturated(np.nan_to_num(entries, nan=0.0) + np.float32(result.zero_point[0]), result_dtype)


def saturated(values: np.ndarray, dtype: str) -> np.ndarray:
    """Returns numbers in an integer type; those out of its range become its smallest or largest value."""
    return np.clip(values, *integer_range(dtype)).astype(dtype)


def requantize_table(x: Quantization, dtype: str, result: Quantization, result_dtype: str) -> np.ndarray:
    """Returns a table that requantizes to another scale, as CONCATENATION of uint8 does."""
    factor = x.scale[0] * (np.float32(1) / result.scale[0])
    bias = -np.float32(x.zero_point[0]) * factor
    return saturated(rounded(codes(dtype).astype(np.float32) * factor + bias) + np.float32(result.zero_point[0]),
                      result_dtype)


def leaky_table(x: Quantization, dtype: str, result: Quantization, alpha: float) -> np.ndarray:
    """Returns the table of LEAKY_RELU, with one multiplier for numbers above the zero point and another below."""
    centred = codes(dtype) - np.int32(x.zero_point[0])
    identity = multiplier(float(x.scale[0] / result.scale[0]))
    slope = multiplier(float(x.scale[0] * np.float32(alpha) / result.scale[0]))
    entries = np.where(centred >= 0, rescale(centred, identity), rescale(centred, slope))
    return saturated(entries + int(result.zero_point[0]), dtype)


def mean_multiplier(x: Quantization, result: Quantization, count: int) -> Multiplier:
    """Returns the multiplier from a sum of `count` numbers to their mean in the result's scale."""
    factor = multiplier(scale(x) / scale(result))
    # As in TFLite's MEAN: the significand is shifted left as far as the count's leading bit before it is divided by the
    # count, so that it keeps its precision. 32 keeps it in 64 bits; the other bound keeps the shift at -31 or more.
    shift = min(count.bit_length() - 1, 32, 31 + factor.shift)
    return Multiplier((factor.significand << shift) // count, factor.shift - shift)
