# SPDX-License-Identifier: Apache-2.0
"""Imports operators that gather or scatter elements by indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most
from ...ops.elementwise import cast_to, emit_broadcast
from ...ops.rules import arange_along, axis_of
from ...ops.tensor.scatter import put_rows
from .node import Node, Results, imports


@imports("GATHER")
def gather(node: Node) -> Results:
    """Operands: x, indices. The first BatchDims axes are common to both."""
    rank = len(node.value(0).order)
    axis, batch = axis_of(node.option("Axis", 0), rank), node.option("BatchDims", 0)
    indices = node.type(1)
    if batch == 0:
        return node.onnx("Gather", node.plain(0), node.plain(1), axis=axis)
    batch += indices.rank if batch < 0 else 0
    if not 0 < batch <= min(axis, indices.rank):
        raise ShapeError(f"has {batch} axes of batches, indices {indices} and axis {axis}")
    rank, index_rank = len(node.type(0).shape), indices.rank - batch
    between = range(batch, axis)  # axes between the batch and `axis`; in the result they precede the indices' axes
    x = node.in_order(node.value(0), (*range(batch), axis, *between, *range(axis + 1, rank)))
    points = node.emit("reshape", node.plain(1), shape=(*indices.shape, 1))
    found = node.emit("gather_nd", x, points, batch=batch)
    if not between:
        return [found]
    index_axes = range(batch, batch + index_rank)
    between_axes = range(index_axes.stop, index_axes.stop + len(between))
    perm = (*range(batch), *between_axes, *index_axes, *range(between_axes.stop, rank + index_rank - 1))
    return [node.emit("transpose", found, perm=perm)]


@imports("GATHER_ND")
def gather_nd(node: Node) -> Results:
    return [node.emit("gather_nd", node.plain(0), node.plain(1), batch=0)]


@imports("WHERE")
def where(node: Node) -> Results:
    """Returns the indices of the nonzero elements, int64 [n, rank]; n is known at run time only."""
    return node.onnx("Transpose", *node.onnx("NonZero", node.plain(0)))


@imports("MATRIX_DIAG")
def matrix_diag(node: Node) -> Results:
    """Puts the last axis on the diagonal of a matrix that is 0 elsewhere: [..., n] -> [..., n, n]."""
    shape, dtype = node.type(0).shape, node.type(0).dtype
    if not isinstance(shape[-1], int):
        raise MegccError(f"has a diagonal of {shape[-1]} elements; their number has to be known at compile time")
    column = node.emit("reshape", node.plain(0), shape=(*shape, 1))
    return node.onnx("Where", node.constant(np.eye(shape[-1]), "bool"), column, node.constant(0, dtype))


@imports("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Results:
    """Operands: indices of rows, table."""
    return node.onnx("Gather", node.plain(1), node.plain(0), axis=0)


@imports("SCATTER_ND")
def scatter_nd(node: Node) -> Results:
    """Operands: indices, updates, shape. Updates of the same element are added or, for bool, combined by OR."""
    is_bool = node.type(1).dtype == "bool"
    updates = node.emit("cast", node.plain(1), dtype="uint8") if is_bool else node.plain(1)
    zero = node.constant(0, node.type_of(updates).dtype)
    (zeros,) = node.onnx("Expand", zero, node.builder.shape_constant(node.dims(2, "shape"), f"{node.name}.shape"))
    found = node.emit("scatter_nd", zeros, node.plain(0), updates, reduction="max" if is_bool else "add")
    return [node.emit("cast", found, dtype="bool") if is_bool else found]


@imports("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Results:
    """Operands: x, update, start indices, which are clamped so that the update lies within x, as in LiteRT."""
    shape, part = node.type(0).shape, node.type(1).shape
    if len(shape) != len(part) or node.type(2).shape != (len(shape),):
        raise ShapeError(f"puts {node.type(1)} into {node.type(0)} at {node.type(2)}")
    for extent, part_extent in zip(shape, part, strict=True):
        require_at_most(part_extent, extent, f"puts {node.type(1)} into {node.type(0)}")
    axes = [axis for axis, (extent, part_extent) in enumerate(zip(shape, part, strict=True)) if extent != part_extent]
    return [_updated(node, node.plain(0), axes) if axes else node.value(1)]


def _updated(node: Node, tensor: str, axes: Sequence[int]) -> str:
    """Replaces a part of `tensor` by the second operand, which is smaller than `tensor` along these axes only.

    Rows are replaced along the first of these axes. If there are more, the old rows are gathered and updated along the
    other axes before.
    """
    onnx_node, axis, part, rank = node.onnx_node(), axes[0], node.type(1).shape, len(node.type(1).shape)
    largest_start = node.builder.shape_constant([node.type(0).shape[axis] - part[axis]], f"{node.name}.largest_start")
    start = node.emit("slice", node.plain(2), axes=(0,), starts=(axis,), ends=(axis + 1,), steps=(1,))
    (start,) = cast_to(onnx_node, start, "int64")
    (start,) = node.onnx("Min", node.onnx("Max", start, node.constant([0], "int64"))[0], largest_start)
    start = node.emit("reshape", start, shape=(1,) * rank)
    (index,) = emit_broadcast(onnx_node, "add", (start, arange_along(onnx_node, part[axis], axis, rank)))
    rows = node.plain(1)
    if axes[1:]:
        rows = _updated(node, node.emit("gather", tensor, node.emit("reshape", index, shape=(part[axis],)), axis=axis),
                        axes[1:])
    return put_rows(onnx_node, tensor, index, rows, axis)
