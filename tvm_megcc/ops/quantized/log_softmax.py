# SPDX-License-Identifier: Apache-2.0
"""8-bit log-softmax in integers, as in TFLite's reference kernel with gemmlowp's fixed-point numbers. Exponentials come
from a table; the logarithm of their sum is a rational function around a power of the square root of 2."""

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
from .softmax_int8 import LONGEST, SUM_BITS, doubling_high, reciprocal, rounding_shift

#: The length of the operand `tables`, and the indices in it of the least difference that counts and of the multiplier
#: from Q5.26 to differences.
ENTRIES, LEAST, FACTOR = 2 * 256 + 3, 512, 513
#: In Q0.31: log(2), 0.5^(1/4), 0.5^(1/2), and the coefficients of numerator and denominator.
LOG_2, FOURTH_ROOT, ROOT = 1488522236, 1805811301, 1518500250
OVER, UNDER, CONSTANT, LINEAR = 117049297, 127690142, 1057819769, 638450708
#: Integer bits of the terms of the logarithm and of the result; 1/4 in the former.
BITS = 6
QUARTER = 1 << (29 - BITS)


def _left(a: np.ndarray, bits: int | np.ndarray) -> np.ndarray:
    return np.clip(a << bits, -2**31, 2**31 - 1)


def _zeros(a: np.ndarray) -> np.ndarray:
    """Counts the leading zeros of positive int32."""
    return 32 - np.frexp(a.astype(np.float64))[1].astype(np.int64)


def logarithm(total: np.ndarray) -> np.ndarray:
    """Computes the logarithm of Q12.19 numbers of at least 1, in Q5.26."""
    zeros = _zeros(total)
    first = _left(doubling_high(_left(total, zeros - 1), np.int64(ROOT)), 1)
    power = _left(SUM_BITS - zeros, 31 - BITS) + QUARTER
    log2 = _zeros(doubling_high(total, np.int64(ROOT))) - 1
    rest = np.minimum(first, _left(total, log2))
    power = np.maximum(power, _left(SUM_BITS - log2, 31 - BITS) - QUARTER)
    middle, twice = (rest + FOURTH_ROOT + 1) // 2, 2 * (rest - FOURTH_ROOT)
    square = doubling_high(twice, twice)
    over = doubling_high(twice, rest) + doubling_high(doubling_high(twice, square), np.int64(OVER))
    under = doubling_high(middle, CONSTANT + twice + doubling_high(square, np.int64(UNDER)))
    under = under + doubling_high(twice, np.int64(LINEAR))
    quotient = doubling_high(rounding_shift(over, BITS), reciprocal(under))
    return _left(doubling_high(power, np.int64(LOG_2)) + quotient, 1)


@register
class LogSoftmaxFixed(Operator):
    """Log-softmax along attribute `axis` of x, int8 or uint8. The result's scale is 1 / 16; 0 is the largest integer.

    Operand `tables`: int32 [515]: 256 exponentials in Q0.31 and 256 scaled differences in Q5.26, both indexed by how
    far a number is below the maximum; the least difference that counts; significand and shift from Q5.26 to
    differences.
    """

    kind = "log_softmax_fixed"
    operands = ("x", "tables")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, tables: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if x.dtype not in ("int8", "uint8") or (tables.dtype, tables.shape) != ("int32", (ENTRIES,)):
            raise ShapeError(f"log-softmax of {x} with tables of {tables}")
        require_at_most(x.shape[axis], LONGEST, f"sums of {x.shape[axis]} exponentials have no room")
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, ...]:
        low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
        below = x.max(attrs.axis, keepdims=True, initial=low).astype(np.int64) - x
        powers, differences = (tables[start:start + 256].astype(np.int64)[below] for start in (0, 256))
        total = np.maximum(rounding_shift(powers, SUM_BITS).sum(attrs.axis, keepdims=True), 1)
        logs = logarithm(total)
        factor = tables[FACTOR:].astype(np.int64)
        least = FUNCTIONS["rescale_fixed"].numpy((logs - 2**31).astype(np.int32), *factor)
        least = np.maximum(least, np.int64(tables[LEAST]) - 1)
        values = np.clip(rounding_shift(differences - logs, 31 - 5 - 4) + high, low, high)
        return (np.where(-below > least, values, low).astype(x.dtype),)


def tables(scale: float) -> np.ndarray:
    """Returns the operand `tables` for numbers of this scale.

    Raises:
        ShapeError: if the scale is too small for the reference kernel.
    """
    powers = softmax_int8.table(1.0, scale)
    significand, shift = _multiplier(min(scale * 2.0**26, 2**31 - 1.0))
    wide = np.clip(-np.arange(256, dtype=np.int64) << shift, -2**31, 0)
    differences = doubling_high(wide, np.int64(significand))
    back = _multiplier(2.0**(31 - shift) / significand)
    return np.array([*powers, *differences, -floor(31 * 2**26 / 2**shift), *back], np.int64).astype(np.int32)


def _multiplier(real: float) -> tuple[int, int]:
    fraction, shift = frexp(real)
    significand = floor(fraction * 2**31 + 0.5)
    return (significand // 2, shift + 1) if significand == 2**31 else (significand, shift)


def _case(shape: tuple[int, ...], axis: int, scale: float, dtype: str = "int8") -> Case:
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(axis).integers(limits.min, limits.max + 1, shape)
    return Case(((shape, dtype), ((ENTRIES,), "int32")), {"axis": axis}, (1,), {0: numbers, 1: tables(scale)})


LogSoftmaxFixed.cases = (_case((3, 12), 1, 0.1), _case((2, 5, 7), 1, 0.02), _case((1, 1001), 1, 0.2),
                         _case((4, 1), 1, 1.5), _case((7, 3), 0, 0.004), _case((2, 6, 3, 5), 3, 0.05),
                         _case((2, 6, 3, 5), 1, 0.3), _case((3, 12), 1, 0.1, "uint8"),
                         _case((2, 5, 7), 1, 0.7, "uint8"))
