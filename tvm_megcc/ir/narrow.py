# SPDX-License-Identifier: Apache-2.0
"""Storage-only dtypes, such as 8-bit floats and int4: the dtypes that they are computed in, and conversions in numpy.

Their arrays have dtypes of ml_dtypes. A dtype of fewer than 8 bits takes a byte for each number, in the low bits.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from .types import DTYPES


class SmallFloat(NamedTuple):
    """A float of 8 or fewer bits: sign, exponent, fraction.

    least: exponent of the smallest normal number.
    top: the code of the largest number.
    over: the code for larger numbers without saturation.
    nan: the code of NaN.
    signed_nan: whether zero, NaN and too large numbers have a sign.
    """

    bits: int
    fraction: int
    least: int
    top: int
    over: int
    nan: int
    signed_nan: bool = True


SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(8, 3, -6, 0x7e, 0x7f, 0x7f),
    "float8_e4m3fnuz": SmallFloat(8, 3, -7, 0x7f, 0x80, 0x80, False),
    "float8_e5m2": SmallFloat(8, 2, -14, 0x7b, 0x7c, 0x7e),
    "float8_e5m2fnuz": SmallFloat(8, 2, -15, 0x7f, 0x80, 0x80, False),
    "float4_e2m1fn": SmallFloat(4, 1, 0, 0x7, 0x7, 0x0),
}
#: 16-bit floats, to which chains of operators are not rounded after each one (passes/precision/storage_types.py).
SIXTEEN_BITS = ("float16", "bfloat16")
#: The bits of integer dtypes of fewer than 8 bits.
SMALL_INTEGERS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


def carrier(dtype: str) -> str:
    """Returns the dtype that numbers of this one are computed in."""
    return DTYPES[dtype].carrier or dtype


def is_float(dtype: str) -> bool:
    """Returns whether a dtype is a float type."""
    return carrier(dtype).startswith("float")


def bits_of(dtype: str) -> int:
    """Returns the bits of a number when packed, as in files."""
    small = SMALL_FLOATS.get(dtype)
    return small.bits if small else SMALL_INTEGERS.get(dtype, 8 * DTYPES[dtype].bytes)


def widened(array: np.ndarray) -> np.ndarray:
    """Converts an array to the dtype that its numbers are computed in."""
    return array.astype(np.dtype(carrier(array.dtype.name))) if array.dtype.name in DTYPES else array


def limits(dtype: str) -> tuple[int, int]:
    """Returns the least and the largest number of an integer dtype."""
    info = ml_dtypes.iinfo(np.dtype(dtype))  # type: ignore[no-untyped-call]  # the package has no types
    return int(info.min), int(info.max)


def narrowed(numbers: np.ndarray, dtype: str, saturate: bool = True, rounding: str = "up") -> np.ndarray:
    """Converts numbers to a storage-only dtype as ONNX's Cast does. 8-bit floats saturate or, without `saturate`,
    become infinite or NaN; integers of fewer than 8 bits lose their upper bits. rounding: "up", "down" or "nearest",
    for powers of two (float8e8m0)."""
    result = np.dtype(dtype)
    if dtype in SMALL_INTEGERS:
        if numbers.dtype.kind == "f":
            finite = np.nan_to_num(numbers.astype(np.float64), nan=0.0)
            numbers = np.clip(finite, -2**31, 2**31 - 1).astype(np.int32)
        return (numbers.astype(np.int64) & ((1 << SMALL_INTEGERS[dtype]) - 1)).astype(np.uint8).view(result)
    if dtype == "float8_e8m0fnu":
        return _power_of_two(numbers, saturate, rounding).view(result)
    with np.errstate(all="ignore"):
        if dtype in SMALL_FLOATS and saturate:
            most = float(ml_dtypes.finfo(result).max)  # type: ignore[no-untyped-call]  # likewise
            numbers = np.clip(numbers.astype(np.float64), -most, most)
        return np.where(np.isnan(numbers), np.zeros((), numbers.dtype), numbers).astype(result) \
            if dtype == "float4_e2m1fn" else numbers.astype(result)


def _power_of_two(numbers: np.ndarray, saturate: bool, rounding: str) -> np.ndarray:
    """Returns the exponents of float32 numbers, rounded up by their fractions as `rounding` says; 255 is NaN."""
    bits = numbers.astype(np.float32).view(np.uint32)
    exponent, fraction = (bits >> 23 & 255).astype(np.int64), bits & 0x7fffff
    half_ulp = 0x400000
    up = {"up": fraction > 0, "down": np.zeros_like(fraction, bool),
          "nearest": (fraction > half_ulp) | ((fraction == half_ulp) & (exponent > 0))}[rounding]
    moved = np.minimum(exponent + up, 254 if saturate else 255)
    return np.where(exponent == 255, 255, moved).astype(np.uint8)
