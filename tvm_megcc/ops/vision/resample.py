# SPDX-License-Identifier: Apache-2.0
"""Weighted sums of neighbours along one axis, for cubic and antialiased interpolation (vision/resize.py) and adaptive
average pooling."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import number
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register


def _case(shape: tuple[int, ...], axis: int, first: list[int], taps: int) -> Case:
    return Case((f32(*shape), ((len(first),), "int32"), f32(len(first), taps)), {"axis": axis}, (1, 2),
                {1: np.array(first)})


@register
class Resample(Operator):
    """y[o] = sum over t of weight[o][t] * x[first[o] + t] along attribute `axis`.

    Operands: x of floats; first int32 [O]; weight float32 [O, T]. first[o] + T is at most the extent of the axis.
    Result: x's type, with O elements along the axis.
    """

    kind = "resample"
    operands = ("x", "first", "weight")
    cases = (_case((1, 20, 7, 5), 2, [0, 1, 3, 3], 4), _case((2, 5, 6, 9), 3, [6, 0, 2, 4, 1], 3),
             _case((3, 8, 2), 1, [7, 0, 3], 1))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, first: TensorType, weight: TensorType) -> tuple[TensorType, ...]:
        why = f"tables {first} and {weight} do not belong together"
        if weight.rank != 2 or first.dtype != "int32":
            raise ShapeError(why)
        require_shape(first.shape, weight.shape[:1], why)
        return (x.with_shape((*x.shape[:attrs.axis], first.shape[0], *x.shape[attrs.axis + 1:])),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, first: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
        moved = np.moveaxis(x, attrs.axis, -1)
        taken = moved[..., first.astype(np.int64)[:, None] + np.arange(weight.shape[1])]
        total = (taken.astype(np.float64) * weight).sum(-1)
        return (np.ascontiguousarray(np.moveaxis(total, -1, attrs.axis)).astype(x.dtype),)


def resample_tables(indices: np.ndarray, weights: np.ndarray, extent: int, taps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the operands `first` and `weight` of a resample for given neighbours. Indices outside of the axis are
    clamped to its border.

    Args:
        indices: [O, T], consecutive in each row.
        weights: float64 [O, T].
        extent: that of the axis.
        taps: the number of neighbours in the operands.
    """
    first = np.clip(indices[:, 0], 0, extent - taps)
    table = np.zeros((len(indices), taps))
    np.add.at(table, (np.arange(len(indices))[:, None], np.clip(indices, 0, extent - 1) - first[:, None]), weights)
    return first.astype(np.int32), table.astype(np.float32)


def adaptive_means(node: OnnxNode, value: str, axis: int, size: int) -> str:
    """Emits adaptive average pooling along an axis, as relax.nn.adaptive_avg_pool2d: the means of `size` windows that
    cover it as evenly as possible, and may overlap."""
    extent = number(node.type_of(value).shape[axis])
    node.require_budget(size, -(-extent // size) + 1)
    starts = np.arange(size) * extent // size
    ends = -(-(np.arange(size) + 1) * extent // size)
    indices = starts[:, None] + np.arange((ends - starts).max())
    means = (indices < ends[:, None]) / (ends - starts)[:, None]  # weight 0 after the end of a shorter window
    tables = resample_tables(indices, means, extent, taps=min(indices.shape[1], extent))
    return node.emit("resample", (value, *map(node.constant, tables)), axis=axis)[0]
