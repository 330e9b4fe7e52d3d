# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of quantised numbers: sums of integers, with zero points taken off the operands first."""

from __future__ import annotations

from copy import copy

from ..errors import MegccError
from ..ir.dims import product
from .base import OnnxNode, decomposes, operator
from .elementwise import cast_to, emit_broadcast


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


@decomposes("MatMulInteger")
def matmul_integer(node: OnnxNode) -> tuple[str, ...]:
    return node.emit("matmul", (_centred(node, 0, 2, False), _centred(node, 1, 3, True)), trans_a=0, trans_b=0)


@decomposes("QLinearMatMul")
def qlinear_matmul(node: OnnxNode) -> tuple[str, ...]:
    a, b = _centred(node, 0, 2, False), _centred(node, 3, 5, True)
    (sums,) = node.emit("matmul", (a, b), trans_a=0, trans_b=0)
    scale = emit_broadcast(node, "mul", (_by_row(node, node.inputs[1], False), node.inputs[4]))[0]
    return _requantized(node, sums, scale, 6)


def _requantized(node: OnnxNode, sums: str, scale: str, result: int) -> tuple[str, ...]:
    """Sums times their scale, quantised by operands `result` (a scale) and the one behind it (a zero point)."""
    (real,) = cast_to(node, sums, "float32")
    (scale,) = cast_to(node, scale, "float32")
    (y_scale,) = cast_to(node, node.inputs[result], "float32")
    (real,) = emit_broadcast(node, "mul", (real, scale))
    return node.emit("quantize_linear", (real, y_scale, node.inputs[result + 1]), axis=0, block=0,
                     dtype=node.type(result + 1).dtype)


#: Sums of products of bytes that are exact in float32: |x - zero point| and |w - zero point| are below 256.
EXACT_TERMS = 2**24 // 255**2


def _convolution(node: OnnxNode, x: str, w: str) -> tuple[str, ...]:
    """Of centred int32 operands, by the convolution of float32, where that is exact."""
    terms = product(node.type_of(w).shape[1:])
    if not isinstance(terms, int) or terms > EXACT_TERMS:
        raise MegccError(f"sums {terms} products of bytes; up to {EXACT_TERMS} are exact in float32, and there is no "
                         "integer convolution yet")
    spelled = copy(node)
    spelled.inputs = (*cast_to(node, x, "float32"), *cast_to(node, w, "float32"))
    return operator("conv2d").from_onnx(spelled)


@decomposes("ConvInteger")
def conv_integer(node: OnnxNode) -> tuple[str, ...]:
    return cast_to(node, *_convolution(node, _centred(node, 0, 2, True), _channels(node, 1, 3)), "int32")


@decomposes("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    (sums,) = _convolution(node, _centred(node, 0, 2, True), _channels(node, 3, 5))
    rank = node.type(0).rank
    if node.has(8):
        (bias,) = cast_to(node, node.inputs[8], "float32")
        (bias,) = node.emit("reshape", (bias,), shape=(-1, *(1,) * (rank - 2)))
        (sums,) = emit_broadcast(node, "add", (sums, bias))
    (scale,) = emit_broadcast(node, "mul", (node.inputs[1], node.inputs[4]))
    if node.type_of(scale).size != 1:
        (scale,) = node.emit("reshape", (scale,), shape=(-1, *(1,) * (rank - 2)))
    return _requantized(node, sums, scale, 6)


def _channels(node: OnnxNode, index: int, zero: int) -> str:
    """The weights of operand `index` as int32, less their zero point or that of each output channel."""
    (value,) = cast_to(node, node.inputs[index], "int32")
    if not node.has(zero):
        return value
    (point,) = cast_to(node, node.inputs[zero], "int32")
    if node.type_of(point).size != 1:
        (point,) = node.emit("reshape", (point,), shape=(-1, *(1,) * (node.type(index).rank - 1)))
    return emit_broadcast(node, "sub", (value, point))[0]
