# SPDX-License-Identifier: Apache-2.0
"""Imports elementwise operators on quantised tensors."""

from __future__ import annotations

from collections.abc import Callable
from math import erfc

import numpy as np

from ....ir.expr import Expr, X, arg, call, clip, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ..node import Node, Results, Unsupported
from ..value import Order
from . import fixed_point
from .fixed_tables import TABLES, leading_sign_bits, magnitudes, reciprocals
from .importers import (
    BYTE_DTYPES,
    QUANTISED_DTYPES,
    activation,
    common_dtype,
    elementwise,
    emit_as_result,
    imports_int16,
    imports_quantised,
    lookup,
    operand,
    quantization_of,
    requantize,
    require_same_scales,
    result,
    zero,
)

#: Bits by which operands are shifted left before they are rescaled, for precision: of sums, squared differences and
#: comparisons, as in LiteRT's add.cc, squared_difference.cc and comparisons.cc.
_LEFT_SHIFT, _DIFFERENCE_SHIFT, _COMPARISON_SHIFT = 20, 7, 8
#: The smallest float32 above 0. It keeps the logarithm and reciprocal of 0 out of a branch that is not taken.
TINY = np.float32(1e-45)


@imports_quantised("ADD", "SUB")
def sum_(node: Node) -> Results:
    """Imports ADD and SUB. Operands are rescaled to twice the coarser scale over 2^20, added, and requantized."""
    common_dtype(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    twice = 2 * max(fixed_point.scale(a), fixed_point.scale(b))
    terms = [requantize((arg(index) - zero(q)) * 2**_LEFT_SHIFT, fixed_point.multiplier(fixed_point.scale(q) / twice))
             for index, q in enumerate((a, b))]
    total = terms[0] + terms[1] if node.kind == "ADD" else terms[0] - terms[1]
    down = fixed_point.multiplier(twice / (2**_LEFT_SHIFT * fixed_point.scale(y)))
    expr = clip(requantize(total, down) + zero(y), *activation(node))
    return [elementwise(node, expr)]


@imports_quantised("MUL", also_int16=True)
def mul(node: Node) -> Results:
    common_dtype(node, QUANTISED_DTYPES)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    factor = fixed_point.multiplier(float(a.scale[0] * b.scale[0] / y.scale[0]))
    expr = requantize((X - zero(a)) * (arg(1) - zero(b)), factor)
    return [elementwise(node, clip(expr + zero(y), *activation(node)))]


@imports_quantised("MAXIMUM", "MINIMUM", also_int16=True)
def extreme(node: Node) -> Results:
    require_same_scales(node)
    return [elementwise(node, call({"MAXIMUM": "max", "MINIMUM": "min"}[node.kind], X, arg(1)))]


def _gelu(x: np.ndarray, approximate: bool) -> np.ndarray:
    """Computes GELU in float32, with each step rounded as in LiteRT, since results halfway between two integers depend
    on it."""
    x = x.astype(np.float32)
    half_x = np.float32(0.5) * x
    if approximate:
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
        return half_x * (np.float32(1) + np.tanh(inner))
    return half_x * np.vectorize(erfc, otypes=[np.float32])(x * np.float32(-np.sqrt(0.5)))


def _log(x: np.ndarray, node: Node) -> np.ndarray:
    """Computes the logarithm; numbers ≤ 0 give the smallest result."""
    y = result(node)
    smallest_real = np.float32(fixed_point.integer_range(node.results[0].dtype).minimum - zero(y)) * y.scale[0]
    return np.where(x > 0, np.log(np.maximum(x, TINY)), smallest_real)


FUNCTIONS: dict[str, Callable[[np.ndarray, Node], np.ndarray]] = {
    "LOGISTIC": lambda x, node: np.float32(1) / (np.float32(1) + np.exp(-x)), "TANH": lambda x, node: np.tanh(x),
    "EXP": lambda x, node: np.exp(x), "ELU": lambda x, node: np.where(x < 0, np.expm1(x), x), "LOG": _log,
    "GELU": lambda x, node: _gelu(x, bool(node.option("Approximate", default=False)))}


@imports_quantised(*FUNCTIONS)
def function(node: Node) -> Results:
    table = fixed_point.table(lambda x: FUNCTIONS[node.kind](x, node), operand(node, 0), common_dtype(node),
                              result(node), node.results[0].dtype)
    return [lookup(node, table, node.value(0))]


@imports_quantised(*TABLES)
def table(node: Node) -> Results:
    return [lookup(node, TABLES[node.kind](operand(node, 0), common_dtype(node), result(node)), node.value(0))]


@imports_quantised("LEAKY_RELU")
def leaky_relu(node: Node) -> Results:
    table = fixed_point.leaky_table(operand(node, 0), common_dtype(node), result(node), float(node.option("Alpha")))
    return [lookup(node, table, node.value(0))]


@imports_quantised("PRELU")
def prelu(node: Node) -> Results:
    """Imports PRELU as a sum of two terms, for numbers above the zero point and below it; one of them is always 0."""
    common_dtype(node)
    x, alpha, y = operand(node, 0), operand(node, 1), result(node)
    above = fixed_point.multiplier(float(x.scale[0] / y.scale[0]))
    below = fixed_point.multiplier(float(x.scale[0] * alpha.scale[0] / y.scale[0]))
    centred = X - zero(x)
    expr = requantize(maximum(centred, 0), above) + requantize(minimum(centred, 0) * (arg(1) - zero(alpha)), below)
    return [elementwise(node, clip(expr + zero(y), *fixed_point.integer_range(node.results[0].dtype)))]


@imports_quantised("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> Results:
    common_dtype(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    twice = float(np.float32(2) * max(a.scale[0], b.scale[0]))
    terms = [requantize((arg(index) - zero(q)) * 2**_DIFFERENCE_SHIFT,
                        fixed_point.multiplier(fixed_point.scale(q) / twice)) for index, q in enumerate((a, b))]
    down = fixed_point.multiplier(twice * twice / float(np.float32(2**(2 * _DIFFERENCE_SHIFT)) * y.scale[0]))

    def make(names: list[str], order: Order) -> str:
        (difference,) = emit_broadcast(node.onnx_node(), "elementwise", names, expr=terms[0] - terms[1], dtype="int32")
        return emit_as_result(node, requantize(X * X, down) + zero(y), difference)

    return [node.in_common_order(node.values, make)]


#: Comparisons -> our int32 operator, and whether its result is negated.
_COMPARISONS = {"EQUAL": ("equal", False), "NOT_EQUAL": ("equal", True), "LESS": ("less", False),
                "GREATER_EQUAL": ("less", True), "GREATER": ("greater", False), "LESS_EQUAL": ("greater", True)}


@imports_int16("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def raw_comparison(node: Node) -> Results:
    """Compares int16 numbers without rescaling, since LiteRT ignores their scales."""
    kind, is_negated = _COMPARISONS[node.kind]

    def make(names: list[str], order: Order) -> str:
        (found,) = emit_broadcast(node.onnx_node(), kind, names)
        return node.emit("logical_not", found) if is_negated else found

    return [node.in_common_order(node.values, make)]


@imports_int16("EQUAL", "NOT_EQUAL")
@imports_quantised(*_COMPARISONS)
def comparison(node: Node) -> Results:
    """Compares both operands after rescaling them to multiples of 1 / 256."""
    kind, is_negated = _COMPARISONS[node.kind]
    terms = [requantize((X - zero(q)) * 2**_COMPARISON_SHIFT, fixed_point.multiplier(fixed_point.scale(q)))
             for q in (operand(node, 0), operand(node, 1))]

    def make(names: list[str], order: Order) -> str:
        rescaled = [emit_broadcast(node.onnx_node(), "elementwise", (name,), expr=term, dtype="int32")[0]
                    for name, term in zip(names, terms, strict=True)]
        (found,) = emit_broadcast(node.onnx_node(), kind, rescaled)
        return node.emit("logical_not", found) if is_negated else found

    return [node.in_common_order(node.values, make)]


@imports_int16("DIV")
@imports_quantised("DIV")
def div(node: Node) -> Results:
    """Imports DIV: multiplies by the reciprocal of the divisor's absolute value, in fixed point, as LiteRT's
    `DivElementwise` (reference/div.h).

    The reciprocal is a significand and a shift. Those of 8-bit divisors come from tables of 256 entries by the divisor,
    those of int16 from a table by its absolute value. The dividend gets the divisor's sign, and is shifted left by its
    headroom before the multiplication: the bits by which that does not overflow.
    """
    dtype = common_dtype(node, QUANTISED_DTYPES)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    bounds, factor = activation(node), fixed_point.multiplier(float(a.scale[0] / (b.scale[0] * y.scale[0])))
    largest_dividend = 255 if dtype in BYTE_DTYPES else 2**15
    constant = node.onnx_node().constant

    def integers(expr: Expr, *names: str) -> str:
        return emit_broadcast(node.onnx_node(), "elementwise", names, expr=expr, dtype="int32")[0]

    def reciprocal_of_bytes(dividend: str, divisor: str) -> tuple[str, str, str]:
        sign = np.where(fixed_point.codes(dtype) < zero(b), -1, 1).astype(np.int8)
        signs, *inverse = (node.emit("lookup", divisor, constant(table))
                           for table in (sign, *reciprocals(magnitudes(b, dtype))))
        return (integers((X - zero(a)) * arg(1), dividend, signs), *inverse)

    def reciprocal_of_int16(dividend: str, divisor: str) -> tuple[str, str, str]:
        magnitude = integers(maximum(X, 0) - minimum(X, 0), divisor)
        inverse, _ = reciprocals(np.arange(2**15 + 1))
        sign = 2 * minimum(maximum(arg(1), -1), 0) + 1  # -1 for negative divisors, 1 for others
        signed = integers(X * sign, dividend, divisor)
        return signed, node.emit("gather", constant(inverse), magnitude, axis=0), integers(_bits(X) - 1, magnitude)

    def make(names: list[str], order: Order) -> str:
        dividend, divisor = names
        if node.type_of(divisor).rank < len(order):
            divisor = node.emit("reshape", divisor, shape=(1,) * (len(order) - node.type_of(divisor).rank)
                              + node.type_of(divisor).shape)
        reciprocal = reciprocal_of_bytes if dtype in BYTE_DTYPES else reciprocal_of_int16
        signed, inverses, shifts = reciprocal(dividend, divisor)
        if dtype in BYTE_DTYPES:  # a table from -largest_dividend on
            table = constant(leading_sign_bits(largest_dividend))
            headroom = node.emit("gather", table, integers(X + largest_dividend, signed), axis=0)
        else:
            headroom = integers(31 - _bits(maximum(X, -1 - X)), signed)
        doubled = call("rescale_fixed", X * 2, arg(1), arg(3) - 1)  # shifts end at 30: X * 2 gives one more
        expr = call("rescale_fixed", doubled, factor.significand, float(factor.shift) - arg(2) - arg(3))
        return emit_as_result(node, clip(expr + zero(y), *bounds), signed, inverses, shifts, headroom)

    return [node.in_common_order(node.values, make)]


def _bits(number: Expr) -> Expr:
    """Returns the number of significant bits of a number from 0 to 2^15."""
    total = minimum(number, 1)
    for power in range(1, 16):
        total = total + clip(number - (2**power - 1), 0, 1)  # 1 more from 2^power on
    return total


#: Activation operators -> their lower and upper bounds.
_CLAMPS = {"RELU": (0.0, None), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0), "RELU_0_TO_1": (0.0, 1.0)}


@imports_int16("RELU", "RELU6")
@imports_quantised(*_CLAMPS)
def relu(node: Node) -> Results:
    dtype, x, y = common_dtype(node, QUANTISED_DTYPES), operand(node, 0), result(node)
    bounds = fixed_point.quantized_range(*_CLAMPS[node.kind], dtype, y)
    factor = fixed_point.multiplier(float(x.scale[0] / y.scale[0]))
    return [elementwise(node, clip(requantize(X - zero(x), factor) + zero(y), *bounds))]


@imports_quantised("QUANTIZE", also_int16=True)
def quantize(node: Node) -> Results:
    """Imports QUANTIZE of floats, or of integers of another scale. int16 may have any zero point, also from and to
    int32."""
    y = quantization_of(node.results[0], (*QUANTISED_DTYPES, "int32"), any_zero=True)
    bounds = fixed_point.integer_range(node.results[0].dtype)
    if node.type(0).dtype == "float32":
        real = clip(X / float(y.scale[0]), bounds.minimum - zero(y), bounds.maximum - zero(y))
        return [elementwise(node, call("nearest_away", real) + zero(y))]
    x = quantization_of(node.tensors[0], (*QUANTISED_DTYPES, "int32"), any_zero=True)
    if node.type(0).dtype == "int32" and node.results[0].dtype not in ("int8", "int16"):
        raise Unsupported(f"{node.results[0].dtype} of numbers of int32 is not supported")
    factor = fixed_point.multiplier(fixed_point.scale(x) / fixed_point.scale(y))
    return [elementwise(node, clip(requantize(X - zero(x), factor) + zero(y), *bounds))]


@imports_quantised("DEQUANTIZE", also_int16=True)
def dequantize(node: Node) -> Results:
    tensor = node.tensors[0]
    if tensor is None or tensor.quantization is None or node.results[0].dtype != "float32":
        raise Unsupported("it has no scale, or does not give float32")
    value, given = node.value(0), tensor.quantization
    several = len(given.scale) > 1
    scales = node.onnx_node().constant(given.scale if several else given.scale.reshape(()))
    points = given.zero_point.astype(value.type.dtype)
    name = node.emit("dequantize_linear", value.name, scales,
                     node.onnx_node().constant(points if several else points.reshape(())),
                     axis=value.order.index(given.axis) if several else 0, block=0, dtype="float32")
    return [node.as_value(name, value.order)]
