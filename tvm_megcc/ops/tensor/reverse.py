# SPDX-License-Identifier: Apache-2.0
"""ONNX's ReverseSequence: reverses each sequence of a batch over its own length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from ..rules import axis_of


@register
class ReverseSequence(Operator):
    """ONNX's ReverseSequence: y[t, b] = x[length[b] - 1 - t, b] where t < length[b], else x[t, b].

    Operands: x of any dtype, [T, B, ...] or [B, T, ...]; length int32 or int64 [B], from 0 to T. The result has x's
    type. Attribute `time`: the axis T, 0 or 1.
    """

    kind = "reverse_sequence"
    operands = ("x", "length")
    onnx = ("ReverseSequence",)
    relax = ("relax.reverse_sequence",)
    relay = ("reverse_sequence",)
    cases = (Case((f32(5, 4, 3), ((4,), "int64")), {"time": 0}, values={1: np.array([0, 1, 5, 3])}),
             Case((((3, 6), "int8"), ((3,), "int32")), {"time": 1}, values={1: np.array([6, 2, 5])}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, length: TensorType) -> tuple[TensorType, ...]:
        why = f"lengths {length} of sequences {x}, time on axis {attrs.time}"
        if x.rank < 2 or length.dtype not in ("int32", "int64"):
            raise ShapeError(why)
        require_shape(length.shape, (x.shape[1 - attrs.time],), why)
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        return {1: (0, inputs[0].shape[attrs.time])}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, ...]:
        time_first = np.moveaxis(x, attrs.time, 0)
        t = np.arange(len(time_first))[:, None]
        source = np.where(t < length, length - 1 - t, t)
        reversed_ = time_first[source, np.arange(time_first.shape[1])]
        return (np.ascontiguousarray(np.moveaxis(reversed_, 0, attrs.time)),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        rank = node.type(0).rank
        time, batch = axis_of(node.attr("time_axis", 0), rank), axis_of(node.attr("batch_axis", 1), rank)
        if time == batch:
            raise ShapeError(f"time and batch are the same axis {time}")
        if {time, batch} == {0, 1}:
            return node.emit(cls.kind, node.inputs, time=time)
        perm = (time, batch, *(axis for axis in range(rank) if axis not in (time, batch)))
        (value,) = node.emit("transpose", node.inputs[:1], perm=perm)
        (value,) = node.emit(cls.kind, (value, *node.inputs[1:]), time=0)
        return node.emit("transpose", (value,), perm=tuple(perm.index(axis) for axis in range(rank)))
