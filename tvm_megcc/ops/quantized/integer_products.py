# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of quantised numbers, as ONNX spells them: sums of integers.

Where zero points are known, one for each operand, these are `matmul_integer` and `conv2d_integer`; else they are taken
off the operands first.
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
from .conv_matmul import quantised


def _centred(node: OnnxNode, index: int, zero: int, column: bool) -> str:
    """Operand `index` as int32, less its zero point; a flat one of those has one a row, or a column."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    return emit_broadcast(node, "sub", (value, _by_row(node, point, column)))[0]


def _by_row(node: OnnxNode, value: str, column: bool) -> str:
    type_ = node.type_of(value)
    flat = type_.rank == 1 and type_.size != 1
    return node.emit("reshape", (value,), shape=(*type_.shape, 1))[0] if flat and not column else value


def _zero(node: OnnxNode, index: int) -> int | None:
    """Returns the one zero point that operand `index` holds, 0 where it is absent; None where it is not known."""
    if not node.has(index):
        return 0
    if node.type(index).dtype not in ("int8", "uint8", "int16", "uint16"):
        raise ShapeError(f"its zero point, operand {index}, is {node.type(index)}")
    if not node.is_const(index):
        return None
    points = set(node.const(index).reshape(-1).tolist())
    return points.pop() if len(points) == 1 else None


def _product(node: OnnxNode, first: int, second: int, zeros: tuple[int, int]) -> tuple[str, ...]:
    """Returns the sums of two matrices, operands `first` and `second`, whose zero points are the operands `zeros`."""
    a, b = node.inputs[first], node.inputs[second]
    a_zero, b_zero = (_zero(node, index) for index in zeros)
    matrices = min(node.type(first).rank, node.type(second).rank) >= 2
    if b_zero is None or not matrices:
        return node.emit("matmul", (_centred(node, first, zeros[0], False), _centred(node, second, zeros[1], True)),
                         trans_a=0, trans_b=0)
    attrs = {"trans_a": 0, "trans_b": 0, "b_zero": b_zero}
    if a_zero is not None:
        return node.emit("matmul_integer", (a, b), **attrs, a_zero=a_zero)
    if not node.is_const(second) or node.type(zeros[0]).size != 1:
        return node.emit("matmul", (_centred(node, first, zeros[0], False), _centred(node, second, zeros[1], True)),
                         trans_a=0, trans_b=0)
    # The zero point is measured in the run: sum((a - z) * b) = sum(a * b) - z * sum(b).
    (sums,) = node.emit("matmul_integer", (a, b), **attrs, a_zero=0)
    total = (node.const(second).astype(np.int64) - b_zero).sum(-2, keepdims=node.type(second).rank > 2)
    columns = node.constant(total.astype(np.int32))
    return emit_broadcast(node, "elementwise", (sums, node.inputs[zeros[0]], columns), expr=X - arg(1) * arg(2),
                          dtype="int32")


@decomposes("MatMulInteger")
def matmul_integer(node: OnnxNode) -> tuple[str, ...]:
    return _product(node, 0, 1, (2, 3))


@decomposes("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> tuple[str, ...]:
    (sums,) = _product(node, 0, 3, (2, 5))
    scale = emit_broadcast(node, "mul", (_by_row(node, node.inputs[1], False), node.inputs[4]))[0]
    return _requantized(node, sums, scale, 6)


def _requantized(node: OnnxNode, sums: str, scale: str, result: int) -> tuple[str, ...]:
    """Sums times their scale, quantised by operands `result` (a scale) and the one after it (a zero point)."""
    zero = _zero(node, result + 1)
    if node.is_constant(scale) and node.is_const(result) and zero is not None and node.type(result).size == 1 \
            and node.type(result).dtype == "float32":
        (factor,) = emit_broadcast(node, "div", (scale, node.inputs[result]))
        dtype = node.type(result + 1).dtype
        limits = np.iinfo(dtype)
        return emit_broadcast(node, "elementwise", (sums, factor), dtype=dtype, expr=quantised(
            call("real", X) * arg(1), zero, int(limits.min), int(limits.max)))
    (real,) = cast_to(node, sums, "float32")
    (scale,) = cast_to(node, scale, "float32")
    (y_scale,) = cast_to(node, node.inputs[result], "float32")
    (real,) = emit_broadcast(node, "mul", (real, scale))
    return node.emit("quantize_linear", (real, y_scale, node.inputs[result + 1]), axis=0, block=0,
                     dtype=node.type(result + 1).dtype)


#: Sums of 8-bit products that are exact in float32: |x - zero point| and |w - zero point| are below 256.
EXACT_TERMS = 2**24 // 255**2


def _convolution(node: OnnxNode, x: str, w: str) -> tuple[str, ...]:
    """Computes a convolution of centred int32 operands by the convolution of float32, where that is exact."""
    terms = product(node.type_of(w).shape[1:])
    if not isinstance(terms, int) or terms > EXACT_TERMS:
        raise MegccError(f"sums {terms} 8-bit products; up to {EXACT_TERMS} are exact in float32, and there is no "
                         "integer convolution yet")
    spelled = copy(node)
    spelled.inputs = (*cast_to(node, x, "float32"), *cast_to(node, w, "float32"))
    return operator("conv2d").from_onnx(spelled)


def _sums(node: OnnxNode, x: int, w: int, bias: int | None = None) -> tuple[str, ...]:
    """Returns the convolution of operands x and w, whose zero points are two after them; () where that of w is not
    known."""
    x_zero, w_zero = _zero(node, x + 2), _zero(node, w + 2)
    if w_zero is None or node.type(x).rank not in (3, 4) or (x_zero is None and node.type(x + 2).size != 1):
        return ()
    value = node.inputs[x]
    if x_zero is None:  # measured in the run: differences of bytes, and a padding of zeros
        (value,) = emit_broadcast(node, "elementwise", (value, node.inputs[x + 2]), expr=X - arg(1), dtype="int16")
    spelled = copy(node)
    spelled.inputs = (value, node.inputs[w], *((node.inputs[bias],) if bias and node.has(bias) else ()))
    return emit_convolution(spelled, "conv2d_integer", x_zero=x_zero or 0, w_zero=w_zero)


@decomposes("ConvInteger")
def conv_integer(node: OnnxNode) -> tuple[str, ...]:
    known = _sums(node, 0, 1)
    return known or cast_to(node, *_convolution(node, _centred(node, 0, 2, True), _channels(node, 1, 3)), "int32")


@decomposes("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    known = _sums(node, 0, 3, 8)
    (sums,) = known or _convolution(node, _centred(node, 0, 2, True), _channels(node, 3, 5))
    rank = node.type(0).rank
    if node.has(8) and not known:
        (bias,) = cast_to(node, node.inputs[8], "float32")
        (bias,) = node.emit("reshape", (bias,), shape=(-1, *(1,) * (rank - 2)))
        (sums,) = emit_broadcast(node, "add", (sums, bias))
    (scale,) = emit_broadcast(node, "mul", (node.inputs[1], node.inputs[4]))
    if node.type_of(scale).size != 1:
        (scale,) = node.emit("reshape", (scale,), shape=(-1, *(1,) * (rank - 2)))
    return _requantized(node, sums, scale, 6)


def _channels(node: OnnxNode, index: int, zero: int) -> str:
    """Returns the weights of operand `index` as int32, less their zero point or that of each output channel."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    if node.type_of(point).size != 1:
        (point,) = node.emit("reshape", (point,), shape=(-1, *(1,) * (node.type(index).rank - 1)))
    return emit_broadcast(node, "sub", (value, point))[0]
