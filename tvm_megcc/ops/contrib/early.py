# SPDX-License-Identifier: Apache-2.0
"""Imports operators that were experimental in ONNX until its operator set 10 (Affine, Scale, ScaledTanh,
ParametricSoftplus, ImageScaler, Crop), which converters from Core ML and Caffe2 wrote and ONNX Runtime still runs; and
CDist of com.microsoft, which converters from scikit-learn write.

Source: ONNX Runtime, onnxruntime/core/graph/contrib_ops/onnx_deprecated_operators.cc, and ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import OnnxNode, decomposes
from ..emit_onnx import number, onnx_operator
from ..rules import END_OF_AXIS


def _multiply_by(node: OnnxNode, value: str, factor: float) -> str:
    """Emits a product with a constant of the first operand's dtype."""
    return onnx_operator(node, "Mul", value, number(node, factor, node.type(0).dtype))


@decomposes("Affine", "Scale", "ScaledTanh", "ParametricSoftplus")
def import_scaled(node: OnnxNode) -> tuple[str, ...]:
    """Imports Affine, alpha * x + beta; Scale, scale * x; ScaledTanh, alpha * tanh(beta * x); and ParametricSoftplus,
    alpha * softplus(beta * x)."""
    x, alpha, beta = node.inputs[0], node.attr("alpha", 1.0), node.attr("beta", 0.0)
    if node.op_type == "Affine":
        return (onnx_operator(node, "Add", _multiply_by(node, x, alpha), number(node, beta, node.type(0).dtype)),)
    if node.op_type == "Scale":
        return (_multiply_by(node, x, node.attr("scale", 1.0)),)
    if node.attr("alpha") is None or node.attr("beta") is None:
        raise MegccError("has no alpha or no beta")
    kind = "Tanh" if node.op_type == "ScaledTanh" else "Softplus"
    return (_multiply_by(node, onnx_operator(node, kind, _multiply_by(node, x, beta)), alpha),)


@decomposes("ImageScaler")
def image_scaler(node: OnnxNode) -> tuple[str, ...]:
    """Imports ImageScaler, scale * x + bias, with x [N, C, H, W] and attribute bias of C numbers."""
    x = node.type(0)
    bias = np.array(node.attr("bias", ()), x.dtype)
    if x.rank != 4 or x.shape[1] != bias.size:
        raise ShapeError(f"a bias of {bias.size} numbers for channels of {x}")
    return (onnx_operator(node, "Add", _multiply_by(node, node.inputs[0], node.attr("scale", 1.0)),
                          node.constant(bias.reshape(-1, 1, 1))),)


@decomposes("Crop")
def crop(node: OnnxNode) -> tuple[str, ...]:
    """Imports Crop, the part of images [N, C, H, W] within attribute border (left, top, right, bottom). With attribute
    scale (height, width), which is the size of the part, only left and top of the border count."""
    x, border, size = node.type(0), node.attr("border", ()), node.attr("scale")
    if x.rank != 4 or len(border) != 4 or (size is not None and len(size) != 2):
        raise ShapeError(f"border {list(border)} and scale {size} of {x}")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    ends = (top + size[0], left + size[1]) if size is not None else (height - bottom, width - right)
    for begin, end, extent in ((top, ends[0], height), (left, ends[1], width)):
        if isinstance(end, int) and isinstance(extent, int) and not 0 <= begin <= end <= extent:
            raise ShapeError(f"border {list(border)} and scale {size} of {x}")
    if not all(isinstance(end, int) for end in ends):  # symbolic extents: bounds that count from the end of the axis
        ends = (-bottom or END_OF_AXIS, -right or END_OF_AXIS)
    return (onnx_operator(node, "Slice", node.inputs[0], *(node.constant(np.array(numbers, np.int64)) for numbers in (
        (top, left), ends, (2, 3)))),)


@decomposes("com.microsoft::CDist")
def cdist(node: OnnxNode) -> tuple[str, ...]:
    """Imports CDist, the distances of the rows of A [M, K] and B [N, K]. The result is [M, N]: a² + b² - 2 a b, at
    least 0, or its root if attribute metric is "euclidean"."""
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise MegccError(f"metric {metric} is not supported; sqeuclidean and euclidean are")
    a, b = node.inputs
    if node.type(0).rank != 2 or node.type(1).rank != 2:
        raise ShapeError(f"distances of the rows of {node.type(0)} and {node.type(1)}")
    last, dtype = node.constant(np.array([1])), node.type(0).dtype
    squares = [onnx_operator(node, "ReduceSumSquare", points, last, keepdims=1) for points in (a, b)]
    b_columns, b_squares = (onnx_operator(node, "Transpose", points, perm=(1, 0)) for points in (b, squares[1]))
    sums_of_squares = onnx_operator(node, "Add", squares[0], b_squares)
    product = onnx_operator(node, "Mul", onnx_operator(node, "MatMul", a, b_columns), number(node, -2, dtype))
    y = onnx_operator(node, "Max", onnx_operator(node, "Add", sums_of_squares, product), number(node, 0, dtype))
    return (onnx_operator(node, "Sqrt", y) if metric == "euclidean" else y,)
