# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv, whose operands are int8 or uint8.

If each operand has one constant zero point, they become `matmul_integer` and `conv2d_integer`. Otherwise zero points
are subtracted from the operands first.
"""

from __future__ import annotations

from copy import copy
from enum import IntEnum

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import product
from ...ir.expr import X, arg, call
from ..base import OnnxNode, decomposes, operator
from ..elementwise import cast_to, emit_broadcast
from ..nn.conv import emit_convolution
from .conv_matmul import requantize_expr


class _Integer(IntEnum):
    """The operands of MatMulInteger and ConvInteger, which ONNX calls A and B in the former."""

    X, W, X_ZERO, W_ZERO = range(4)


class _QLinear(IntEnum):
    """The operands of QLinearMatMul and QLinearConv; in the former ONNX calls x and w a and b, and there is no bias."""

    X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, BIAS = range(9)


def _subtract_zero_point(node: OnnxNode, index: int, zero: int, by_row: bool) -> str:
    """Emits operand `index` minus its zero point, operand `zero`, as int32. by_row: several zero points are one for
    each row of the operand, else one for each column."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    return emit_broadcast(node, "sub", (value, _as_column(node, point) if by_row else point))[0]


def _as_column(node: OnnxNode, value: str) -> str:
    """Reshapes a vector [R] of one number for each row to [R, 1]; leaves a scalar unchanged."""
    type_ = node.type_of(value)
    is_vector = type_.rank == 1 and type_.size != 1
    return node.emit("reshape", (value,), shape=(*type_.shape, 1))[0] if is_vector else value


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


def _emit_matmul(node: OnnxNode, first: int, second: int, first_zero: int, second_zero: int) -> tuple[str, ...]:
    """Emits the int32 product of two matrices a [..., M, K] and b [..., K, N], the operands `first` and `second`, with
    the zero points in the operands `first_zero` and `second_zero`."""
    a, b = node.inputs[first], node.inputs[second]
    a_zero, b_zero = _constant_zero_point(node, first_zero), _constant_zero_point(node, second_zero)
    are_matrices = min(node.type(first).rank, node.type(second).rank) >= 2
    attrs = {"trans_a": 0, "trans_b": 0, "b_zero": b_zero}
    if are_matrices and a_zero is not None and b_zero is not None:
        return node.emit("matmul_integer", (a, b), **attrs, a_zero=a_zero)
    only_zero_of_a_is_unknown = are_matrices and b_zero is not None
    if not only_zero_of_a_is_unknown or not node.is_const(second) or node.type(first_zero).size != 1:
        centred = (_subtract_zero_point(node, first, first_zero, by_row=True),
                   _subtract_zero_point(node, second, second_zero, by_row=False))
        return node.emit("matmul", centred, trans_a=0, trans_b=0)
    # The zero point z of a is computed at run time: sum((a - z) * b) = sum(a * b) - z * sum(b), and the sums of the
    # columns of b are constants.
    (sums,) = node.emit("matmul_integer", (a, b), **attrs, a_zero=0)
    total = (node.const(second).astype(np.int64) - b_zero).sum(-2, keepdims=node.type(second).rank > 2)
    columns = node.constant(total.astype(np.int32))
    return emit_broadcast(node, "elementwise", (sums, node.inputs[first_zero], columns), expr=X - arg(1) * arg(2),
                          dtype="int32")


@decomposes("MatMulInteger")
def matmul_integer(node: OnnxNode) -> tuple[str, ...]:
    """Imports MatMulInteger. The result is int32."""
    return _emit_matmul(node, _Integer.X, _Integer.W, _Integer.X_ZERO, _Integer.W_ZERO)


@decomposes("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearMatMul."""
    (sums,) = _emit_matmul(node, _QLinear.X, _QLinear.W, _QLinear.X_ZERO, _QLinear.W_ZERO)
    x_scale = _as_column(node, node.inputs[_QLinear.X_SCALE])
    (scale,) = emit_broadcast(node, "mul", (x_scale, node.inputs[_QLinear.W_SCALE]))
    return _requantize(node, sums, scale)


def _requantize(node: OnnxNode, sums: str, scale: str) -> tuple[str, ...]:
    """Requantizes int32 sums of a QLinear… node: times their scale, divided by the result's scale, rounded, plus the
    result's zero point. With constants it is one elementwise operator."""
    zero = _constant_zero_point(node, _QLinear.Y_ZERO)
    y_scale, dtype = node.type(_QLinear.Y_SCALE), node.type(_QLinear.Y_ZERO).dtype
    are_constant = node.is_constant(scale) and node.is_const(_QLinear.Y_SCALE) and zero is not None
    if are_constant and y_scale.size == 1 and y_scale.dtype == "float32":
        (factor,) = emit_broadcast(node, "div", (scale, node.inputs[_QLinear.Y_SCALE]))
        limits = np.iinfo(dtype)
        return emit_broadcast(node, "elementwise", (sums, factor), dtype=dtype, expr=requantize_expr(
            call("real", X) * arg(1), zero, int(limits.min), int(limits.max)))
    (real,) = cast_to(node, sums, "float32")
    (scale,) = cast_to(node, scale, "float32")
    (divisor,) = cast_to(node, node.inputs[_QLinear.Y_SCALE], "float32")
    (real,) = emit_broadcast(node, "mul", (real, scale))
    return node.emit("quantize_linear", (real, divisor, node.inputs[_QLinear.Y_ZERO]), axis=0, block=0, dtype=dtype)


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


def _emit_integer_conv(node: OnnxNode, w: int, bias: int | None = None) -> tuple[str, ...]:
    """Emits the integer convolution of the first operand and operand `w`; the zero point of each is two operands after
    it. Returns () if there is no kernel: for several or unknown zero points of w, several of x, and volumes.

    bias: an operand, which may be absent.
    """
    x_zero_index = _Integer.X_ZERO  # as in _QLinear
    x_zero, w_zero = _constant_zero_point(node, x_zero_index), _constant_zero_point(node, w + 2)
    is_1d_or_2d = node.type(_Integer.X).rank in (3, 4)
    if w_zero is None or not is_1d_or_2d or (x_zero is None and node.type(x_zero_index).size != 1):
        return ()
    value = node.inputs[_Integer.X]
    if x_zero is None:  # computed at run time: subtracted first, so that the padding is 0
        (value,) = emit_broadcast(node, "elementwise", (value, node.inputs[x_zero_index]), expr=X - arg(1),
                                  dtype="int16")
    onnx_node = copy(node)
    biases = (node.inputs[bias],) if bias is not None and node.has(bias) else ()
    onnx_node.inputs = (value, node.inputs[w], *biases)
    return emit_convolution(onnx_node, "conv2d_integer", x_zero=x_zero or 0, w_zero=w_zero)


@decomposes("ConvInteger")
def conv_integer(node: OnnxNode) -> tuple[str, ...]:
    """Imports ConvInteger. The result is int32."""
    sums = _emit_integer_conv(node, _Integer.W)
    if sums:
        return sums
    x = _subtract_zero_point(node, _Integer.X, _Integer.X_ZERO, by_row=False)
    w = _centred_weights(node, _Integer.W, _Integer.W_ZERO)
    return cast_to(node, *_emit_float_conv(node, x, w), "int32")


@decomposes("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearConv. The bias is int32 [M]."""
    integer_sums = _emit_integer_conv(node, _QLinear.W, bias=_QLinear.BIAS)
    (sums,) = integer_sums or _emit_float_conv(
        node, _subtract_zero_point(node, _QLinear.X, _QLinear.X_ZERO, by_row=False),
        _centred_weights(node, _QLinear.W, _QLinear.W_ZERO))
    per_channel = (-1, *(1,) * (node.type(_QLinear.X).rank - 2))  # [M, 1, …], which broadcasts against [N, M, …]
    if node.has(_QLinear.BIAS) and not integer_sums:
        (bias,) = cast_to(node, node.inputs[_QLinear.BIAS], "float32")
        (bias,) = node.emit("reshape", (bias,), shape=per_channel)
        (sums,) = emit_broadcast(node, "add", (sums, bias))
    (scale,) = emit_broadcast(node, "mul", (node.inputs[_QLinear.X_SCALE], node.inputs[_QLinear.W_SCALE]))
    if node.type_of(scale).size != 1:
        (scale,) = node.emit("reshape", (scale,), shape=per_channel)
    return _requantize(node, sums, scale)


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
