# SPDX-License-Identifier: Apache-2.0
"""Softmax of 8-bit numbers, rounded as ONNX defines; passes/quantization/softmax.py emits it. Exponentials come from a
table of integers, so that sums are exact; there is one division for each row."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.expr import FUNCTIONS
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register
from .lookup_table import INT8_TYPES, all_values

#: Fraction bits of the table's numbers: the largest one, which stands for exp(0) = 1, is exact in float32.
TABLE_BITS = 23


def table(scale: float) -> np.ndarray:
    """Returns exp(-d * scale) * 2^TABLE_BITS for d from 0 to 255, rounded to int32. scale: that of x."""
    return np.rint(np.exp(-np.arange(256) * np.float64(scale)) * 2.0**TABLE_BITS).astype(np.int32)


@register
class SoftmaxQuantised(Operator):
    """Softmax along the last axis, quantised.

    Operands: x int8 or uint8 [..., N]; table int32 [256], exponentials indexed by how far a number is below the maximum
    of its row; inverse float32 [1], the reciprocal of the result's scale. Result: [..., N]. Attributes: `dtype`: int8
    or uint8, and `zero`, the zero point, of the result.
    """

    kind = "softmax_quantised"
    operands = ("x", "table", "inverse")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, table: TensorType, inverse: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in INT8_TYPES or attrs.dtype not in INT8_TYPES or x.rank < 1:
            raise ShapeError(f"softmax of {x} as {attrs.dtype}; both are {' or '.join(INT8_TYPES)}")
        if (table.dtype, table.shape, inverse.dtype, inverse.shape) != ("int32", (256,), "float32", (1,)):
            raise ShapeError(f"softmax with exponentials {table} and {inverse}")
        return (TensorType(attrs.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, table: np.ndarray, inverse: np.ndarray) -> tuple[np.ndarray, ...]:
        wide = x.astype(np.int64)
        powers = table[wide.max(-1, keepdims=True, initial=np.iinfo(x.dtype).min) - wide]
        total = powers.sum(-1, keepdims=True, dtype=np.int64).astype(np.float32)
        # The sum is at least the table's first number, 2^23, unless the row is empty.
        probability = inverse.astype(np.float32) / np.maximum(total, np.float32(1))
        limits = np.iinfo(np.dtype(attrs.dtype))
        rounded = FUNCTIONS["nearest"].numpy(powers.astype(np.float32) * probability).astype(np.int64) + attrs.zero
        return (np.clip(rounded, limits.min, limits.max).astype(attrs.dtype),)


def _case(shape: tuple[int, ...], dtype: str, scale: float, result: str, zero: int, step: float) -> Case:
    drawn = all_values(dtype)[np.random.default_rng(shape[-1]).integers(0, 256, shape)]
    return Case(((shape, dtype), ((256,), "int32"), ((1,), "float32")), {"dtype": result, "zero": zero}, (1, 2),
                {0: drawn, 1: table(scale), 2: np.array([1 / step])})


SoftmaxQuantised.cases = (
    _case((3, 12), "int8", 0.1, "int8", -128, 1 / 256), _case((2, 5, 37), "uint8", 0.02, "uint8", 0, 1 / 256),
    _case((1, 1001), "uint8", 0.2, "int8", 3, 0.001), _case((4, 1), "int8", 1.5, "uint8", 255, 0.01),
    _case((2, 3, 2, 19), "int8", 0.0, "int8", 127, 0.004))
