# SPDX-License-Identifier: Apache-2.0
"""Fixed-point multipliers as in gemmlowp, TFLite and TVM, and the ranges of integer types."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..errors import ShapeError


class Range(NamedTuple):
    """The integers from minimum to maximum, both included."""

    minimum: int
    maximum: int


class Multiplier(NamedTuple):
    """The factor significand * 2^(shift - 31), in the form that `rescale_fixed` and `rescale_once` take."""

    significand: int
    shift: int


def multiplier(factor: float) -> Multiplier:
    """Rounds a factor ≥ 0 to a 31-bit significand; a factor below 2^-32 becomes 0.

    Raises:
        ShapeError: for a negative, infinite or NaN factor, as overflow in products of scales gives.
    """
    if not 0 <= factor < math.inf:
        raise ShapeError(f"its scales give the factor {factor}")
    fraction, shift = math.frexp(factor)
    significand = math.floor(fraction * 2.0**31 + 0.5)
    if significand == 2**31:
        significand, shift = significand // 2, shift + 1
    return Multiplier(0, 0) if shift < -31 or not significand else Multiplier(significand, shift)


def integer_range(dtype: str) -> Range:
    """Returns all values of an integer type."""
    limits = np.iinfo(dtype)
    return Range(int(limits.min), int(limits.max))
