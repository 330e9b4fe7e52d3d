# SPDX-License-Identifier: Apache-2.0
"""Tabulates functions of one 8-bit number. LiteRT's reference kernels compute them in fixed point, and the tables hold
the same results, bit for bit."""

from __future__ import annotations

import numpy as np

from ....ops.quantized.rsqrt import inverse_root
from ....ops.quantized.softmax_int8 import doubling_high, rounding_shift
from ..file import Quantization
from .fixed_point import Multiplier, codes, integer_range, multiplier, rescale, saturated


def magnitudes(x: Quantization, dtype: str) -> np.ndarray:
    """Returns |code - zero point| for each code of the dtype, in units of the scale of x."""
    return np.abs(_centred(x, dtype))


def _centred(x: Quantization, dtype: str) -> np.ndarray:
    """Returns code - zero point for each code of the dtype."""
    return codes(dtype) - np.int32(x.zero_point[0])


def absolute(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    """Returns the table of |x|, requantized to the result's scale."""
    magnitude = magnitudes(x, dtype)
    if x.scale[0] != result.scale[0]:
        magnitude = rescale(magnitude, multiplier(float(x.scale[0] / result.scale[0])))
    return saturated(magnitude + int(result.zero_point[0]), dtype)


def reciprocal_root(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    """Returns the table of 1 / sqrt(x); numbers ≤ 0 give the largest result. Between its two multiplications the root
    has 20 fractional bits."""
    fraction_bits, (smallest, largest) = 20, integer_range(dtype)
    factor = multiplier(1.0 / float(np.sqrt(x.scale[0]) * result.scale[0]))
    table = []
    for value in _centred(x, dtype).tolist():
        if value <= 0:
            table.append(largest)
            continue
        significand, shift = inverse_root(np.array([value]))
        root = rescale(np.array([1]), Multiplier(int(significand[0]), int(shift[0]) + fraction_bits))
        last = rescale(root, Multiplier(factor.significand, factor.shift - fraction_bits))
        table.append(min(max(int(last[0]) + int(result.zero_point[0]), smallest), largest))
    return np.array(table, dtype)


def hard_swish(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    """Returns the table of x * relu6(x + 3) / 6, computed in 16-bit fixed point as LiteRT's reference kernel HardSwish.

    x is first taken in units of 1 / 128 of its scale. From there it is multiplied twice: to the result's scale, and to
    units in which [-2^15, 2^15] is [-3, 3], where saturation makes it relu6(x + 3) / 6 after a shift by a constant. The
    names are those of LiteRT's kernel: hires is x in fine units, reluish the number that saturation makes a relu6.

    Raises:
        ValueError: if the result's scale is more than 128 times finer than that of x.
    """
    hires_scale = np.float32(1 / 128) * x.scale[0]
    output_multiplier = multiplier(float(hires_scale / result.scale[0]))
    reluish_multiplier = multiplier(float(hires_scale / np.float32(3 / 32768)))
    if output_multiplier.shift > 0:
        raise ValueError("the result's scale is too fine")

    def doubling_high16(a: np.ndarray, b: int) -> np.ndarray:
        return np.minimum((a * b + (1 << 14)) >> 15, 2**15 - 1)

    def saturating_left_shift(a: np.ndarray, bits: int) -> np.ndarray:
        return np.clip(a << bits, -2**15, 2**15 - 1)

    hires = _centred(x, dtype).astype(np.int64) * 128
    rescaled = doubling_high16(hires, _short(output_multiplier.significand))
    reluish = doubling_high16(saturating_left_shift(hires, reluish_multiplier.shift - 1)
                              if reluish_multiplier.shift > 0 else hires, _short(reluish_multiplier.significand))
    reluish = saturating_left_shift(reluish, 1) if reluish_multiplier.shift > 0 \
        else rounding_shift(reluish, -reluish_multiplier.shift)
    relu6_share = (reluish + 2**15) >> 1
    product = np.sign(rescaled) * ((np.abs(rescaled) * relu6_share) >> 15)
    return saturated(rounding_shift(product, -output_multiplier.shift) + int(result.zero_point[0]), dtype)


def _short(significand: int) -> int:
    """Rounds a 31-bit significand to 15 bits, saturating."""
    return min((significand + (1 << 15)) >> 16, 2**15 - 1)


#: 48 / 17 and 32 / 17 in Q2.29.
_GUESS_48_17, _GUESS_32_17 = 1515870810, 1010580540


def reciprocals(magnitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns significands (31 bits) and shifts of 1 / magnitude; 0 gives the reciprocal of 1.

    Three steps of Newton's method as in gemmlowp: for a denominator d in [0.5, 1), here Q0.31, it begins with the guess
    48 / 17 - 32 / 17 * d. Guesses are Q2.29. `doubling_high` divides a product by 2^31, so 4 times that of two Q2.29 is
    Q2.29 again.
    """
    magnitude = np.maximum(magnitude, 1).astype(np.int64)
    bits = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    denominator = magnitude << (31 - bits)
    guess = _GUESS_48_17 + doubling_high(denominator, np.int64(-_GUESS_32_17))
    for _ in range(3):
        guess = guess + 4 * doubling_high(guess, (1 << 29) - doubling_high(denominator, guess))
    return np.minimum(2 * guess, 2**31 - 1).astype(np.int32), (bits - 1).astype(np.int32)


def leading_sign_bits(bound: int) -> np.ndarray:
    """Returns the number of redundant sign bits of each int32 from -bound to bound, as Arm's instruction CLS counts
    them: a left shift by as many bits does not overflow."""
    values = np.arange(-bound, bound + 1)
    without_sign = np.where(values < 0, ~values, values)  # the bits that equal the sign bit are 0 here
    return (31 - np.where(without_sign > 0, np.frexp(without_sign.astype(np.float64))[1], 0)).astype(np.int32)


#: Operator -> the function that makes its table of 256 results.
TABLES = {"ABS": absolute, "RSQRT": reciprocal_root, "HARD_SWISH": hard_swish}
