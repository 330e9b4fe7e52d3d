# SPDX-License-Identifier: Apache-2.0
"""TFLite's LOG_SOFTMAX of int8 or uint8, computed in integers as by LiteRT's reference kernel with gemmlowp's
fixed-point numbers. Exponentials come from a table; the logarithm of their sum is a rational function around a power of
the square root of 2.

Qm.n is a fixed-point number with m integer bits and n fraction bits.
"""

from __future__ import annotations

from math import floor, frexp

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most
from ...ir.expr import FUNCTIONS
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from ..rules import axis_of
from . import softmax_int8
from .softmax_int8 import MAX_LENGTH, SUM_BITS, doubling_high, reciprocal, rounding_shift, saturating_shift_left

#: The length of the operand `tables`.
TABLES_LENGTH = 2 * 256 + 3
#: Indices in it: of the lowest difference that counts, in steps (units of x); and of the significand of the multiplier
#: from Q5.26 to steps, which its shift follows.
LEAST_INDEX, MULTIPLIER_INDEX = 512, 513
#: log(2), and the fourth and the square root of 1/2, in Q0.31.
LOG_2, FOURTH_ROOT, ROOT = 1488522236, 1805811301, 1518500250
#: The coefficients of the rational function in `logarithm`, in Q0.31: that of the numerator's cubic term; of the
#: denominator the quadratic, the constant and the linear one.
NUMERATOR, DENOMINATOR, CONSTANT, LINEAR = 117049297, 127690142, 1057819769, 638450708
#: The terms of the logarithm are Q6.25; 1/4 in this format.
INTEGER_BITS = 6
QUARTER = 1 << (29 - INTEGER_BITS)


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    """Counts the leading zeros of positive int32."""
    return 32 - np.frexp(a.astype(np.float64))[1].astype(np.int64)


def logarithm(total: np.ndarray) -> np.ndarray:
    """Returns the logarithm in Q5.26 of numbers in Q12.19 that are at least 1. Source: LiteRT's
    log_x_for_x_greater_than_or_equal_to_1_impl.

    A number is m / 0.5^(1/4) * 2^e, with m in [0.5^(1/2), 1) and e an integer plus or minus 1/4. So its logarithm is
    e * log(2) plus that of m / 0.5^(1/4), which is near 1: a rational function of 2 * (m - 0.5^(1/4)).

    From softmax_int8: `doubling_high` is the product of numbers in Q0.31, `reciprocal(x)` is 1 / (1 + x), and SUM_BITS
    are the 12 integer bits of the numbers.
    """
    # m and e with 1/4 added and with 1/4 subtracted. One of both is wrong: its m would be 1 or more, and saturates. It
    # has the greater m and, since both stand for the same number, the lower e.
    zeros = _leading_zeros(total)
    m_plus = saturating_shift_left(doubling_high(saturating_shift_left(total, zeros - 1), np.int64(ROOT)), 1)
    e_plus = saturating_shift_left(SUM_BITS - zeros, 31 - INTEGER_BITS) + QUARTER
    left = _leading_zeros(doubling_high(total, np.int64(ROOT))) - 1
    m_minus = saturating_shift_left(total, left)
    e_minus = saturating_shift_left(SUM_BITS - left, 31 - INTEGER_BITS) - QUARTER
    m, e = np.minimum(m_plus, m_minus), np.maximum(e_plus, e_minus)
    middle, distance = (m + FOURTH_ROOT + 1) // 2, 2 * (m - FOURTH_ROOT)
    square = doubling_high(distance, distance)
    numerator = doubling_high(distance, m) + doubling_high(doubling_high(distance, square), np.int64(NUMERATOR))
    denominator_minus_1 = doubling_high(middle, CONSTANT + distance + doubling_high(square, np.int64(DENOMINATOR)))
    denominator_minus_1 = denominator_minus_1 + doubling_high(distance, np.int64(LINEAR))
    quotient = doubling_high(rounding_shift(numerator, INTEGER_BITS), reciprocal(denominator_minus_1))
    return saturating_shift_left(doubling_high(e, np.int64(LOG_2)) + quotient, 1)


@register
class LogSoftmaxFixed(Operator):
    """TFLite's LOG_SOFTMAX along attribute `axis` of x, int8 or uint8. The result has x's type and the scale 1 / 16;
    its largest integer stands for 0.

    Operand tables, int32 [515], the result of `tables`: 256 exponentials in Q0.31 and 256 scaled differences in Q5.26,
    both indexed by how many steps (units of x) a number is below the maximum; the lowest difference that counts, in
    steps; significand and shift of the multiplier from Q5.26 to steps.
    """

    kind = "log_softmax_fixed"
    operands = ("x", "tables")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, tables: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if x.dtype not in ("int8", "uint8") or (tables.dtype, tables.shape) != ("int32", (TABLES_LENGTH,)):
            raise ShapeError(f"log-softmax of {x} with tables of {tables}")
        require_at_most(x.shape[axis], MAX_LENGTH, f"a sum of {x.shape[axis]} exponentials exceeds its accumulator")
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, ...]:
        low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
        below = x.max(attrs.axis, keepdims=True, initial=low).astype(np.int64) - x
        powers, differences = (tables[start:start + 256].astype(np.int64)[below] for start in (0, 256))
        total = np.maximum(rounding_shift(powers, SUM_BITS).sum(attrs.axis, keepdims=True), 1)
        logs = logarithm(total)
        # A number gives the lowest integer if -below <= least, because its scaled difference, or that minus the
        # logarithm, does not fit in Q5.26.
        factor = tables[MULTIPLIER_INDEX:].astype(np.int64)
        least = FUNCTIONS["rescale_fixed"].numpy((logs - 2**31).astype(np.int32), *factor)
        least = np.maximum(least, np.int64(tables[LEAST_INDEX]) - 1)
        values = np.clip(rounding_shift(differences - logs, 26 - 4) + high, low, high)  # Q5.26 in units of 1 / 16
        return (np.where(-below > least, values, low).astype(x.dtype),)


def tables(scale: float) -> np.ndarray:
    """Returns the operand `tables` for x of this scale.

    Raises:
        ShapeError: if the scale is too small for the reference kernel.
    """
    powers = softmax_int8.table(1.0, scale)
    significand, shift = _multiplier(min(scale * 2.0**26, 2**31 - 1.0))
    wide = np.clip(-np.arange(256, dtype=np.int64) << shift, -2**31, 0)
    differences = doubling_high(wide, np.int64(significand))
    least = -floor(31 * 2**26 / 2**shift)  # the lowest difference that is at least -31 in Q5.26 after the shift
    inverse = _multiplier(2.0**(31 - shift) / significand)
    return np.array([*powers, *differences, least, *inverse], np.int64).astype(np.int32)


def _multiplier(real: float) -> tuple[int, int]:
    """Returns the fixed-point multiplier of a number: a significand in Q0.31 and a shift."""
    fraction, shift = frexp(real)
    significand = floor(fraction * 2**31 + 0.5)
    return (significand // 2, shift + 1) if significand == 2**31 else (significand, shift)


def _case(shape: tuple[int, ...], axis: int, scale: float, dtype: str = "int8") -> Case:
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(axis).integers(limits.min, limits.max + 1, shape)
    return Case(((shape, dtype), ((TABLES_LENGTH,), "int32")), {"axis": axis}, (1,), {0: numbers, 1: tables(scale)})


LogSoftmaxFixed.cases = (_case((3, 12), 1, 0.1), _case((2, 5, 7), 1, 0.02), _case((1, 1001), 1, 0.2),
                         _case((4, 1), 1, 1.5), _case((7, 3), 0, 0.004), _case((2, 6, 3, 5), 3, 0.05),
                         _case((2, 6, 3, 5), 1, 0.3), _case((3, 12), 1, 0.1, "uint8"),
                         _case((2, 5, 7), 1, 0.7, "uint8"))
