# SPDX-License-Identifier: Apache-2.0
"""Operators that ONNX had on trial before its version 10, which converters of Core ML and Caffe2 models wrote and ONNX
Runtime still runs; and CDist, which scikit-learn's neighbours become.

Source: ONNX Runtime, onnxruntime/core/graph/contrib_ops/onnx_deprecated_operators.cc, and ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import OnnxNode, decomposes
from ..emit_onnx import number, onnx_operator


def _scaled(node: OnnxNode, value: str, factor: float) -> str:
    return onnx_operator(node, "Mul", value, number(node, factor, node.type(0).dtype))


@decomposes("Affine", "Scale", "ScaledTanh", "ParametricSoftplus")
def scaled(node: OnnxNode) -> tuple[str, ...]:
    """Affine: alpha * x + beta. Scale: scale * x. ScaledTanh: alpha * tanh(beta * x). ParametricSoftplus: alpha *
    softplus(beta * x)."""
    x, alpha, beta = node.inputs[0], node.attr("alpha", 1.0), node.attr("beta", 0.0)
    if node.op_type == "Affine":
        return (onnx_operator(node, "Add", _scaled(node, x, alpha), number(node, beta, node.type(0).dtype)),)
    if node.op_type == "Scale":
        return (_scaled(node, x, node.attr("scale", 1.0)),)
    if node.attr("alpha") is None or node.attr("beta") is None:
        raise MegccError("has no alpha or no beta")
    kind = "Tanh" if node.op_type == "ScaledTanh" else "Softplus"
    return (_scaled(node, onnx_operator(node, kind, _scaled(node, x, beta)), alpha),)


@decomposes("ImageScaler")
def image_scaler(node: OnnxNode) -> tuple[str, ...]:
    """scale * x + bias, with x [N, C, H, W] and attribute bias of C numbers."""
    x = node.type(0)
    bias = np.array(node.attr("bias", ()), x.dtype)
    if x.rank != 4 or x.shape[1] != bias.size:
        raise ShapeError(f"a bias of {bias.size} numbers for channels of {x}")
    return (onnx_operator(node, "Add", _scaled(node, node.inputs[0], node.attr("scale", 1.0)),
                          node.constant(bias.reshape(-1, 1, 1))),)


@decomposes("Crop")
def crop(node: OnnxNode) -> tuple[str, ...]:
    """The part of pictures [N, C, H, W] within attribute border (left, top, right, bottom); attribute scale (height,
    width) is the size of the part, which then begins at left and top."""
    x, border, size = node.type(0), node.attr("border", ()), node.attr("scale")
    if x.rank != 4 or len(border) != 4 or (size is not None and len(size) != 2):
        raise ShapeError(f"border {list(border)} and scale {size} of {x}")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    ends = (top + size[0], left + size[1]) if size is not None else (height - bottom, width - right)
    for begin, end, most in ((top, ends[0], height), (left, ends[1], width)):
        if isinstance(end, int) and isinstance(most, int) and not 0 <= begin <= end <= most:
            raise ShapeError(f"border {list(border)} and scale {size} of {x}")
    if not all(isinstance(end, int) for end in ends):  # an end from the end
        ends = (-bottom or 1 << 31, -right or 1 << 31)
    return (onnx_operator(node, "Slice", node.inputs[0], *(node.constant(np.array(numbers, np.int64)) for numbers in (
        (top, left), ends, (2, 3)))),)


@decomposes("com.microsoft::CDist")
def cdist(node: OnnxNode) -> tuple[str, ...]:
    """Distances of the rows of A [M, K] and B [N, K], [M, N]: a² + b² - 2 a b, at least 0; its root for euclidean."""
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise MegccError(f"metric {metric} is not supported; sqeuclidean and euclidean are")
    a, b = node.inputs
    if node.type(0).rank != 2 or node.type(1).rank != 2:
        raise ShapeError(f"distances of the rows of {node.type(0)} and {node.type(1)}")
    last, dtype = node.constant(np.array([1])), node.type(0).dtype
    squares = [onnx_operator(node, "ReduceSumSquare", points, last, keepdims=1) for points in (a, b)]
    turned = [onnx_operator(node, "Transpose", points, perm=(1, 0)) for points in (b, squares[1])]
    both = onnx_operator(node, "Add", squares[0], turned[1])
    product = onnx_operator(node, "Mul", onnx_operator(node, "MatMul", a, turned[0]), number(node, -2, dtype))
    y = onnx_operator(node, "Max", onnx_operator(node, "Add", both, product), number(node, 0, dtype))
    return (onnx_operator(node, "Sqrt", y) if metric == "euclidean" else y,)
