# SPDX-License-Identifier: Apache-2.0
"""Imports elementwise operators of numbers that are not quantised: a table of those that only have another name, then
functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import ShapeError
from ...ir.types import ORDINARY
from ...ops.elementwise import emit_broadcast
from .node import Node, Results, Unsupported, imports
from .value import Order


class Row(NamedTuple):
    """The importer of an operator as a table row.

    kind: an ONNX operator or, in lower case, one of ours.
    attrs: returns its attributes, from the node's options.
    fused: whether the operator has the option of a fused activation.
    """

    kind: str
    attrs: Callable[[Node], dict] = lambda node: {}
    fused: bool = False


def _within(lo: float, hi: float) -> Row:
    return Row("clip", lambda node: {"lo": lo, "hi": hi})


ROWS = {
    **{kind: Row(name, fused=True) for kind, name in (("ADD", "Add"), ("SUB", "Sub"), ("MUL", "Mul"), ("DIV", "Div"))},
    "MAXIMUM": Row("max"), "MINIMUM": Row("min"), "POW": Row("Pow"), "FLOOR_MOD": Row("mod"), "ADD_N": Row("Sum"),
    "ABS": Row("Abs"), "NEG": Row("Neg"), "SIGN": Row("Sign"), "EXP": Row("Exp"), "LOG": Row("Log"),
    "SQRT": Row("Sqrt"), "RSQRT": Row("rsqrt"), "SIN": Row("Sin"), "COS": Row("Cos"), "FLOOR": Row("Floor"),
    "CEIL": Row("Ceil"), "ROUND": Row("Round"),
    "EQUAL": Row("Equal"), "LESS": Row("Less"), "LESS_EQUAL": Row("LessOrEqual"), "GREATER": Row("Greater"),
    "GREATER_EQUAL": Row("GreaterOrEqual"), "LOGICAL_AND": Row("And"), "LOGICAL_OR": Row("Or"),
    "LOGICAL_NOT": Row("Not"), "BITWISE_XOR": Row("BitwiseXor"),
    "LOGISTIC": Row("Sigmoid"), "TANH": Row("Tanh"), "RELU": Row("Relu"), "RELU6": _within(0.0, 6.0),
    "RELU_N1_TO_1": _within(-1.0, 1.0), "RELU_0_TO_1": _within(0.0, 1.0), "HARD_SWISH": Row("HardSwish"),
    "ELU": Row("Elu", lambda node: {"alpha": 1.0}), "PRELU": Row("PRelu"),
    "LEAKY_RELU": Row("LeakyRelu", lambda node: {"alpha": float(node.option("Alpha"))}),
    "GELU": Row("Gelu", lambda node: {"approximate": "tanh" if node.option("Approximate", default=False) else "none"}),
}


def _importer(row: Row):
    def import_(node: Node) -> Results:
        attrs = row.attrs(node)

        def make(names: list[str], order: Order) -> str:
            if row.kind[0].isupper():
                return node.onnx(row.kind, *names, **attrs)[0]
            return emit_broadcast(node.onnx_node(), row.kind, names, **attrs)[0]

        return [node.in_common_order(node.values, make)]
    return import_


for _kind, _row in ROWS.items():
    imports(_kind, fused=_row.fused)(_importer(_row))


def emitted(node: Node, kind: str) -> Callable[[list[str], Order], str]:
    """Returns the function for `Node.in_common_order` that emits one of our operators."""
    return lambda names, order: emit_broadcast(node.onnx_node(), kind, names)[0]


@imports("NOT_EQUAL")
def not_equal(node: Node) -> Results:
    equal = emitted(node, "equal")
    return [node.in_common_order(node.values, lambda names, order: node.emit("logical_not", equal(names, order)))]


@imports("SQUARE")
def square(node: Node) -> Results:
    value = node.value(0)
    return [node.as_value(node.emit("mul", value.name, value.name), value.order)]


@imports("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> Results:
    def make(names: list[str], order: Order) -> str:
        difference = emitted(node, "sub")(names, order)
        return node.emit("mul", difference, difference)

    return [node.in_common_order(node.values, make)]


@imports("FLOOR_DIV")
def floor_division(node: Node) -> Results:
    """Divides and rounds down. For integers, subtracts 1 from the truncated quotient where its remainder differs from
    that of a quotient rounded down."""
    def make(names: list[str], order: Order) -> str:
        if node.type(0).dtype.startswith("float"):
            return node.emit("floor", emitted(node, "div")(names, order))
        quotient = emitted(node, "div")(names, order)
        remainder = emitted(node, "sub")([names[0], emitted(node, "mul")([quotient, names[1]], order)], order)
        same = emitted(node, "equal")([remainder, emitted(node, "mod")(names, order)], order)
        correction = node.emit("cast", node.emit("logical_not", same), dtype=node.type(0).dtype)
        return emitted(node, "sub")([quotient, correction], order)

    return [node.in_common_order(node.values, make)]


@imports("RIGHT_SHIFT")
def right_shift(node: Node) -> Results:
    """Shifts right. The number of bits is clamped to the range from 0 to the type's width - 1."""
    def make(names: list[str], order: Order) -> str:
        dtype = np.dtype(node.type(1).dtype)
        bits = names[1]
        for kind, bound in (("max", 0), ("min", 8 * dtype.itemsize - 1)):
            (bits,) = emit_broadcast(node.onnx_node(), kind, (bits, node.constant(bound, dtype.name)))
        return emitted(node, "shift_right")([names[0], bits], order)

    return [node.in_common_order(node.values, make)]


@imports("SELECT", "SELECT_V2")
def select(node: Node) -> Results:
    """Imports SELECT. A condition of rank 1 with operands of higher rank chooses among their rows."""
    condition, *rest = node.values
    rows, rank = condition.type.shape, len(rest[0].order)
    if node.kind == "SELECT" and len(rows) == 1 and rank > 1:
        condition = node.reshaped(condition, (*rows, *(1,) * (rank - 1)))
    return [node.in_common_order([condition, *rest], emitted(node, "where"))]


@imports("CAST")
def cast(node: Node) -> Results:
    value, dtype = node.value(0), node.results[0].dtype
    if dtype not in ORDINARY:
        raise Unsupported(f"converts to {dtype}, which is not supported")
    if value.type.dtype == dtype:
        return [value]
    if dtype == "bool":
        return [node.as_value(node.emit("logical_not", node.emit("equal", value.name, node.constant(
            0, value.type.dtype))), value.order)]
    return [node.as_value(node.emit("cast", value.name, dtype=dtype), value.order)]


@imports("DEQUANTIZE")
def dequantize(node: Node) -> Results:
    """Imports DEQUANTIZE of float16 weights; the folder `quantized` imports it for quantised tensors."""
    value = node.value(0)
    if value.type.dtype not in ("float16", "float32"):
        raise ShapeError(f"{value.type} has no scale")
    if value.type.dtype == "float32":
        return [value]
    return [node.as_value(node.emit("cast", value.name, dtype="float32"), value.order)]


@imports("ZEROS_LIKE")
def zeros_like(node: Node) -> Results:
    type_ = node.type(0)
    return [node.onnx("Expand", node.constant(0, type_.dtype), node.builder.shape_constant(type_.shape, node.name))[0]]
