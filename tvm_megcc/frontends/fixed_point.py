# SPDX-License-Identifier: Apache-2.0
"""Fixed-point multipliers as in gemmlowp, TFLite and TVM, rounding, and the ranges of integer types.

`rescale_fixed` and `rescale_once` are functions of elementwise expressions (`ir/expr.py`), which multiply an int32 by
such a multiplier. `rescale_fixed` rounds twice, as gemmlowp does: the high half of the product, ties up, then the right
shift, ties away from zero. `rescale_once` rounds the exact product once, ties up."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..errors import ShapeError
from ..ir.expr import Expr, call

#: The largest shift that `rescale_fixed` and `rescale_once` take: a multiplier of 2^30 or more has a larger one.
MAX_SHIFT = 30
#: The largest float32 and float64 below 1/2, which `round_half_away` adds before it rounds down. With 1/2 itself, the
#: sum of the largest float below 1/2 and 1/2 would be rounded to 1, so that this float would become 1 instead of 0.
BELOW_HALF32, BELOW_HALF64 = 0.49999997, 0.49999999999999994


class Range(NamedTuple):
    """The integers from minimum to maximum, both included."""

    minimum: int
    maximum: int


class Multiplier(NamedTuple):
    """The factor significand * 2^(shift - 31), in the form that `rescale_fixed` and `rescale_once` take."""

    significand: int
    shift: int


def multiplier(factor: float) -> Multiplier:
    """Rounds a factor ≥ 0 to a 31-bit significand; a factor below 2^-32 becomes 0. As TFLite's `QuantizeMultiplier`
    (tensorflow/lite/kernels/internal/quantization_util.cc).

    Raises:
        ShapeError: for a negative, infinite or NaN factor, as overflow in products of scales gives.
    """
    if not 0 <= factor < math.inf:
        raise ShapeError(f"its scales give the factor {factor}")
    fraction, shift = math.frexp(factor)
    significand = math.floor(fraction * 2.0**31 + 0.5)
    if significand == 2**31:  # rounded up to 32 bits
        significand, shift = significand // 2, shift + 1
    return Multiplier(0, 0) if shift < -31 or not significand else Multiplier(significand, shift)


def round_half_away(value: Expr, half: float = BELOW_HALF32) -> Expr:
    """Rounds floats to the nearest integer, ties away from zero. half: `BELOW_HALF32` for float32, `BELOW_HALF64`
    for float64."""
    magnitude = call("floor", call("abs", value) + half)
    return call("if_lt", value, 0, -magnitude, magnitude)


def times_power_of_two(value: Expr, exponent: Expr | int) -> Expr:
    """Returns value * 2^exponent of int32, rounded to the nearest integer, ties up."""
    significand = 2**30  # `rescale_once` multiplies by significand * 2^(shift - 31)
    return call("rescale_once", value, significand, exponent + 1)


def floor_shift(value: Expr, bits: int) -> Expr:
    """Returns floor(value / 2^bits) of int32, for bits ≥ 1: half of 2^bits is subtracted, which rounding to the nearest
    adds."""
    return times_power_of_two(value - 2**(bits - 1), -bits)


def integer_range(dtype: str) -> Range:
    """Returns all values of an integer type."""
    limits = np.iinfo(dtype)
    return Range(int(limits.min), int(limits.max))
