# SPDX-License-Identifier: Apache-2.0
"""Imports the operators QLinear… and QGemm of com.microsoft, which ONNX Runtime's quantiser writes.

Each becomes dequantize_linear of its operands, ONNX's operator on floats, and quantize_linear of the result.
passes/quantization/lower_quantized.py then computes these on integers. Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ..base import DECOMPOSITIONS, OPERATORS, OnnxNode
from ..elementwise import emit_broadcast
from ..rules import axis_of
from .fused import channels_first, channels_last, contrib

#: The operator set of the emitted ONNX operators, unless an attribute states it. Softmax is over one axis since 13.
_OPSET = 13


def _dequantize(node: OnnxNode, index: int, axis: int = 0) -> str:
    """Dequantises operand `index` by the scale and zero point that follow it, which are for the whole operand or for
    each element of `axis`."""
    return node.emit("dequantize_linear", node.inputs[index:index + 3], axis=axis, block=0, dtype="float32")[0]


def _quantize(node: OnnxNode, value: str, *, scale: int, like: int = 0) -> tuple[str, ...]:
    """Quantises a value by operand `scale` and the zero point that follows it. The result has the zero point's dtype
    or, if it is absent, that of operand `like`."""
    dtype = node.type(scale + 1 if node.has(scale + 1) else like).dtype
    return node.emit("quantize_linear", (value, *node.inputs[scale:scale + 2]), axis=0, block=0, dtype=dtype)


def _emit_onnx(node: OnnxNode, kind: str, inputs: Sequence[str], opset: int = _OPSET) -> str:
    """Emits ONNX's operator of this name on other operands. Unlike `emit_onnx.onnx_operator`, it has the node's
    attributes."""
    onnx_node = copy(node)
    onnx_node.inputs, onnx_node.op_type, onnx_node.opset, onnx_node.num_outputs = tuple(inputs), kind, opset, 1
    declared = (declaration.from_onnx for declaration in OPERATORS.values() if kind in declaration.onnx)
    return (DECOMPOSITIONS.get(kind) or next(declared))(onnx_node)[0]


def _binary_importer(kind: str):
    """Returns an importer of a binary operator. Operands: A, its scale and zero point, B, its scale and zero point, the
    result's scale and zero point."""
    def emit(node: OnnxNode) -> tuple[str, ...]:
        (value,) = emit_broadcast(node, kind, (_dequantize(node, 0), _dequantize(node, 3)))
        return _quantize(node, value, scale=6)
    return emit


for _name in ("Add", "Mul"):
    contrib(f"QLinear{_name}")(_binary_importer(_name.lower()))


@contrib("QLinearSigmoid", "QLinearLeakyRelu", "QLinearReduceMean")
def unary(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearSigmoid, QLinearLeakyRelu and QLinearReduceMean. Operands: X, its scale and zero point, Y's scale
    and zero point. Attributes are those of ONNX's operator."""
    value = _emit_onnx(node, node.op_type.removeprefix("QLinear"), (_dequantize(node, 0),))
    return _quantize(node, value, scale=3)


@contrib("QLinearAveragePool", "QLinearGlobalAveragePool")
def pool(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearAveragePool and QLinearGlobalAveragePool. Operands: X, its scale and zero point, Y's scale and
    zero point. With attribute `channels_last` X and Y are channels-last."""
    value = _dequantize(node, 0)
    is_channels_last = node.attr("channels_last", 0) and node.type(0).rank > 2
    if is_channels_last:
        value = channels_first(node, value)
    value = _emit_onnx(node, node.op_type.removeprefix("QLinear"), (value,))
    return _quantize(node, channels_last(node, value) if is_channels_last else value, scale=3)


@contrib("QLinearSoftmax")
def softmax(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearSoftmax. Operands: X, its scale and zero point, Y's scale and zero point. Attribute `opset`: the
    version of ONNX's Softmax."""
    value = _emit_onnx(node, "Softmax", (_dequantize(node, 0),), node.attr("opset", _OPSET))
    return _quantize(node, value, scale=3)


@contrib("QLinearConcat")
def concat(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearConcat. Operands: Y's scale and zero point, then each input with its scale and zero point."""
    values = [_dequantize(node, index) for index in range(2, len(node.inputs), 3)]
    axis = axis_of(node.attr("axis"), node.type(2).rank)
    value = node.emit("concat", values, axis=axis)[0] if len(values) > 1 else values[0]
    return _quantize(node, value, scale=0, like=2)


@contrib("QLinearWhere")
def where(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearWhere. Operands: condition, X, its scale and zero point, Y, its scale and zero point, the result's
    scale and zero point."""
    value = _emit_onnx(node, "Where", (node.inputs[0], _dequantize(node, 1), _dequantize(node, 4)))
    return _quantize(node, value, scale=7, like=1)


@contrib("QGemm")
def gemm(node: OnnxNode) -> tuple[str, ...]:
    """Imports QGemm. Operands: A, its scale and zero point, B, its scale and zero point, C int32, whose scale is alpha
    times both scales, Y's scale and zero point. Without the last two the result is float32."""
    alpha, trans = node.constant(np.float32(node.attr("alpha", 1.0))), node.attr("transB", 0)
    (a_scale,) = node.emit("mul", (node.inputs[1], alpha))
    (a,) = node.emit("dequantize_linear", (node.inputs[0], a_scale, *node.inputs[2:3]), axis=0, block=0,
                     dtype="float32")
    operands = [a, _dequantize(node, 3, axis=0 if trans else 1)]
    columns = node.type(3).shape[0 if trans else 1]
    c = _dequantize_c(node, a_scale, columns) if node.has(6) else ""
    is_bias = bool(c) and node.type_of(c).shape == (columns,)
    (y,) = node.emit("matmul", [*operands, c] if is_bias else operands, trans_a=node.attr("transA", 0), trans_b=trans)
    if c and not is_bias:
        (y,) = emit_broadcast(node, "add", (y, c))
    return _quantize(node, y, scale=7) if node.has(7) else (y,)


def _dequantize_c(node: OnnxNode, a_scale: str, columns: Dim) -> str:
    """Emits C of a QGemm as float32. One number for each column, [N] or [1, N], becomes [N], a bias of the product."""
    (scale,) = emit_broadcast(node, "mul", (a_scale, node.inputs[4]))
    value, shape = node.inputs[6], node.type(6).shape
    if len(shape) > 2:
        raise ShapeError(f"C is {node.type(6)}")
    if shape == (1, columns):
        (value,) = node.emit("reshape", (value,), shape=(columns,))
    axis = node.type_of(value).rank - 1  # of the columns, which may have a scale each
    return node.emit("dequantize_linear", (value, scale), axis=max(axis, 0), block=0, dtype="float32")[0]
