# SPDX-License-Identifier: Apache-2.0
"""Real factors as integers, as gemmlowp, TFLite and TVM write them, and the ranges of integer types."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..errors import ShapeError


class Range(NamedTuple):
    """Integers from low to high."""

    low: int
    high: int


class Multiplier(NamedTuple):
    """A real factor: significand * 2^(shift - 31), as `rescale_fixed` and `rescale_once` take it."""

    significand: int
    shift: int


def multiplier(factor: float) -> Multiplier:
    """Returns a factor that is not negative, to the nearest of 31 bits; what is below 2^-32 is 0.

    Raises:
        ShapeError: for a factor that is no such number: products and quotients of scales may overflow.
    """
    if not 0 <= factor < math.inf:
        raise ShapeError(f"its scales give the factor {factor}")
    fraction, shift = math.frexp(factor)
    significand = math.floor(fraction * 2.0**31 + 0.5)
    if significand == 2**31:
        significand, shift = significand // 2, shift + 1
    return Multiplier(0, 0) if shift < -31 or not significand else Multiplier(significand, shift)


def limits(dtype: str) -> Range:
    numbers = np.iinfo(dtype)
    return Range(int(numbers.min), int(numbers.max))
