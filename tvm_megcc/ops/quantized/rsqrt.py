# SPDX-License-Identifier: Apache-2.0
"""1 / sqrt of integers in fixed point, as in LiteRT's reference kernels, and TFLite's L2_NORMALIZATION, which uses
it."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most
from ...ir.expr import FUNCTIONS
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from ..rules import axis_of
from .softmax_int8 import doubling_high, rounding_shift, saturating_shift_left

#: The number of steps of Newton's method; sqrt(2) / 2 in Q0.31, a fixed-point number with 31 fraction bits.
NEWTON_STEPS, HALF_ROOT = 5, 1518500250


def inverse_root(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns 1 / sqrt of int32 ≥ 0 as significands in Q0.31 and shifts, which `rescale_fixed` takes; 0 counts as 1.
    Source: LiteRT's GetInvSqrtQuantizedMultiplierExp.

    A value is brought to [2^27, 2^29) by a power of 4, whose root is a shift, and its half is read as v in Q3.28, from
    1/4 to 1. Newton's method for 1 / sqrt(v) is x = 3/2 * x - v/2 * x^3, from x = 1.
    """
    given = np.asarray(values, np.int64)
    wide = np.maximum(given, 2)
    # For a value V in this range 1 / sqrt(V) = x * sqrt(1/2) / 2^14. x has 28 fraction bits, a significand 31: 3 more,
    # so it is shifted by 14 - 3.
    shift = np.full(wide.shape, 11, np.int64)
    while (wide >= 1 << 29).any():
        shift += wide >= 1 << 29
        wide = np.where(wide >= 1 << 29, wide // 4, wide)
    bit_length = np.frexp(wide.astype(np.float64))[1]
    powers_of_4 = (31 - bit_length) // 2 - 1  # by which a value below 2^27 is multiplied
    shift -= powers_of_4
    normalised = wide << (2 * powers_of_4)
    half_value = rounding_shift(normalised >> 1, 1)
    x = np.full(wide.shape, 1 << 28, np.int64)
    three_halves = np.asarray(3 << 27)
    for _ in range(NEWTON_STEPS):
        # A product of numbers with m and n integer bits has m + n of them; shifts return to Q3.28.
        cube = saturating_shift_left(doubling_high(doubling_high(x, x), x), 6)
        x = saturating_shift_left(doubling_high(three_halves, x) - doubling_high(half_value, cube), 3)
    significand = doubling_high(x, np.asarray(HALF_ROOT))
    significand, shift = significand << np.maximum(-shift, 0), np.maximum(shift, 0)
    is_one = given <= 1
    return np.where(is_one, 2**31 - 1, significand), np.where(is_one, 0, -shift)


#: The longest axis: a sum of as many squares of 9-bit numbers fits in int32.
MAX_LENGTH = 2**15


@register
class L2Fixed(Operator):
    """TFLite's L2_NORMALIZATION: x / sqrt(sum of squares of x along an axis), for x int8 or uint8.

    The result has x's type, the scale 1 / 128, and the zero point 128 for uint8, 0 for int8. Attributes: `axis`;
    `zero`: the zero point of x.
    """

    kind = "l2_fixed"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if x.dtype not in ("int8", "uint8"):
            raise ShapeError(f"normalisation of {x}")
        require_at_most(x.shape[axis], MAX_LENGTH, f"a sum of {x.shape[axis]} squares exceeds its accumulator")
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """Computes as LiteRT does: uint8 numbers are shifted left by 7 first, int8 ones use a shift greater by 7."""
        wide = x.astype(np.int64) - attrs.zero
        significand, shift = inverse_root((wide * wide).sum(attrs.axis, keepdims=True))
        signed = x.dtype == np.int8
        rescale = FUNCTIONS["rescale_fixed"].numpy
        values = (wide if signed else wide * 128).astype(np.int32)
        found = rescale(values, significand, shift + 7 if signed else shift) + (0 if signed else 128)
        limits = np.iinfo(x.dtype)
        return (np.clip(found, limits.min, limits.max).astype(x.dtype),)


def _case(shape: tuple[int, ...], axis: int, dtype: str, zero: int) -> Case:
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(axis).integers(limits.min, limits.max + 1, shape)
    return Case(((shape, dtype),), {"axis": axis, "zero": zero}, (), {0: numbers})


L2Fixed.cases = (_case((3, 12), 1, "int8", 3), _case((2, 5, 7), 1, "uint8", 128), _case((1, 1001), 1, "uint8", 0),
                 _case((4, 1), 1, "int8", -128), _case((7, 3), 0, "int8", 127), _case((2, 6, 3, 5), 3, "uint8", 255),
                 _case((2, 6, 3, 5), 1, "int8", 0))
