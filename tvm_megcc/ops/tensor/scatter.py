# SPDX-License-Identifier: Apache-2.0
"""Operators that scatter elements by indices: ONNX's ScatterElements, ScatterND and TensorScatter, and TVM's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..rules import arange_along, axis_of, same_dtype

#: The reductions, by ONNX's names: how an update `v` is combined with the old value `a`, as a C expression on floats,
#: and as numpy's function; None for the update itself.
REDUCTIONS = {"none": ("v", None), "add": ("a + v", np.add), "mul": ("a * v", np.multiply),
              "max": ("v > a || v != v ? v : a", np.maximum), "min": ("v < a || v != v ? v : a", np.minimum)}


class Scatter(Operator):
    """The base of scatters: a copy of x with updates written at indices.

    Operands: x of any dtype; indices int32 or int64; updates of x's dtype. The result has x's type. Attribute
    `reduction`: one of REDUCTIONS.
    """

    operands = ("x", "indices", "updates")

    @staticmethod
    def overwrites(attrs: Attrs) -> bool:
        return attrs.reduction == "none"

    @staticmethod
    def _check(attrs: Attrs, x: TensorType, indices: TensorType, updates: TensorType) -> None:
        """Raises ShapeError for dtypes, and MegccError for a reduction, that are not supported."""
        same_dtype(x, updates)
        if indices.dtype not in ("int32", "int64"):
            raise ShapeError(f"indices are {indices.dtype}, not int32 or int64")
        if attrs.reduction not in REDUCTIONS:
            raise MegccError(f"reduction '{attrs.reduction}' is not supported; one of {', '.join(REDUCTIONS)}")


@register
class ScatterElements(Scatter):
    """ONNX's ScatterElements: y = x with y[index[i][j]][j] = update[i][j] along an axis, here the first.

    indices have x's rank and the shape of the updates; negative ones count from the end. Attributes: `axis`,
    `reduction`.
    """

    kind = "scatter_elements"
    relax = ("relax.scatter_elements",)
    cases = (Case((f32(5, 3), ((2, 3), "int64"), f32(2, 3)), {"axis": 0, "reduction": "none"},
                  values={1: np.array([[0, 4, -1], [2, -5, 1]])}),
             Case((f32(2, 4, 3), ((2, 3, 2), "int32"), f32(2, 3, 2)), {"axis": 1, "reduction": "add"},
                  values={1: np.arange(12) % 4}),
             Case((f32(3, 5), ((2, 4), "int64"), f32(2, 4)), {"axis": 1, "reduction": "max"},
                  values={1: np.array([[0, 0, 4, -1], [1, 1, 1, 1]])}),
             Case((((2, 4), "uint8"), ((2, 6), "int64"), ((2, 6), "uint8")), {"axis": 1, "reduction": "mul"},
                  values={1: np.arange(12) % 8 - 4}),
             Case((((6,), "int32"), ((3,), "int32"), ((3,), "int32")), {"axis": 0, "reduction": "min"},
                  values={1: np.array([5, 5, 0])}),
             Case((((4,), "bool"), ((2,), "int32"), ((2,), "bool")), {"axis": 0, "reduction": "none"},
                  values={1: np.array([3, -4])}))

    @classmethod
    def infer(cls, attrs: Attrs, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType, ...]:
        cls._check(attrs, x, indices, updates)
        axis = axis_of(attrs.axis, x.rank)
        if indices.rank != x.rank:
            raise ShapeError(f"indices {indices} of {x}")
        require_shape(updates.shape, indices.shape, f"updates {updates} at indices {indices} of {x}")
        for i, (extent, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
            if i != axis:
                require_at_most(count, extent, f"indices {indices} reach beyond {x} on axis {i}")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        return {1: (inputs[0].shape[attrs.axis],)}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> tuple[np.ndarray, ...]:
        result = x.copy()
        positions = list(np.indices(indices.shape))
        positions[attrs.axis] = indices.astype(np.int64)
        return (_apply_updates(result, tuple(positions), updates, attrs.reduction),)


def _apply_updates(result: np.ndarray, positions: tuple, updates: np.ndarray, reduction: str) -> np.ndarray:
    """Writes updates to `result` at positions, and returns it. If several update the same element, the last wins or,
    with a reduction, all are combined."""
    combine = REDUCTIONS[reduction][1]
    if combine is None:
        result[positions] = updates
    else:
        combine.at(result, positions, updates)
    return result


@decomposes("ScatterElements", "Scatter")
def import_scatter_elements(node: OnnxNode) -> tuple[str, ...]:
    """Imports ScatterElements, and Scatter, its name before operator set 11."""
    return node.emit("scatter_elements", node.inputs, axis=axis_of(node.attr("axis", 0), node.type(0).rank),
                     reduction=node.attr("reduction", "none"))


@register
class ScatterND(Scatter):
    """ONNX's ScatterND: y = x with y[point[i]] = update[i].

    indices are [..., D], whose last axis holds the D coordinates of a point; negative ones count from the end. updates
    are [..., axes of x after the point's]. Attribute `reduction`.
    """

    kind = "scatter_nd"
    relax = ("relax.scatter_nd",)
    cases = (Case((f32(3, 4, 5), ((2, 2), "int64"), f32(2, 5)), {"reduction": "none"},
                  values={1: np.array([[0, -1], [2, 1]])}),
             Case((f32(8), ((2, 2, 1), "int32"), f32(2, 2)), {"reduction": "add"}, values={1: np.array([1, 1, 7, -8])}),
             Case((((3, 4), "int64"), ((5, 1), "int64"), ((5, 4), "int64")), {"reduction": "mul"},
                  values={1: np.arange(5) % 3}),
             Case((((4, 3), "float64"), ((3, 1), "int64"), ((3, 3), "float64")), {"reduction": "min"},
                  values={1: np.array([0, 3, 3])}))

    @classmethod
    def infer(cls, attrs: Attrs, x: TensorType, indices: TensorType, updates: TensorType) -> tuple[TensorType, ...]:
        cls._check(attrs, x, indices, updates)
        depth = indices.shape[-1] if indices.rank else 0
        if not isinstance(depth, int) or not 1 <= depth <= x.rank:
            raise ShapeError(f"points {indices} into {x}")
        require_shape(updates.shape, (*indices.shape[:-1], *x.shape[depth:]),
                      f"updates {updates} at points {indices} of {x}")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        return {1: inputs[0].shape[:inputs[1].shape[-1]]}

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> tuple[np.ndarray, ...]:
        points = indices.astype(np.int64).reshape(-1, indices.shape[-1])
        rows = updates.reshape(len(points), *x.shape[points.shape[1]:])
        return (_apply_updates(x.copy(), tuple(points.T), rows, attrs.reduction),)


@decomposes("ScatterND")
def import_scatter_nd(node: OnnxNode) -> tuple[str, ...]:
    """Imports ScatterND."""
    return node.emit("scatter_nd", node.inputs, reduction=node.attr("reduction", "none"))


@decomposes("TensorScatter")
def tensor_scatter(node: OnnxNode) -> tuple[str, ...]:
    """Imports TensorScatter: writes updates into a cache along an axis. Operands: cache, updates, the first index for
    each batch element, int64 [B]. In mode "circular" indices wrap around."""
    past, update = node.type(0), node.type(1)
    axis = axis_of(node.attr("axis", -2), past.rank)
    if axis == 0:
        raise ShapeError("axis 0 is that of the batches")
    index = arange_along(node, update.shape[axis], axis, past.rank)
    if node.has(2):
        (start,) = cast_to(node, node.inputs[2], "int64")
        (start,) = node.emit("reshape", (start,), shape=(update.shape[0], *(1,) * (past.rank - 1)))
        (index,) = emit_broadcast(node, "add", (start, index))
    if node.attr("mode", "linear") == "circular":
        (index,) = node.emit("mod", (index, node.constant(np.array(past.shape[axis], np.int64))))
    return (put_rows(node, node.inputs[0], index, node.inputs[1], axis),)


def put_rows(node: OnnxNode, x: str, index: str, rows: str, axis: int) -> str:
    """Emits x with rows written at positions along an axis.

    index: int64 or int32 [B or 1, 1, …, rows, …, 1], the position of each row.
    """
    (index,) = node.emit("expand", (index,), shape=node.type_of(rows).shape)
    return node.emit("scatter_elements", (x, index, rows), axis=axis, reduction="none")[0]
