# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of 8-bit numbers, which passes/quantization/norms.py emits. Sums are exact, so results have the
same bits on every CPU."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_shape
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, f32, register
from .lookup_table import INT8_TYPES, all_values

#: The longest last axis: a sum of as many squares, of differences of at most 255, fits in int32: 2^15 * 255^2 < 2^31.
MAX_LENGTH = 1 << 15


@register
class LayerNormQuantised(Operator):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, with mean and variance along the last axis, quantised.

    Operands: x int8 or uint8 [..., N]; scales float32 [2], of x and of the result; weight and bias float32 [N]. Result:
    [..., N]. Attributes: `epsilon`; `x_zero`: the zero point of x; `dtype`: int8 or uint8, and `zero` of the result.
    """

    kind = "layer_norm_quantised"
    operands = ("x", "scales", "weight?", "bias?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, scales: TensorType, weight: TensorType | None = None,
              bias: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.dtype not in INT8_TYPES or attrs.dtype not in INT8_TYPES or x.rank < 1:
            raise ShapeError(f"normalises lines of {x} as {attrs.dtype}; both are {' or '.join(INT8_TYPES)}")
        require_at_most(x.shape[-1], MAX_LENGTH, f"a sum of {x.shape[-1]} squares exceeds its accumulator")
        require_shape(scales.shape, (2,), f"scales {scales}")
        for operand in filter(None, (weight, bias)):
            require_shape(operand.shape, x.shape[-1:], f"operand {operand} for rows of {x}")
        return (TensorType(attrs.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, scales: np.ndarray, weight: np.ndarray | None = None,
                bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        count, centred = x.shape[-1], x.astype(np.int64) - attrs.x_zero
        total, squares = centred.sum(-1, keepdims=True), np.square(centred).sum(-1, keepdims=True)
        scale = np.float64(scales[0])
        # With the integers q = x - x_zero: variance(q) = (N * sum(q^2) - sum(q)^2) / N^2, whose numerator is exact.
        variance = (count * squares - total * total).astype(np.float64) / (float(count) * count) * (scale * scale)
        inverse = (scale / np.sqrt(variance + attrs.epsilon)).astype(np.float32)
        y = (centred.astype(np.float32) - (total / count).astype(np.float32)) * inverse
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        limits = np.iinfo(np.dtype(attrs.dtype))
        rounded = np.rint(np.nan_to_num(y / scales[1], nan=0.0)).astype(np.float64) + attrs.zero
        return (np.clip(rounded, limits.min, limits.max).astype(attrs.dtype),)


def _case(shape: tuple[int, ...], dtype: str, x_zero: int, result: str, zero: int, weight: bool = True,
          bias: bool = True) -> Case:
    drawn = all_values(dtype)[np.random.default_rng(shape[-1]).integers(0, 256, shape)]
    per_element = f32(shape[-1])
    return Case(((shape, dtype), f32(2), per_element if weight else None, per_element if bias else None),
                {"epsilon": 1e-5, "x_zero": x_zero, "dtype": result, "zero": zero},
                tuple(index for index, given in ((1, True), (2, weight), (3, bias)) if given),
                {0: drawn, 1: np.array([0.07, 0.03])})


LayerNormQuantised.cases = (
    _case((2, 5, 37), "int8", -128, "int8", 127), _case((3, 384), "uint8", 255, "uint8", 0),
    _case((7, 3), "int8", 5, "uint8", 100, bias=False), _case((4, 1), "uint8", 0, "int8", -128, weight=False),
    _case((1, 2, 64), "int8", 127, "int8", -3, weight=False, bias=False))
