# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv, whose operands are int8 or uint8.

If each operand has one constant zero point, they become `matmul_integer` and `conv2d_integer`. Otherwise zero points
are subtracted from the operands first.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import product
from ...ir.expr import X, arg, call
from ..base import OnnxNode, decomposes, operator
from ..elementwise import cast_to, emit_broadcast
from ..nn.conv import emit_convolution
from .conv_matmul import requantize_expr


def _subtract_zero_point(node: OnnxNode, index: int, zero: int, column: bool) -> str:
    """Emits operand `index` minus its zero point, as int32. A vector of zero points has one for each row, or column."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    return emit_broadcast(node, "sub", (value, _per_row(node, point, column)))[0]


def _per_row(node: OnnxNode, value: str, column: bool) -> str:
    """Reshapes a vector [R] of one number for each row to [R, 1]; leaves a scalar, and one for each column,
    unchanged."""
    type_ = node.type_of(value)
    is_vector = type_.rank == 1 and type_.size != 1
    return node.emit("reshape", (value,), shape=(*type_.shape, 1))[0] if is_vector and not column else value


def _constant_zero_point(node: OnnxNode, index: int) -> int | None:
    """Returns the zero point in operand `index`, 0 if it is absent; None if it is not constant or there are several."""
    if not node.has(index):
        return 0
    if node.type(index).dtype not in ("int8", "uint8", "int16", "uint16"):
        raise ShapeError(f"its zero point, operand {index}, is {node.type(index)}")
    if not node.is_const(index):
        return None
    points = set(node.const(index).reshape(-1).tolist())
    return points.pop() if len(points) == 1 else None


def _emit_matmul(node: OnnxNode, first: int, second: int, zeros: tuple[int, int]) -> tuple[str, ...]:
    """Emits the int32 product of two matrices a [..., M, K] and b [..., K, N], operands `first` and `second`, with the
    zero points in the operands `zeros`."""
    a, b = node.inputs[first], node.inputs[second]
    a_zero, b_zero = (_constant_zero_point(node, index) for index in zeros)
    are_matrices = min(node.type(first).rank, node.type(second).rank) >= 2
    attrs = {"trans_a": 0, "trans_b": 0, "b_zero": b_zero}
    if are_matrices and a_zero is not None and b_zero is not None:
        return node.emit("matmul_integer", (a, b), **attrs, a_zero=a_zero)
    if not are_matrices or b_zero is None or not node.is_const(second) or node.type(zeros[0]).size != 1:
        centred = (_subtract_zero_point(node, first, zeros[0], column=False),
                   _subtract_zero_point(node, second, zeros[1], column=True))
        return node.emit("matmul", centred, trans_a=0, trans_b=0)
    # The zero point of a is computed at run time: sum((a - z) * b) = sum(a * b) - z * sum(b).
    (sums,) = node.emit("matmul_integer", (a, b), **attrs, a_zero=0)
    total = (node.const(second).astype(np.int64) - b_zero).sum(-2, keepdims=node.type(second).rank > 2)
    columns = node.constant(total.astype(np.int32))
    return emit_broadcast(node, "elementwise", (sums, node.inputs[zeros[0]], columns), expr=X - arg(1) * arg(2),
                          dtype="int32")


@decomposes("MatMulInteger")
def matmul_integer(node: OnnxNode) -> tuple[str, ...]:
    """Imports MatMulInteger. Operands: A, B, zero point of A, zero point of B. The result is int32."""
    return _emit_matmul(node, 0, 1, (2, 3))


@decomposes("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearMatMul. Operands: A, its scale and zero point, B, its scale and zero point, scale and zero point
    of the result."""
    (sums,) = _emit_matmul(node, 0, 3, (2, 5))
    scale = emit_broadcast(node, "mul", (_per_row(node, node.inputs[1], column=False), node.inputs[4]))[0]
    return _requantize(node, sums, scale, 6)


def _requantize(node: OnnxNode, sums: str, scale: str, result: int) -> tuple[str, ...]:
    """Requantizes int32 sums: times their scale, divided by the result's scale, which is operand `result`, rounded,
    plus the result's zero point, which is the operand after it."""
    zero = _constant_zero_point(node, result + 1)
    if node.is_constant(scale) and node.is_const(result) and zero is not None and node.type(result).size == 1 \
            and node.type(result).dtype == "float32":
        (factor,) = emit_broadcast(node, "div", (scale, node.inputs[result]))
        dtype = node.type(result + 1).dtype
        limits = np.iinfo(dtype)
        return emit_broadcast(node, "elementwise", (sums, factor), dtype=dtype, expr=requantize_expr(
            call("real", X) * arg(1), zero, int(limits.min), int(limits.max)))
    (real,) = cast_to(node, sums, "float32")
    (scale,) = cast_to(node, scale, "float32")
    (y_scale,) = cast_to(node, node.inputs[result], "float32")
    (real,) = emit_broadcast(node, "mul", (real, scale))
    return node.emit("quantize_linear", (real, y_scale, node.inputs[result + 1]), axis=0, block=0,
                     dtype=node.type(result + 1).dtype)


#: The largest number of 8-bit products whose sum is exact in float32, since |x - zero point| and |w - zero point| are
#: at most 255.
MAX_EXACT_TERMS = 2**24 // 255**2


def _emit_float_conv(node: OnnxNode, x: str, w: str) -> tuple[str, ...]:
    """Emits a convolution of int32 operands (minus zero points) as one of float32, if that is exact."""
    terms = product(node.type_of(w).shape[1:])
    if not isinstance(terms, int) or terms > MAX_EXACT_TERMS:
        raise MegccError(f"sums {terms} 8-bit products; up to {MAX_EXACT_TERMS} are exact in float32, and there is no "
                         "integer convolution yet")
    onnx_node = copy(node)
    onnx_node.inputs = (*cast_to(node, x, "float32"), *cast_to(node, w, "float32"))
    return operator("conv2d").from_onnx(onnx_node)


def _emit_integer_conv(node: OnnxNode, x: int, w: int, bias: int | None = None) -> tuple[str, ...]:
    """Emits the integer convolution of operands `x` and `w`, whose zero points are two operands after each; () if the
    zero point of w is not known."""
    x_zero, w_zero = _constant_zero_point(node, x + 2), _constant_zero_point(node, w + 2)
    if w_zero is None or node.type(x).rank not in (3, 4) or (x_zero is None and node.type(x + 2).size != 1):
        return ()
    value = node.inputs[x]
    if x_zero is None:  # computed at run time: subtracted first, so that the padding is 0
        (value,) = emit_broadcast(node, "elementwise", (value, node.inputs[x + 2]), expr=X - arg(1), dtype="int16")
    onnx_node = copy(node)
    onnx_node.inputs = (value, node.inputs[w], *((node.inputs[bias],) if bias and node.has(bias) else ()))
    return emit_convolution(onnx_node, "conv2d_integer", x_zero=x_zero or 0, w_zero=w_zero)


@decomposes("ConvInteger")
def conv_integer(node: OnnxNode) -> tuple[str, ...]:
    """Imports ConvInteger. Operands: X, W, zero point of X, zero point of W. The result is int32."""
    sums = _emit_integer_conv(node, 0, 1)
    if sums:
        return sums
    x, w = _subtract_zero_point(node, 0, 2, column=True), _centred_weights(node, 1, 3)
    return cast_to(node, *_emit_float_conv(node, x, w), "int32")


@decomposes("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearConv. Operands: X, its scale and zero point, W, its scale and zero point, scale and zero point of
    the result, bias int32 [M]."""
    integer_sums = _emit_integer_conv(node, 0, 3, 8)
    (sums,) = integer_sums or _emit_float_conv(node, _subtract_zero_point(node, 0, 2, column=True),
                                               _centred_weights(node, 3, 5))
    rank = node.type(0).rank
    if node.has(8) and not integer_sums:
        (bias,) = cast_to(node, node.inputs[8], "float32")
        (bias,) = node.emit("reshape", (bias,), shape=(-1, *(1,) * (rank - 2)))
        (sums,) = emit_broadcast(node, "add", (sums, bias))
    (scale,) = emit_broadcast(node, "mul", (node.inputs[1], node.inputs[4]))
    if node.type_of(scale).size != 1:
        (scale,) = node.emit("reshape", (scale,), shape=(-1, *(1,) * (rank - 2)))
    return _requantize(node, sums, scale, 6)


def _centred_weights(node: OnnxNode, index: int, zero: int) -> str:
    """Emits the weights in operand `index` as int32, minus their zero point, which may be one for each output
    channel."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    if node.type_of(point).size != 1:
        (point,) = node.emit("reshape", (point,), shape=(-1, *(1,) * (node.type(index).rank - 1)))
    return emit_broadcast(node, "sub", (value, point))[0]
