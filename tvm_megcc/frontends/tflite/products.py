# SPDX-License-Identifier: Apache-2.0
"""Imports matrix products, and operators along axes such as softmax and reductions."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, floordiv, product
from ...ir.expr import X, arg, call, maximum, minimum
from ...ops.elementwise import emit_broadcast
from ...ops.math.reduce import reduce
from ...ops.rules import axis_of
from .node import Node, Results, Unsupported, imports
from .value import Value


@imports("FULLY_CONNECTED", fused=True)
def fully_connected(node: Node) -> Results:
    """Flattens x to [rows, inputs] and multiplies it by the transpose of the weights [outputs, inputs]."""
    matrix_shape, result_shape = fully_connected_shapes(node)
    x = node.in_order(node.reshaped(node.value(0), matrix_shape))
    (y,) = node.onnx("Gemm", x, node.plain(1), node.optional(2), transB=1)
    return [node.reshaped(node.as_value(y), result_shape)]


def fully_connected_shapes(node: Node) -> tuple[tuple[Dim, Dim], tuple[Dim, ...]]:
    """Returns the shape [rows, inputs] that FULLY_CONNECTED flattens x to, and the shape of its result. With option
    KeepNumDims the result keeps the axes of x except the last one.

    Raises:
        Unsupported: for shuffled weights.
        ShapeError: if the weights are no matrix.
    """
    if node.option("WeightsFormat", 0):
        raise Unsupported("its weights are shuffled, which is not supported; convert the model for a current TFLite")
    if node.type(1).rank != 2:
        raise ShapeError(f"weights {node.type(1)} are no matrix")
    (outputs, inputs), shape = node.type(1).shape, node.type(0).shape
    if node.option("KeepNumDims", default=False) and shape and shape[-1] == inputs:
        return (product(shape[:-1]), inputs), (*shape[:-1], outputs)
    rows = floordiv(product(shape), inputs) if inputs else 0
    return (rows, inputs), (rows, outputs)


@imports("BATCH_MATMUL")
def batch_matmul(node: Node) -> Results:
    return [node.emit("matmul", node.plain(0), node.plain(1), trans_a=int(bool(node.option("AdjX"))),
                      trans_b=int(bool(node.option("AdjY"))))]


@imports("SOFTMAX", "LOG_SOFTMAX")
def softmax(node: Node) -> Results:
    value = node.value(0)
    name, rank = value.name, len(value.order)
    if not rank:
        raise ShapeError("its operand is one number")
    beta = float(node.option("Beta")) if node.kind == "SOFTMAX" else 1.0
    if beta != 1.0:
        name = node.emit("mul", name, node.constant(beta, value.type.dtype))
    op_type = {"SOFTMAX": "Softmax", "LOG_SOFTMAX": "LogSoftmax"}[node.kind]
    return [node.as_value(node.onnx(op_type, name, axis=value.order.index(rank - 1))[0], value.order)]


@imports("L2_NORMALIZATION", fused=True)
def l2_normalization(node: Node) -> Results:
    """Divides x by its L2 norm along the last axis, or by 1e-6 if the norm is less, as LiteRT does."""
    value = node.value(0)
    axis = value.order.index(len(value.order) - 1)
    squares = node.emit("reduce_sum", node.emit("mul", value.name, value.name), axes=(axis,), keepdims=True)
    return [node.as_value(node.compute(X / maximum(call("sqrt", arg(1)), 1e-6), value.name, squares), value.order)]


_REDUCTIONS = {"SUM": "reduce_sum", "MEAN": "reduce_mean", "REDUCE_MAX": "reduce_max", "REDUCE_MIN": "reduce_min",
               "REDUCE_PROD": "reduce_prod", "REDUCE_ANY": "reduce_max", "REDUCE_ALL": "reduce_min"}
#: The initial value of a maximum or minimum in TFLite's reference, which bounds a result that would be infinite. If all
#: axes of a tensor that has elements are reduced, the reference begins with an element instead.
_EXTREME_START = {"REDUCE_MAX": (maximum, float(np.finfo(np.float32).min)),
                  "REDUCE_MIN": (minimum, float(np.finfo(np.float32).max))}


@imports(*_REDUCTIONS)
def reduction(node: Node) -> Results:
    value = node.value(0)
    axes, keepdims = node.axes(1, len(value.order)), bool(node.option("KeepDims"))
    count = product(value.type.shape[axis] for axis in axes)
    dtype = value.type.dtype
    if node.kind == "MEAN" and dtype in ("int32", "int64") and isinstance(count, int) and count > 0:
        # An integer mean is the int64 sum divided by the count, rounded towards zero.
        if dtype != "int64":
            value = node.as_value(node.emit("cast", value.name, dtype="int64"), value.order)
        total = reduced(node, value, "reduce_sum", axes, keepdims)
        (mean,) = emit_broadcast(node.onnx_node(), "div", (total.name, node.constant(count, "int64")))
        return [node.as_value(mean if dtype == "int64" else node.emit("cast", mean, dtype=dtype), total.order)]
    result = reduced(node, value, _REDUCTIONS[node.kind], axes, keepdims)
    if node.kind in _EXTREME_START and dtype == "float32" and (len(axes) < len(value.order) or 0 in value.type.shape):
        extreme, start = _EXTREME_START[node.kind]
        result = node.as_value(node.compute(extreme(X, start), result.name), result.order)
    return [result]


def reduced(node: Node, value: Value, kind: str, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Returns a value reduced over axes of the file. kind: our operator, such as reduce_sum."""
    if not axes:
        return value
    (name,) = reduce(node.onnx_node(), kind, value.name, tuple(value.order.index(axis) for axis in axes), keepdims=True)
    result = node.as_value(name, value.order)
    return result if keepdims else node.without_axes(result, axes)


@imports("ARG_MAX", "ARG_MIN")
def arg_extreme(node: Node) -> Results:
    value = node.value(0)
    axis = axis_of(node.number(1, "axis"), len(value.order))
    name = node.emit(node.kind.lower(), value.name, axis=value.order.index(axis), keepdims=True, last=False)
    if node.results[0].dtype != "int64":
        name = node.emit("cast", name, dtype="int32")
    return [node.without_axes(node.as_value(name, value.order), (axis,))]


@imports("CUMSUM")
def cumsum(node: Node) -> Results:
    value = node.value(0)
    axis = axis_of(node.number(1, "axis"), len(value.order))
    return [node.as_value(node.emit("cumsum", value.name, axis=value.order.index(axis),
                                    exclusive=bool(node.option("Exclusive", default=False)),
                                    reverse=bool(node.option("Reverse", default=False))), value.order)]


@imports("TOPK_V2")
def top_k(node: Node) -> Results:
    """Returns the k greatest elements. Among equal elements the first wins, as in TFLite."""
    rank = node.type(0).rank
    if not rank:
        raise ShapeError("its operand is one number")
    values, indices = node.onnx_node().emit("top_k", (node.plain(0),), axis=rank - 1, k=node.number(1, "k"),
                                           largest=True)
    wanted = node.results[1].dtype if len(node.results) > 1 else "int32"
    return [values, indices if wanted == "int64" else node.emit("cast", indices, dtype="int32")]


@imports("ONE_HOT")
def one_hot(node: Node) -> Results:
    """Imports ONE_HOT. An index out of range gives `off` everywhere."""
    indices, depth = node.type(0), node.number(1, "depth")
    rank = indices.rank + 1
    axis = axis_of(node.option("Axis"), rank)
    if depth < 0:
        raise MegccError(f"depth {depth} is negative")
    node.require_budget(depth)
    index = node.emit("reshape", node.plain(0), shape=(*indices.shape[:axis], 1, *indices.shape[axis:]))
    classes = np.arange(depth).reshape([-1 if result_axis == axis else 1 for result_axis in range(rank)])
    is_index = node.emit("equal", index, node.constant(classes, indices.dtype))
    on, off = (node.emit("reshape", node.plain(operand), shape=()) for operand in (2, 3))
    return [node.emit("where", is_index, on, off)]
