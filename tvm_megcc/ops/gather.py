# SPDX-License-Identifier: Apache-2.0
"""Operators that read where indices say."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..ir.dims import product
from ..ir.graph import Attrs, Op
from ..ir.types import TensorType
from .base import Case, Kernel, Lowered, OnnxNode, Operand, Operator, extent_symbols, f32, register
from .move import emit_slice
from .move_kernels import copy_cost, moved
from .rules import axis_of


class GatherRuns(Kernel):
    """Runs copied from where an index says; an index off the axis fails the call."""

    name = "runs"

    def lower(self, op: Op, inputs, outputs, target) -> Lowered:
        x, indices = inputs
        axis = op.attrs.axis % x.rank
        outer, extent, run, count = extent_symbols("OUTER", "EXTENT", "RUN", "COUNT")
        extents = {"OUTER": product(x.shape[:axis]), "EXTENT": x.shape[axis], "RUN": product(x.shape[axis + 1:]),
                   "COUNT": indices.size}
        return Lowered("move/gather", Attrs(moved(x)), extents,
                       (Operand("x", 0, outer * extent * run), Operand("index", 1, count)),
                       (Operand("y", 0, outer * count * run),), outer * count,
                       f"gather_{indices.dtype[3:]}", self.name)

    def cost(self, op, inputs, outputs, target) -> float:
        return copy_cost(outputs[0], 1.5)


@register
class Gather(Operator):
    """Slices of `x` along `axis` at `indices`, negative ones counted from the end."""

    kind = "gather"
    kernels = (GatherRuns(),)
    operands = ("x", "indices")
    onnx = ("Gather",)
    relax = ("relax.take",)
    relay = ("take",)
    cases = (Case((f32(5, 3), ((4,), "int64")), {"axis": 0}, values={1: np.array([0, 4, -1, 2])}),
             Case((f32(2, 5, 3), ((2, 2), "int32")), {"axis": 1}, values={1: np.array([[0, 4], [-5, 2]])}),
             Case((f32(2, 3, 5), ((3,), "int64")), {"axis": 2}, constant=(1,), values={1: np.array([4, 0, 1])}),
             Case((((6, 2), "uint8"), ((), "int64")), {"axis": 0}, values={1: np.array(3)}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if indices.dtype not in ("int32", "int64"):
            raise ShapeError(f"indices are {indices.dtype}, not int32 or int64")
        return (TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.take(x, indices.astype(np.int64), attrs.axis),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        x = node.type(0)
        axis = axis_of(node.attr("axis", 0), x.rank)
        extent = x.shape[axis]
        if node.is_const(1) and isinstance(extent, int):
            indices = node.const(1).astype(np.int64)
            if indices.size and not -extent <= indices.min() <= indices.max() < extent:
                raise ShapeError(f"indices {indices.min()} to {indices.max()} into an axis of {extent}")
            indices = np.where(indices < 0, indices + extent, indices)
            if indices.size == 1:
                start = int(indices.reshape(()))
                part = emit_slice(node, node.inputs[0], axis, start, start + 1)
                shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
                return node.emit("reshape", (part,), shape=shape) if indices.ndim != 1 else (part,)
            return node.emit("gather", (node.inputs[0], node.constant(indices)), axis=axis)
        return node.emit("gather", node.inputs, axis=axis)
