# SPDX-License-Identifier: Apache-2.0
"""Storage-only dtypes, such as 8-bit floats and int4: the dtypes in which their numbers are computed, and conversions
of numpy arrays.

The arrays have dtypes of ml_dtypes. In an array, a number of fewer than 8 bits takes the low bits of a byte.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from .types import DTYPES


class SmallFloat(NamedTuple):
    """A float format of 8 or fewer bits: sign, exponent, fraction (OCP 8-bit and MX formats, and ONNX's variants).

    bits, fraction: the number of bits, and of those of the fraction.
    least: the exponent of the smallest normal number.
    top: the bit pattern of the largest number.
    over: the bit pattern of larger numbers, if they are not saturated.
    nan: the bit pattern of NaN.
    signed_nan: zero, NaN and too large numbers have a sign bit.
    """

    bits: int
    fraction: int
    least: int
    top: int
    over: int
    nan: int
    signed_nan: bool = True


#: The formats by dtype; the columns are the fields of `SmallFloat`.
SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(8, 3, -6, 0x7e, 0x7f, 0x7f),
    "float8_e4m3fnuz": SmallFloat(8, 3, -7, 0x7f, 0x80, 0x80, signed_nan=False),
    "float8_e5m2": SmallFloat(8, 2, -14, 0x7b, 0x7c, 0x7e),
    "float8_e5m2fnuz": SmallFloat(8, 2, -15, 0x7f, 0x80, 0x80, signed_nan=False),
    "float4_e2m1fn": SmallFloat(4, 1, 0, 0x7, 0x7, 0x0),
}
#: 16-bit floats. Between the operators of a chain, their numbers stay in float32, so that not every operator rounds
#: (passes/precision/storage_types.py).
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
    """Returns the number of bits of an element in a packed tensor, as in files."""
    small = SMALL_FLOATS.get(dtype)
    return small.bits if small else SMALL_INTEGERS.get(dtype, 8 * DTYPES[dtype].bytes)


def widened(array: np.ndarray) -> np.ndarray:
    """Returns an array in the dtype in which its numbers are computed (`carrier`)."""
    return array.astype(np.dtype(carrier(array.dtype.name))) if array.dtype.name in DTYPES else array


def limits(dtype: str) -> tuple[int, int]:
    """Returns the least and the largest number of an integer dtype."""
    info = ml_dtypes.iinfo(np.dtype(dtype))  # type: ignore[no-untyped-call]  # the package has no types
    return int(info.min), int(info.max)


def narrowed(numbers: np.ndarray, dtype: str, saturate: bool = True, rounding: str = "up") -> np.ndarray:
    """Converts numbers to a storage-only dtype as ONNX's Cast does.

    Args:
        numbers: floats or integers.
        dtype: the storage-only dtype. Integers of fewer than 8 bits keep the low bits of a number.
        saturate: numbers that are too large for an 8-bit float become the largest one; else infinity or NaN.
        rounding: "up", "down" or "nearest", for powers of two (float8_e8m0fnu).
    """
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
            largest = float(ml_dtypes.finfo(result).max)  # type: ignore[no-untyped-call]  # the package has no types
            numbers = np.clip(numbers.astype(np.float64), -largest, largest)
        if dtype == "float4_e2m1fn":  # it has no NaN
            numbers = np.where(np.isnan(numbers), np.zeros((), numbers.dtype), numbers)
        return numbers.astype(result)


def _power_of_two(numbers: np.ndarray, saturate: bool, rounding: str) -> np.ndarray:
    """Returns float32 numbers as float8_e8m0fnu: the biased exponent, plus 1 if `rounding` of the fraction goes up; 255
    is NaN."""
    bits = numbers.astype(np.float32).view(np.uint32)
    exponent, fraction = (bits >> 23 & 255).astype(np.int64), bits & 0x7fffff
    half_ulp = 0x400000
    # A tie goes up, except that the subnormal number with this fraction is 2^-127, which exponent 0 stands for.
    up = {"up": fraction > 0, "down": np.zeros_like(fraction, bool),
          "nearest": (fraction > half_ulp) | ((fraction == half_ulp) & (exponent > 0))}[rounding]
    moved = np.minimum(exponent + up, 254 if saturate else 255)
    return np.where(exponent == 255, 255, moved).astype(np.uint8)
