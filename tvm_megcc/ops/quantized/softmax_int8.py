# SPDX-License-Identifier: Apache-2.0
"""TFLite's SOFTMAX of int8 or uint8, computed in integers as by LiteRT's reference kernel with gemmlowp's fixed-point
numbers (Jacob et al. 2018): exponentials from a table, and the reciprocal of their sum by Newton's method.

Qm.n is a fixed-point number with m integer bits and n fraction bits.
"""

from __future__ import annotations

from math import floor, frexp

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most
from ...ir.dims import number
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from ..rules import axis_of

#: The integer bits of sums, which are Q12.19; exponentials are Q0.31.
SUM_BITS = 12
#: The longest axis: a sum of as many ones is less than 2^12.
MAX_LENGTH = 2**SUM_BITS - 1


#: 1/3, exp(-1/8), and exp(-2^k) for k = -2 to 4, in Q0.31.
_ONE_THIRD, _EXP_MINUS_EIGHTH = 715827883, 1895147668
_EXP_MINUS_POWERS = 1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242


def doubling_high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns (a * b) / 2^31 rounded to the nearest, ties up: the product of fixed-point numbers, gemmlowp's
    SaturatingRoundingDoublingHighMul without saturation. Operands are int64 arrays with values of int32."""
    return (np.asarray(a, np.int64) * b + (1 << 30)) >> 31


def rounding_shift(a: np.ndarray, bits: int | np.ndarray) -> np.ndarray:
    """Returns a / 2^bits rounded to the nearest, ties away from zero: gemmlowp's RoundingDivideByPOT."""
    mask = (np.int64(1) << np.asarray(bits, np.int64)) - 1
    return (a >> bits) + ((a & mask) > (mask >> 1) + (a < 0))


def saturating_shift_left(a: np.ndarray, bits: int | np.ndarray) -> np.ndarray:
    """Returns a * 2^bits, saturated to int32."""
    saturated: np.ndarray = np.clip(a << bits, -2**31, 2**31 - 1)
    return saturated


def reciprocal(denominator: np.ndarray) -> np.ndarray:
    """Returns 1 / (1 + x) for x in [0, 1), both in Q0.31, by three steps of Newton's method in Q2.29: gemmlowp's
    one_over_one_plus_x_for_x_in_0_1. denominator: x."""
    half_denominator = (denominator + (2**31 - 1) + 1) // 2   # (1 + x) / 2 in Q0.31
    x = 1515870810 + doubling_high(half_denominator, np.int64(-1010580540))   # 48/17 - 32/17 (1 + x) / 2 in Q2.29
    for _ in range(3):
        x = x + 4 * doubling_high(x, (1 << 29) - doubling_high(half_denominator, x))
    return np.minimum(2 * x, 2**31 - 1)


def exponentials(scaled: np.ndarray) -> np.ndarray:
    """Returns exp of non-positive numbers in Q5.26, in Q0.31. Source: gemmlowp's exp_on_negative_values.

    A number is q - r, with q in [-1/4, 0) and r a multiple of 1/4. exp(q) is exp(-1/8) times the Taylor polynomial of
    degree 4 of exp(q + 1/8); each bit of r contributes a factor exp(-2^k), k = -2 to 4.
    """
    quarter = (scaled & ((1 << 24) - 1)) - (1 << 24)   # q
    x = (quarter << 5) + (1 << 28)   # q + 1/8 in Q0.31
    square = doubling_high(x, x)
    cube, fourth = doubling_high(square, x), doubling_high(square, square)
    # x^4/24 + x^3/6 + x^2/2 as ((x^4/4 + x^3) * 1/3 + x^2) / 2; then exp(-1/8) * (1 + x + …).
    series = rounding_shift(doubling_high(rounding_shift(fourth, 2) + cube, np.int64(_ONE_THIRD)) + square, 1)
    result = _EXP_MINUS_EIGHTH + doubling_high(x + series, np.int64(_EXP_MINUS_EIGHTH))
    rest = quarter - scaled   # r
    for bit, factor in enumerate(_EXP_MINUS_POWERS, start=24):
        result = np.where(rest >> bit & 1, doubling_high(result, np.int64(factor)), result)
    return np.where(scaled == 0, 2**31 - 1, result)


@register
class SoftmaxFixed(Operator):
    """TFLite's SOFTMAX of int8 or uint8 along an axis. The result has x's type, the scale 1 / 256, and the dtype's
    lowest value as zero point. With attribute `wide` it is int16, with the scale 1 / 65536.

    Operands: x int8 or uint8 of any shape; table int32 [1 to 256], exponentials in Q0.31, indexed by how far a number
    is below the maximum; those beyond its end are 0. Attributes: `axis`; `wide`, optional.
    """

    kind = "softmax_fixed"
    operands = ("x", "table")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        is_table = table.dtype == "int32" and table.rank == 1 and 1 <= number(table.shape[0]) <= 256
        if x.dtype not in ("int8", "uint8") or not is_table:
            raise ShapeError(f"softmax of {x} with a table of {table}")
        require_at_most(x.shape[axis], MAX_LENGTH, f"a sum of {x.shape[axis]} exponentials exceeds its accumulator")
        return (TensorType("int16" if attrs.get("wide") else x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, ...]:
        numbers = x.astype(np.int64)
        padded_table = np.zeros(256, np.int64)
        padded_table[:len(table)] = table
        powers = padded_table[numbers.max(attrs.axis, keepdims=True, initial=np.iinfo(x.dtype).min) - numbers]
        total = rounding_shift(powers, SUM_BITS).sum(attrs.axis, keepdims=True)
        # The sum in Q12.19 is (1 + f) * 2^exponent, with f in [0, 1). A result is power / (1 + f) / 2^exponent: it is
        # shifted from 31 fraction bits to as many as the result's dtype has bits.
        bits = np.frexp(np.maximum(total, 1).astype(np.float64))[1].astype(np.int64)
        exponent = bits - (32 - SUM_BITS)
        inverse = reciprocal((total << (32 - bits)) - (1 << 31))
        limits = np.iinfo("int16" if attrs.get("wide") else x.dtype)
        quotient = rounding_shift(doubling_high(inverse, powers), exponent + 31 - limits.bits) + limits.min
        return (np.clip(quotient, limits.min, limits.max).astype(limits.dtype),)


def table(beta: float, scale: float) -> np.ndarray:
    """Returns exp(-d * beta * scale) for d from 0 to 255, int32 in Q0.31; 0 where the reference kernel underflows.

    beta: TFLite's option. scale: that of x.

    Raises:
        ShapeError: if beta * scale is too small for the reference kernel.
    """
    fraction, shift = frexp(min(beta * scale * 2**26, 2**31 - 1.0))
    significand = floor(fraction * 2**31 + 0.5)
    if significand == 2**31:
        significand, shift = significand // 2, shift + 1
    if shift < 0:
        raise ShapeError(f"softmax of numbers in steps of {beta * scale:g}, which are too small")
    below = -np.arange(256, dtype=np.int64)
    shifted = below << shift
    lowest = -floor(31 * 2**26 / 2**shift)  # the lowest difference whose product is at least -31 in Q5.26
    is_in_range = (below >= lowest) & (shifted >= -(2**31))
    scaled = doubling_high(np.where(is_in_range, shifted, 0), np.int64(significand))
    return np.where(is_in_range, exponentials(scaled), 0).astype(np.int32)


def trim_table(powers: np.ndarray, wide: bool = False) -> np.ndarray:
    """Returns the table without the entries at its end that are too small to change a sum or a result. wide: for a
    result of int16."""
    # A sum rounds entries to multiples of 2^SUM_BITS, so smaller ones than half of that count as 0.
    least = 1 if wide else 1 << SUM_BITS - 1
    return powers[:np.flatnonzero(powers >= least)[-1] + 1]


def _case(shape: tuple[int, ...], axis: int, dtype: str, scale: float, wide: bool = False) -> Case:
    numbers = np.random.default_rng(axis).integers(*((-128, 128) if dtype == "int8" else (0, 256)), shape)
    powers = trim_table(table(1.0, scale), wide)
    attrs = {"axis": axis, "wide": True} if wide else {"axis": axis}
    return Case(((shape, dtype), (powers.shape, "int32")), attrs, (1,), {0: numbers, 1: powers})


SoftmaxFixed.cases = (
    _case((3, 12), 1, "int8", 0.1), _case((2, 5, 7), 1, "uint8", 0.02), _case((1, 1001), 1, "uint8", 0.2),
    _case((4, 1), 1, "int8", 1.5), _case((7, 3), 0, "int8", 0.004), _case((2, 6, 3, 5), 3, "int8", 0.05),
    _case((2, 6, 3, 5), 1, "int8", 0.05), _case((3, 12), 1, "int8", 0.1, wide=True),
    _case((2, 5, 7), 1, "uint8", 0.02, wide=True))
