# SPDX-License-Identifier: Apache-2.0
"""TFLite's REDUCE_PROD of quantised numbers along the last axis, requantized after each factor as by LiteRT's reference
kernel."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register

DTYPES = ("int8", "int16")


def _requantize(values: np.ndarray, significand: int, bits: int) -> np.ndarray:
    """Returns values * significand / 2^bits, rounded to the nearest, ties up, and wrapped to int32."""
    return ((values * np.int64(significand) + (np.int64(1) << (bits - 1))) >> bits).astype(np.int32).astype(np.int64)


@register
class ProductFixed(Operator):
    """The product of x - zero over the last axis, requantized after each factor from the second on, and at the end.

    Operand: x int8 or int16 [..., N]. Result: x's dtype, [...]. Attributes: `zero` and `result_zero`: the zero points;
    `significand`, 0 to 2^15 - 1, and `bits`, 1 to 62: the multiplier of each requantization is significand / 2^bits.
    """

    kind = "product_fixed"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in DTYPES or x.rank < 1:
            raise ShapeError(f"product of {x}; operands are {' or '.join(DTYPES)}")
        require_at_most(1, x.shape[-1], "a product of no numbers is not defined")
        if not (0 <= attrs.significand < 2**15 and 1 <= attrs.bits <= 62):
            raise ShapeError(f"a factor of {attrs.significand} / 2^{attrs.bits}")
        return (x.with_shape(x.shape[:-1]),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        factors = x.astype(np.int64) - attrs.zero
        total = factors[..., 0]
        for index in range(1, x.shape[-1]):
            total = _requantize(total * factors[..., index], attrs.significand, attrs.bits)
        limits = np.iinfo(x.dtype)
        result = _requantize(total, attrs.significand, attrs.bits) + attrs.result_zero
        return (np.clip(result, limits.min, limits.max).astype(x.dtype),)


def _case(shape: tuple[int, ...], dtype: str, significand: int, bits: int, zero: int = 0,
          result_zero: int = 0) -> Case:
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(len(shape)).integers(limits.min, limits.max + 1, shape)
    attrs = {"zero": zero, "result_zero": result_zero, "significand": significand, "bits": bits}
    return Case(((shape, dtype),), attrs, values={0: drawn})


ProductFixed.cases = (
    _case((7, 5), "int8", 20000, 21, -128, 127), _case((2, 3, 4), "int16", 32767, 29),
    _case((9,), "int8", 16385, 20, 5), _case((3, 1), "int8", 17000, 15, 127, -128), _case((4, 300), "int16", 30000, 30),
    _case((2, 6), "int8", 0, 62))
