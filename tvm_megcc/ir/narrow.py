# SPDX-License-Identifier: Apache-2.0
"""Element types that only store numbers: what they are computed in, and the way there and back in numpy.

Arrays of them have the types of ml_dtypes; one of fewer than 8 bits has a byte for each number, in its low bits.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from .types import DTYPES


class SmallFloat(NamedTuple):
    """A float of 8 or fewer bits: sign, exponent, fraction.

    least: exponent of the smallest normal number. top: the code of the largest one; over: of what is larger where it is
    not saturated; nan: of NaN. signed_nan: zero, NaN and what is too large have a sign.
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
#: Floats that chains of operators are not rounded to one by one (passes/precision/storage_types.py).
SIXTEEN_BITS = ("float16", "bfloat16")
#: Bits of the integers that have fewer than 8.
SMALL_INTEGERS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


def carrier(dtype: str) -> str:
    """Returns the element type that numbers of this one are computed in."""
    return DTYPES[dtype].carrier or dtype


def is_real(dtype: str) -> bool:
    """Whether its numbers are floats."""
    return carrier(dtype).startswith("float")


def bits_of(dtype: str) -> int:
    """Returns the bits of a number as files pack them."""
    small = SMALL_FLOATS.get(dtype)
    return small.bits if small else SMALL_INTEGERS.get(dtype, 8 * DTYPES[dtype].bytes)


def widened(array: np.ndarray) -> np.ndarray:
    """Returns the numbers in the element type that they are computed in."""
    return array.astype(np.dtype(carrier(array.dtype.name))) if array.dtype.name in DTYPES else array


def limits(dtype: str) -> tuple[int, int]:
    """Returns the least and the largest number of a type of integers."""
    info = ml_dtypes.iinfo(np.dtype(dtype))
    return int(info.min), int(info.max)


def narrowed(numbers: np.ndarray, dtype: str, saturate: bool = True, rounding: str = "up") -> np.ndarray:
    """Returns the numbers as ONNX's Cast stores them. Floats of 8 bits saturate, or else become infinite or NaN;
    integers of fewer than 8 bits lose their upper ones; `rounding` ("up", "down", "nearest") is that of powers of
    two."""
    result = np.dtype(dtype)
    if dtype in SMALL_INTEGERS:
        if numbers.dtype.kind == "f":
            inside = np.nan_to_num(numbers.astype(np.float64), nan=0.0)
            numbers = np.clip(inside, -2**31, 2**31 - 1).astype(np.int32)
        return (numbers.astype(np.int64) & ((1 << SMALL_INTEGERS[dtype]) - 1)).astype(np.uint8).view(result)
    if dtype == "float8_e8m0fnu":
        return _power_of_two(numbers, saturate, rounding).view(result)
    with np.errstate(all="ignore"):
        if dtype in SMALL_FLOATS and saturate:
            most = float(ml_dtypes.finfo(result).max)
            numbers = np.clip(numbers.astype(np.float64), -most, most)
        return np.where(np.isnan(numbers), np.zeros((), numbers.dtype), numbers).astype(result) \
            if dtype == "float4_e2m1fn" else numbers.astype(result)


def _power_of_two(numbers: np.ndarray, saturate: bool, rounding: str) -> np.ndarray:
    """Exponents of float32, moved up by what the fraction says; 255 is NaN."""
    bits = numbers.astype(np.float32).view(np.uint32)
    exponent, fraction = (bits >> 23 & 255).astype(np.int64), bits & 0x7fffff
    half = 0x400000
    up = {"up": fraction > 0, "down": np.zeros_like(fraction, bool),
          "nearest": (fraction > half) | ((fraction == half) & (exponent > 0))}[rounding]
    moved = np.minimum(exponent + up, 254 if saturate else 255)
    return np.where(exponent == 255, 255, moved).astype(np.uint8)
