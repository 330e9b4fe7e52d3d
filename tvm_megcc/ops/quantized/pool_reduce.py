# SPDX-License-Identifier: Apache-2.0
"""int32 sums of 8-bit numbers, over windows and over axes. passes/quantization/reductions.py computes means and average
pools from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, register
from ..math.reduce import Reduction
from ..nn.pool import SumPool, window_taps
from .lookup_table import INT8_TYPES, all_values


def _require_int8(x: TensorType) -> None:
    """Raises ShapeError unless x is int8 or uint8."""
    if x.dtype not in INT8_TYPES:
        raise ShapeError(f"sums of {x}; operands are {' or '.join(INT8_TYPES)}")


@register
class SumPoolInteger(SumPool):
    """The sum of x - x_zero over each window, int32, for x int8 or uint8 [N, C, H, W]; pads are zeros. Attributes:
    those of pools; `x_zero`: the zero point of x."""

    kind = "sum_pool_integer"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        _require_int8(x)
        (sums,) = SumPool.infer(attrs, x)
        return (TensorType("int32", sums.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(sum(window_taps(attrs, x.astype(np.int32) - np.int32(attrs.x_zero), fill=0))),)


@register
class ReduceSumInteger(Reduction):
    """The sum of x - x_zero over some axes, int32, for x int8 or uint8. Attributes: those of reductions; `x_zero`: the
    zero point of x."""

    kind = "reduce_sum_integer"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        _require_int8(x)
        (sums,) = Reduction.infer(attrs, x)
        return (TensorType("int32", sums.shape),)

    @classmethod
    def compute(cls, attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        centred = x.astype(np.int32) - np.int32(attrs.x_zero)
        return (centred.sum(tuple(attrs.axes), keepdims=bool(attrs.keepdims), dtype=np.int32),)


def _case(shape: tuple[int, ...], dtype: str, zero: int, **attrs: Any) -> Case:
    drawn = all_values(dtype)[np.random.default_rng(len(shape)).integers(0, 256, shape)]
    return Case(((shape, dtype),), {**attrs, "x_zero": zero}, values={0: drawn})


def _pool(shape: tuple[int, ...], kernel: tuple[int, int], strides: tuple[int, int] = (1, 1),
          pads: tuple[int, ...] = (0, 0, 0, 0), dilations: tuple[int, int] = (1, 1), ceil: bool = False,
          dtype: str = "int8", zero: int = 0) -> Case:
    return _case(shape, dtype, zero, kernel=kernel, strides=strides, pads=pads, dilations=dilations, ceil=ceil)


SumPoolInteger.cases = (
    _pool((1, 16, 8, 8), (2, 2), (2, 2), zero=-128),
    _pool((2, 20, 13, 17), (3, 3), (2, 2), (1, 1, 1, 1), dtype="uint8", zero=131),
    _pool((1, 33, 9, 10), (3, 3), (2, 2), ceil=True, zero=127),
    _pool((1, 3, 10, 19), (2, 3), (1, 1), (1, 1, 0, 2), (2, 2), dtype="uint8"),
    _pool((1, 64, 25, 5), (25, 5), zero=5))
ReduceSumInteger.cases = tuple(
    _case(shape, dtype, zero, axes=axes, keepdims=keep) for shape, axes, keep, dtype, zero in (
        ((1, 32, 7, 7), (2, 3), True, "int8", -128), ((2, 19, 5, 3), (2, 3), False, "uint8", 255),
        ((1, 70, 1, 1), (2, 3), True, "uint8", 3), ((3, 5, 77), (2,), True, "int8", 7),
        ((4, 300, 21), (1,), False, "int8", -5), ((37, 4), (0,), True, "uint8", 128),
        ((3, 4, 5), (0, 1, 2), False, "int8", 1),
        ((1, 1, 40, 3), (3,), True, "int8", 0)))
