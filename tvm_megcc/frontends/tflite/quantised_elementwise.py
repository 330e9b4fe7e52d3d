# SPDX-License-Identifier: Apache-2.0
"""Operators on quantised numbers that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.expr import X, arg, call, clip
from . import fixed
from .node import Node, Results, Unsupported
from .quantised import (
    activation,
    elementwise,
    looked_up,
    operand,
    quantised,
    require_same_scales,
    rescaled,
    result,
    same_types,
    zero,
)

#: Bits by which operands of sums are scaled up.
_UP = 20


@quantised("ADD", "SUB")
def sum_(node: Node) -> Results:
    """Both operands in a common scale of 2^20 steps for each of the coarser one's, then in the result's."""
    same_types(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    twice = 2 * max(fixed.scale(a), fixed.scale(b))
    terms = [rescaled((arg(index) - zero(each)) * 2**_UP, fixed.multiplier(fixed.scale(each) / twice))
             for index, each in enumerate((a, b))]
    total = terms[0] + terms[1] if node.kind == "ADD" else terms[0] - terms[1]
    down = fixed.multiplier(twice / (2**_UP * fixed.scale(y)))
    expr = clip(rescaled(total, down) + zero(y), *activation(node))
    return [elementwise(node, expr)]


@quantised("MUL")
def mul(node: Node) -> Results:
    same_types(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    factor = fixed.multiplier(float(a.scale[0] * b.scale[0] / y.scale[0]))
    expr = rescaled((X - zero(a)) * (arg(1) - zero(b)), factor)
    return [elementwise(node, clip(expr + zero(y), *activation(node)))]


@quantised("MAXIMUM", "MINIMUM")
def extreme(node: Node) -> Results:
    require_same_scales(node)
    return [elementwise(node, call({"MAXIMUM": "max", "MINIMUM": "min"}[node.kind], X, arg(1)))]


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LOGISTIC": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)), "TANH": np.tanh, "EXP": np.exp}


@quantised(*_FUNCTIONS)
def function(node: Node) -> Results:
    table = fixed.table(_FUNCTIONS[node.kind], operand(node, 0), same_types(node), result(node), node.results[0].dtype)
    return [looked_up(node, table, node.value(0))]


@quantised("LEAKY_RELU")
def leaky_relu(node: Node) -> Results:
    table = fixed.leaky_table(operand(node, 0), same_types(node), result(node), float(node.option("Alpha")))
    return [looked_up(node, table, node.value(0))]


#: Activations that are operators, as fused ones.
_CLAMPS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}


@quantised(*_CLAMPS)
def relu(node: Node) -> Results:
    dtype, x, y = same_types(node), operand(node, 0), result(node)
    within = fixed.activation_range(_CLAMPS[node.kind], dtype, y)
    assert within is not None
    factor = fixed.multiplier(float(x.scale[0] / y.scale[0]))
    return [elementwise(node, clip(rescaled(X - zero(x), factor) + zero(y), *within))]


@quantised("QUANTIZE")
def quantize(node: Node) -> Results:
    """Reals, or numbers of another scale."""
    y, within = result(node), fixed.limits(node.results[0].dtype)
    if node.type(0).dtype == "float32":
        # The largest float below a half: added to a half it makes one, to what is less it does not.
        real = clip(X / float(y.scale[0]), within.low - zero(y), within.high - zero(y))
        size = call("floor", call("abs", real) + 0.49999997)
        return [elementwise(node, call("nearest", call("if_lt", real, 0, -size, size)) + zero(y))]
    x = operand(node, 0)
    factor = fixed.multiplier(fixed.scale(x) / fixed.scale(y))
    return [elementwise(node, clip(rescaled(X - zero(x), factor) + zero(y), *within))]


@quantised("DEQUANTIZE")
def dequantize(node: Node) -> Results:
    tensor = node.tensors[0]
    if tensor is None or tensor.quantization is None or node.results[0].dtype != "float32":
        raise Unsupported("it has no scale, or does not give float32")
    value, given = node.value(0), tensor.quantization
    several = len(given.scale) > 1
    scales = node.spelled().constant(given.scale if several else given.scale.reshape(()))
    points = given.zero_point.astype(value.type.dtype)
    name = node.emit("dequantize_linear", value.name, scales,
                     node.spelled().constant(points if several else points.reshape(())),
                     axis=value.order.index(given.axis) if several else 0, block=0, dtype="float32")
    return [node.made(name, value.order)]
