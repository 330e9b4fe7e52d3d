# SPDX-License-Identifier: Apache-2.0
"""Operators that gather elements by indices: ONNX's Gather, GatherElements, GatherND and OneHot, and TVM's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register
from ..elementwise import cast_to
from ..rules import arange_along, axis_of, require_on_axes
from .move import emit_slice


@register
class Gather(Operator):
    """ONNX's Gather, relax.take, Relay's take: the slices of x along an axis at indices.

    Operands: x of any type; indices int32 or int64 of any shape, negative ones count from the end. Result: x's dtype,
    with the shape of the indices instead of the axis. Attribute `axis`.
    """

    kind = "gather"
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
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        return {1: (inputs[0].shape[attrs.axis],)}

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
            require_on_axes(indices, (extent,))
            indices = np.where(indices < 0, indices + extent, indices)
            if indices.size == 1:
                start = int(indices.reshape(()))
                part = emit_slice(node, node.inputs[0], axis, start, start + 1)
                shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
                return node.emit("reshape", (part,), shape=shape) if indices.ndim != 1 else (part,)
            return node.emit("gather", (node.inputs[0], node.constant(indices)), axis=axis)
        return node.emit("gather", node.inputs, axis=axis)


@register
class GatherElements(Operator):
    """ONNX's GatherElements: y[i][j] = x[index[i][j]][j] along an axis, here the first.

    Operands: x of any dtype; indices int32 or int64 of x's rank, negative ones count from the end; other axes of x may
    be longer than those of the indices. Result: x's dtype, the shape of the indices. Attribute `axis`.
    """

    kind = "gather_elements"
    operands = ("x", "indices")
    onnx = ("GatherElements",)
    relax = ("relax.gather_elements",)
    relay = ("gather",)
    cases = (Case((f32(5, 3), ((2, 3), "int64")), {"axis": 0}, values={1: np.array([[0, 4, -1], [2, -5, 1]])}),
             Case((f32(2, 4, 3), ((2, 3, 3), "int32")), {"axis": 1}, values={1: np.arange(18) % 4}),
             Case((((2, 4), "uint8"), ((2, 6), "int64")), {"axis": 1}, values={1: np.arange(12) % 8 - 4}),
             Case((f32(3, 4), ((2, 2), "int64")), {"axis": 0}, values={1: np.array([[0, 2], [-1, 1]])}),
             Case((f32(3, 4, 5, 6), ((2, 3, 7, 5), "int32")), {"axis": 2}, values={1: np.arange(210) % 10 - 5}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        axis = axis_of(attrs.axis, x.rank)
        if indices.rank != x.rank or indices.dtype not in ("int32", "int64"):
            raise ShapeError(f"indices {indices} do not fit {x}")
        for i, (extent, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
            why = f"indices {indices} reach beyond {x} on axis {i}"
            if i != axis:
                require_at_most(count, extent, why)
        return (TensorType(x.dtype, indices.shape),)

    @staticmethod
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        return {1: (inputs[0].shape[attrs.axis],)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        axis = attrs.axis % x.ndim
        part = x[tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))]
        return (np.take_along_axis(part, indices.astype(np.int64), axis),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"axis": axis_of(node.attr("axis", 0), node.type(0).rank)}


@register
class GatherND(Operator):
    """ONNX's GatherND: y[b][i] = x[b][point[b][i]].

    Operands: x of any dtype; indices int32 or int64 [batch axes, ..., D], whose last axis holds the D coordinates of a
    point; negative ones count from the end. Result: x's dtype, [batch axes, ..., axes of x after the point's].
    Attribute `batch`: the number of leading axes that x and indices have in common.
    """

    kind = "gather_nd"
    operands = ("x", "indices")
    onnx = ("GatherND",)
    relax = ("relax.gather_nd",)
    relay = ("gather_nd",)
    cases = (Case((f32(3, 4, 5), ((2, 2), "int64")), {"batch": 0}, values={1: np.array([[0, -1], [2, 1]])}),
             Case((f32(2, 3, 4), ((2, 2, 1), "int32")), {"batch": 1}, values={1: np.array([2, 0, 1, -3])}),
             Case((((3, 4), "int64"), ((5, 2), "int64")), {"batch": 0}, values={1: np.arange(10) % 3}),
             Case((f32(3, 4), ((2,), "int64")), {"batch": 0}, values={1: np.array([2, 1])}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, indices: TensorType) -> tuple[TensorType, ...]:
        depth = indices.shape[-1] if indices.rank else 0
        if attrs.batch < 0 or not isinstance(depth, int) or not 1 <= depth <= x.rank - attrs.batch \
                or indices.rank <= attrs.batch:
            raise ShapeError(f"points {indices} into {x} with {attrs.batch} axes in common")
        for extent, other in zip(x.shape[:attrs.batch], indices.shape, strict=False):
            require_equal(extent, other, f"points {indices} into {x} with {attrs.batch} axes in common")
        return (TensorType(x.dtype, (*indices.shape[:-1], *x.shape[attrs.batch + depth:])),)

    @staticmethod
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        return {1: inputs[0].shape[attrs.batch:][:inputs[1].shape[-1]]}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        batch, depth = attrs.batch, indices.shape[-1]
        points = indices.astype(np.int64)
        slices = [x[element][tuple(np.moveaxis(points[element], -1, 0))] for element in np.ndindex(x.shape[:batch])]
        result = np.stack(slices) if slices else np.zeros(0, x.dtype)
        return (result.reshape((*indices.shape[:-1], *x.shape[batch + depth:])),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {"batch": node.attr("batch_dims", 0)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        points = node.type(1)
        if node.attr("batch_dims", 0) == 0 and points.rank and points.shape[-1] == 1:
            # Points of one coordinate are indices of Gather, which passes know: PyTorch exports `table[tokens]` so.
            (indices,) = node.emit("reshape", (node.inputs[1],), shape=points.shape[:-1])
            return node.emit("gather", (node.inputs[0], indices), axis=0)
        return super().from_onnx(node)


def _depth(node: OnnxNode) -> Dim:
    """Returns the depth of a OneHot, whose operand may have any dtype."""
    if node.is_const(1):
        return int(node.const(1, "depth").reshape(-1)[0])
    (depth,) = node.emit("reshape", cast_to(node, node.inputs[1], "int64"), shape=())
    return node.extents(depth)[0]


@decomposes("OneHot")
def one_hot(node: OnnxNode) -> tuple[str, ...]:
    """Imports OneHot. Operands: indices; depth, the extent of the new axis; values (off, on). The result is `on` where
    the position on the new axis equals the index, else `off`."""
    indices, values = node.type(0), node.inputs[2]
    axis = axis_of(node.attr("axis", -1), indices.rank + 1)
    declared = node.declared_if_unknown(1)
    depth = _depth(node) if declared is None else declared[axis]
    (index,) = cast_to(node, node.inputs[0], "int64")
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    (index,) = node.emit("reshape", (index,), shape=shape)
    (negative,) = node.emit("less", (index, node.constant(np.array(0))))
    (wrapped,) = node.emit("add", (index, node.extent(depth)))
    (index,) = node.emit("where", (negative, wrapped, index))
    (hit,) = node.emit("equal", (index, arange_along(node, depth, axis, len(shape))))
    off, on = (node.emit("reshape", (emit_slice(node, values, 0, i, i + 1),), shape=())[0] for i in (0, 1))
    return node.emit("where", (hit, on, off))
