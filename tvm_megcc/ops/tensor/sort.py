# SPDX-License-Identifier: Apache-2.0
"""Operators that order elements: ONNX's TopK, relax.topk, sort and argsort."""

from __future__ import annotations

import numpy as np

from ...ir.conditions import require_at_most
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register
from ..rules import axis_of


@register
class TopK(Operator):
    """ONNX's TopK: the k largest or smallest elements along an axis, the best first, and their indices, int64.

    Operand: x of numbers. Both results have x's shape with k elements along the axis. Attributes: `axis`; `k`;
    `largest`: false for the smallest. The first of equal elements is the better one; NaN is larger than any number.
    """

    kind = "top_k"
    onnx = ("TopK",)
    relax = ("relax.topk", "relax.sort", "relax.argsort")
    cases = (Case((f32(3, 40),), {"axis": 1, "k": 7, "largest": True}),
             Case((f32(2, 9, 5),), {"axis": 1, "k": 9, "largest": False}),
             Case((((4, 30), "int32"),), {"axis": 1, "k": 12, "largest": True}),
             Case((((30, 4), "uint8"),), {"axis": 0, "k": 5, "largest": False}),
             Case((((1, 6), "float64"),), {"axis": 1, "k": 4, "largest": True},
                  values={0: np.array([1, np.nan, np.inf, 1, np.nan, 0])}),
             Case((f32(1, 6),), {"axis": 1, "k": 5, "largest": False},
                  values={0: np.array([1, np.nan, -np.inf, 1, np.nan, 0])}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        why = f"the best {attrs.k} of {x.shape[axis]} elements"
        require_at_most(0, attrs.k, why)
        require_at_most(attrs.k, x.shape[axis], why)
        shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1:])
        return TensorType(x.dtype, shape), TensorType("int64", shape)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        axis, extent = attrs.axis, x.shape[attrs.axis]
        if attrs.largest:  # sorting the reversed axis keeps the first of equal elements first after the final reversal
            order = np.flip(extent - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(x, axis, kind="stable")
        indices = np.take(order, np.arange(attrs.k), axis)
        return np.take_along_axis(x, indices, axis), indices.astype(np.int64)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        axis = axis_of(node.attr("axis", -1), node.type(0).rank)
        if node.opset < 10:
            k = node.attr("k")
        elif (shape := node.declared_if_unknown(1)) is not None:
            k = shape[axis]
        else:
            (k,) = node.dims(1, "k", limit=node.type(0).shape[axis])
        return node.emit(cls.kind, node.inputs[:1], axis=axis, k=k, largest=bool(node.attr("largest", 1)))
