# SPDX-License-Identifier: Apache-2.0
"""Tabulates functions of one 8-bit number that LiteRT computes in fixed point, without a table."""

from __future__ import annotations

import numpy as np

from ....ops.quantized.rsqrt import inverse_root
from ....ops.quantized.softmax_int8 import doubling_high, rounding_shift
from ..file import Quantization
from .fixed_point import Multiplier, codes, limits, multiplier, rescale


def _saturated(values: np.ndarray, dtype: str) -> np.ndarray:
    return np.clip(values, *limits(dtype)).astype(dtype)


def sizes(x: Quantization, dtype: str) -> np.ndarray:
    """Returns the absolute value of each number."""
    return np.abs(_centred(x, dtype))


def _centred(x: Quantization, dtype: str) -> np.ndarray:
    return codes(dtype) - np.int32(x.zero_point[0])


def absolute(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    size = np.abs(_centred(x, dtype))
    if x.scale[0] != result.scale[0]:
        size = rescale(size, multiplier(float(x.scale[0] / result.scale[0])))
    return _saturated(size + int(result.zero_point[0]), dtype)


def reciprocal_root(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    """Returns the table of 1 / sqrt(x); numbers ≤ 0 give the largest result."""
    up, (low, high) = 20, limits(dtype)
    factor = multiplier(1.0 / float(np.sqrt(x.scale[0]) * result.scale[0]))
    table = []
    for value in _centred(x, dtype).tolist():
        if value <= 0:
            table.append(high)
            continue
        significand, shift = inverse_root(np.array([value]))
        root = rescale(np.array([1]), Multiplier(int(significand[0]), int(shift[0]) + up))
        last = rescale(root, Multiplier(factor.significand, factor.shift - up))
        table.append(min(max(int(last[0]) + int(result.zero_point[0]), low), high))
    return np.array(table, dtype)


def hard_swish(x: Quantization, dtype: str, result: Quantization) -> np.ndarray:
    """Returns the table of x * relu6(x + 3) / 6, computed in 16-bit fixed point.

    Raises:
        ValueError: if the result's scale is more than 128 times finer than that of x.
    """
    fine = np.float32(1 / 128) * x.scale[0]
    out = multiplier(float(fine / result.scale[0]))
    bend = multiplier(float(fine / np.float32(3 / 32768)))
    if out.shift > 0:
        raise ValueError("the result's scale is too fine")

    def half(a: np.ndarray, b: int) -> np.ndarray:
        return np.minimum((a * b + (1 << 14)) >> 15, 2**15 - 1)

    def left(a: np.ndarray, bits: int) -> np.ndarray:
        return np.clip(a << bits, -2**15, 2**15 - 1)

    wide = _centred(x, dtype).astype(np.int64) * 128
    scaled = half(wide, _short(out.significand))
    bent = half(left(wide, bend.shift - 1) if bend.shift > 0 else wide, _short(bend.significand))
    bent = left(bent, 1) if bend.shift > 0 else rounding_shift(bent, -bend.shift)
    share = (bent + 2**15) >> 1
    product = np.sign(scaled) * ((np.abs(scaled) * share) >> 15)
    return _saturated(rounding_shift(product, -out.shift) + int(result.zero_point[0]), dtype)


def _short(significand: int) -> int:
    """Rounds a 31-bit significand to 15 bits, saturating."""
    return min((significand + (1 << 15)) >> 16, 2**15 - 1)


def reciprocals(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns significands and shifts of 1 / size, for sizes ≥ 0; 0 gives the reciprocal of 1."""
    size = np.maximum(size, 1).astype(np.int64)
    bits = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    half = (((size << (32 - bits)) - 2**31) + 2**31) // 2
    guess = 1515870810 + doubling_high(half, np.int64(-1010580540))
    for _ in range(3):
        guess = guess + 4 * doubling_high(guess, (1 << 29) - doubling_high(half, guess))
    return np.minimum(2 * guess, 2**31 - 1).astype(np.int32), (bits - 1).astype(np.int32)


def leading(most: int) -> np.ndarray:
    """Returns for each number from -most to most how often it can be doubled without overflow of int32."""
    values = np.arange(-most, most + 1)
    size = np.where(values < 0, ~values, values)
    return (31 - np.where(size > 0, np.frexp(size.astype(np.float64))[1], 0)).astype(np.int32)


TABLES = {"ABS": absolute, "RSQRT": reciprocal_root, "HARD_SWISH": hard_swish}
