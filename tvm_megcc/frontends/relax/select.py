# SPDX-License-Identifier: Apache-2.0
"""Importers of Relax's operators that sort, gather or scatter elements or create tensors, of attention, and of some
arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import MegccError
from ...ir.dims import Dim
from ...ops.elementwise import cast_to
from ...ops.rules import axis_of
from ..tvm_common.node import Importer, TvmNode, Values, registers_in
from ..tvm_common.ops import scatter_reduction
from ..tvm_versions import number_of

#: Importers by the operators' names without "relax.".
IMPORTERS: dict[str, Importer] = {}
imports = registers_in(IMPORTERS)


# --- order -----------------------------------------------------------------------------------------------------------

def _top_k(node: TvmNode, k: int | None, largest: bool) -> Values:
    """Emits a top-k along the operator's axis, which sorts all elements if k is None or below 1. Returns the values and
    the int64 indices."""
    axis = axis_of(int(node.attrs.axis), node.type_of(node.inputs[0]).rank)
    extent = node.type_of(node.inputs[0]).shape[axis]
    k = extent if k is None or k < 1 else k
    if not isinstance(k, int):
        raise MegccError("orders an axis of symbolic extent")
    return node.onnx("TopK", node.inputs[0], node.constant([k], "int64"), outputs=2, axis=axis, largest=int(largest))


@imports("topk")
def top_k(node: TvmNode) -> Values:
    values, indices = _top_k(node, int(node.attrs.k), bool(node.attrs.largest))
    (indices,) = cast_to(node.onnx_node(), indices, str(node.attrs.dtype))
    return {"both": (values, indices), "values": (values,), "indices": (indices,)}[node.attrs.ret_type]


@imports("sort")
def sort(node: TvmNode) -> Values:
    return _top_k(node, None, bool(node.attrs.descending))[:1]


@imports("argsort")
def argsort(node: TvmNode) -> Values:
    return cast_to(node.onnx_node(), _top_k(node, None, bool(node.attrs.descending))[1], str(node.attrs.dtype))


# --- gather and scatter ----------------------------------------------------------------------------------------------

@imports("scatter_nd")
def scatter_nd(node: TvmNode) -> Values:
    return node.onnx("ScatterND", reduction=scatter_reduction(node.attrs.reduction))


@imports("gather_nd")
def gather_nd(node: TvmNode) -> Values:
    return node.onnx("GatherND", batch_dims=int(node.attrs.batch_dims))


@imports("index_tensor")
def index_tensor(node: TvmNode) -> Values:
    x, *indices = node.inputs
    if len(indices) != 1:
        raise MegccError(f"with {len(indices)} tensors of indices")
    return node.onnx("Gather", x, indices[0], axis=0)


@imports("one_hot")
def one_hot(node: TvmNode) -> Values:
    """Imports one_hot. Negative indices select nothing in TVM, but count from the end in ONNX."""
    depth, rank = int(node.attrs.depth), node.types[0].rank
    axis = axis_of(int(node.attrs.axis), rank)
    index = node.type_of(node.inputs[0])
    with_axis = node.reshaped(node.inputs[0], (*index.shape[:axis], 1, *index.shape[axis:]))
    class_indices = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    dtype = node.types[0].dtype
    on, off = (node.constant(number_of(value).value, dtype) for value in node.args[1:3])
    return node.onnx("Where", *node.onnx("Equal", with_axis, node.constant(class_indices, index.dtype)), on, off)


@imports("tril", "triu")
def triangle(node: TvmNode) -> Values:
    k = node.constant(int(number_of(node.args[1])), "int64")
    return node.onnx("Trilu", node.inputs[0], k, upper=int(node.op == "triu"))


@imports("dynamic_strided_slice")
def dynamic_strided_slice(node: TvmNode) -> Values:
    x, begins, ends, strides = node.inputs
    axes = node.constant(range(node.type_of(x).rank), "int64")
    return node.onnx("Slice", x, begins, ends, axes, strides)


# --- creation --------------------------------------------------------------------------------------------------------

def _expand(node: TvmNode, value: str) -> Values:
    """Broadcasts a scalar to the shape of the result."""
    return node.onnx("Expand", value, node.extents(node.types[0].shape))


@imports("full", "full_like")
def full(node: TvmNode) -> Values:
    return _expand(node, cast_to(node.onnx_node(), node.inputs[-1], node.types[0].dtype)[0])


@imports("zeros", "ones", "zeros_like", "ones_like")
def zeros_and_ones(node: TvmNode) -> Values:
    return _expand(node, node.constant(int(node.op.startswith("ones")), node.types[0].dtype))


@imports("size")
def size(node: TvmNode) -> Values:
    return node.onnx("Size")


# --- arithmetic ------------------------------------------------------------------------------------------------------

def _require_float(node: TvmNode) -> None:
    if not node.types[0].dtype.startswith("float"):
        raise MegccError(f"on {node.types[0].dtype}")


@imports("trunc")
def trunc(node: TvmNode) -> Values:
    _require_float(node)
    (x,) = node.inputs
    return (node.emit("mul", node.emit("sign", x), node.emit("floor", node.emit("abs", x))),)


@imports("isfinite")
def is_finite(node: TvmNode) -> Values:
    (x,) = node.inputs
    return node.onnx("Less", node.emit("abs", x), node.constant(math.inf, node.type_of(x).dtype))


@imports("floor_divide")
def floor_divide(node: TvmNode) -> Values:
    _require_float(node)
    return node.onnx("Floor", *node.onnx("Div"))


@imports("log_add_exp")
def log_add_exp(node: TvmNode) -> Values:
    a, b = (node.emit("exp", value) for value in node.inputs)
    return node.onnx("Log", *node.onnx("Add", a, b))


@imports("outer")
def outer(node: TvmNode) -> Values:
    a, b = node.inputs
    rows, columns = node.types[0].shape
    return node.onnx("Mul", node.reshaped(a, (rows, 1)), node.reshaped(b, (1, columns)))


@imports("einsum")
def einsum(node: TvmNode) -> Values:
    return node.onnx("Einsum", equation=str(node.attrs.subscripts))


@imports("nn.attention", "nn.attention_bias")
def attention(node: TvmNode) -> Values:
    """Imports attention: softmax(q·kᵀ·scale + bias)·v of each head. Operands and the result are
    [batch, positions, heads, width]."""
    a = node.attrs
    if a.window_size is not None:
        raise MegccError("attention in a window")
    q, k, v, *bias = node.inputs
    width = node.type_of(q).shape[3]
    if not isinstance(width, int):
        raise MegccError("heads of symbolic width")
    dtype = node.type_of(q).dtype
    scale = float(a.scale) if a.scale is not None else 1 / math.sqrt(width)
    rows = node.onnx("Transpose", q, perm=[0, 2, 1, 3])[0]
    keys = node.onnx("Transpose", k, perm=[0, 2, 3, 1])[0]
    (scores,) = node.onnx("MatMul", rows, keys)
    scores = node.emit("mul", scores, node.constant(scale, dtype))
    if bias:
        (scores,) = node.onnx("Add", scores, bias[0])
    if a.causal_mask is not None:
        mask = _causal_mask(node, node.type_of(scores).shape[2:], str(a.causal_mask), dtype)
        (scores,) = node.onnx("Add", scores, mask)
    (weights,) = node.onnx("Softmax", scores, axis=-1)
    (y,) = node.onnx("MatMul", weights, *node.onnx("Transpose", v, perm=[0, 2, 1, 3]))
    return node.onnx("Transpose", y, perm=[0, 2, 1, 3])


def _causal_mask(node: TvmNode, shape: Sequence[Dim], corner: str, dtype: str) -> str:
    """Returns a causal mask of shape [queries, keys]: 0 where a query may attend to a key, minus infinity for later
    keys. corner: "TopLeft" if the first positions of queries and keys are aligned, "BottomRight" if the last ones are.

    With more queries than keys, "BottomRight" shifts the diagonal to the right as well, by the difference: TVM's
    legalization takes its absolute value.
    """
    if not all(isinstance(extent, int) for extent in shape):
        raise MegccError("a causal mask of symbolic extents")
    rows, columns = shape
    diagonal = {"TopLeft": 0, "BottomRight": abs(rows - columns)}[corner]
    allowed = np.tri(rows, columns, diagonal, dtype=bool)
    return node.constant(np.where(allowed, 0, -np.inf).astype(np.dtype(dtype)), dtype)
