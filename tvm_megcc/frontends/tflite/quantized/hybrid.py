# SPDX-License-Identifier: Apache-2.0
"""Imports products of floats with 8-bit weights, bit for bit as LiteRT computes them: it quantises the floats to int8
by their range in the run, sums integer products, and dequantises the sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import ShapeError
from ....ir.dims import Dim, floordiv, product
from ....ir.expr import Expr, X, arg, call, clip, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ..file import Tensor
from ..node import Importer, Node, Results, Unsupported
from ..value import IMAGES
from ..windows import channels, convolution

#: Importers of operators on floats with 8-bit weights.
HYBRID: dict[str, Importer] = {}

#: The largest float32 and float64 below 1/2, added for rounding: 0.5 plus it rounds up to 1, a smaller number does not.
_HALF, _HALF64 = 0.49999997, 0.49999999999999994


def hybrid(*kinds: str, fused: bool = False):
    """Returns a decorator that registers importers. fused: a fused activation is applied to the first result."""
    def add(function: Importer) -> Importer:
        def activated(node: Node) -> Results:
            first, *rest = function(node)
            return [node.activated(first), *rest]

        HYBRID.update(dict.fromkeys(kinds, activated if fused else function))
        return function
    return add


def is_hybrid(kind: str, operands: Sequence[Tensor | None], results: Sequence[Tensor]) -> bool:
    """Whether an operator has float operands and results, and 8-bit weights."""
    first = operands[0] if operands else None
    return kind in HYBRID and first is not None and first.quantization is None \
        and first.dtype == ("int32" if kind == "EMBEDDING_LOOKUP" else "float32") \
        and any(tensor is not None and tensor.quantization is not None for tensor in operands) \
        and all(tensor.dtype == "float32" for tensor in results)


def scales(node: Node, index: int, axis: int) -> np.ndarray:
    """Returns the scales of weights: one, or one for each index of an axis."""
    tensor = node.tensors[index] if index < len(node.tensors) else None
    given = None if tensor is None else tensor.quantization
    if tensor is None or tensor.dtype != "int8" or given is None:
        raise Unsupported("weights other than int8 are not supported with float32 operands")
    if given.zero_point.any() or (len(given.scale) > 1 and given.axis != axis):
        raise Unsupported("its weights have zero points, or scales along another axis than that of the results, which "
                          "is not supported")
    return given.scale


def rounded(value: Expr, half: float = _HALF) -> Expr:
    """Rounds to the nearest integer, ties away from zero."""
    size = call("floor", call("abs", value) + half)
    return call("if_lt", value, 0, -size, size)


def measured(node: Node, x: str, axes: Sequence[int], asymmetric: bool) -> tuple[str, str, str]:
    """Quantises x to int8 by its range along `axes`. Returns the int8 value, its scale and, if asymmetric, its zero
    point in float32 ("" for 0)."""
    ends = {"axes": tuple(axes), "keepdims": True}
    if not asymmetric:
        size = node.emit("reduce_max", node.emit("abs", x), **ends)
        scale = node.compute(call("if_lt", 0, X, X / 127, 1), size)
        real = X * call("if_lt", 0, arg(1), 127 / maximum(arg(1), float(np.float32(1e-38))), 0)
        expr = call("nearest", clip(rounded(real), -127, 127))
        return emit_broadcast(node.spelled(), "elementwise", (x, size), expr=expr, dtype="int8")[0], scale, ""
    low, high = (node.emit("cast", node.compute(bound(X, 0), node.emit(kind, x, **ends)), dtype="float64")
                 for kind, bound in (("reduce_min", minimum), ("reduce_max", maximum)))
    step = node.compute(call("if_lt", X, arg(1), (arg(1) - X) / 255, 1), low, high)
    # The zero point is computed from the end of the range that has fewer steps to 0.
    below, above = X / arg(2), arg(1) / arg(2)
    point = call("if_lt", 128 + call("abs", below), 127 + call("abs", above), -128 - below, 127 - above)
    point = call("if_lt", X, arg(1), clip(rounded(point, _HALF64), -128, 127), 0)
    zero = node.emit("cast", node.compute(point, low, high, step), dtype="float32")
    scale = node.emit("cast", step, dtype="float32")
    expr = call("nearest", clip(rounded(arg(2) + X * (1 / arg(1))), -128, 127))
    return emit_broadcast(node.spelled(), "elementwise", (x, scale, zero), expr=expr, dtype="int8")[0], scale, zero


def _dequantized(node: Node, sums: str, scale: str, own: np.ndarray, bias: str, trailing: int) -> str:
    """Dequantises sums of products: multiplies by both scales and adds the bias. trailing: the number of axes after
    that of the channels."""
    factors = node.spelled().constant(own.astype(np.float32).reshape(-1, *(1,) * trailing))
    operands, expr = [sums, scale, factors], call("real", X) * (arg(1) * arg(2))
    if bias:
        shape = (-1, *(1,) * trailing)
        operands.append(node.emit("reshape", bias, shape=(node.type_of(bias).size, *shape[1:])))
        expr = expr + arg(3)
    return emit_broadcast(node.spelled(), "elementwise", operands, expr=expr, dtype="float32")[0]


@hybrid("CONV_2D", "DEPTHWISE_CONV_2D", fused=True)
def conv(node: Node) -> Results:
    """Imports a convolution. Each image has a scale of its own, and a zero point too if it is grouped or the weights
    have scales per channel."""
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    own, image = scales(node, 1, 3 if depthwise else 0), channels(node)
    w, attrs = convolution(node, image, depthwise)
    asymmetric = depthwise or len(set(own.tolist())) > 1 or attrs["groups"] > 1
    x, scale, zero = measured(node, image, (1, 2, 3), asymmetric)
    if zero:
        expr = X - call("nearest", arg(1))
        x = emit_broadcast(node.spelled(), "elementwise", (x, zero), expr=expr, dtype="int16")[0]
    sums = node.emit("conv2d_integer", x, w, **attrs, x_zero=0, w_zero=0)
    if len(set(own.tolist())) == 1:
        own = own[:1]
    return [node.made(_dequantized(node, sums, scale, own, node.optional(2), 2), IMAGES[4])]


@hybrid("FULLY_CONNECTED", fused=True)
def fully_connected(node: Node) -> Results:
    """Imports FULLY_CONNECTED. Each row of x has a scale of its own."""
    if node.option("WeightsFormat", 0):
        raise Unsupported("its weights are shuffled, which is not supported; convert the model for a current TFLite")
    own, shape = scales(node, 1, 0), node.type(0).shape
    if node.type(1).rank != 2:
        raise ShapeError(f"weights {node.type(1)} are no matrix")
    outputs, inputs = node.type(1).shape
    keeps = bool(node.option("KeepNumDims", False)) and bool(shape) and shape[-1] == inputs
    rows: Dim = product(shape[:-1]) if keeps else floordiv(product(shape), inputs) if inputs else 0
    matrix = node.in_order(node.reshaped(node.value(0), (rows, inputs)))
    asymmetric = bool(node.option("AsymmetricQuantizeInputs", False))
    value = node.made(product_of_rows(node, matrix, 1, own, asymmetric, node.optional(2)))
    return [node.reshaped(value, (*shape[:-1], outputs))] if keeps else [value]


def product_of_rows(node: Node, matrix: str, index: int, own: np.ndarray, asymmetric: bool, bias: str = "",
                    transposed: bool = True) -> str:
    """Multiplies a float matrix by operand `index` or its transpose. own: the scales of that operand."""
    weights = node.const(index, "weights") if asymmetric else None
    return multiplied(node, matrix, node.plain(index), weights, own, asymmetric, bias, transposed)


def multiplied(node: Node, matrix: str, name: str, weights: np.ndarray | None, own: np.ndarray, asymmetric: bool,
               bias: str = "", transposed: bool = True) -> str:
    """Multiplies a float matrix by the value `name`, as `product_of_rows` does. weights: that value's constant, needed
    if the matrix is quantised with zero points."""
    rank = node.type_of(matrix).rank
    x, scale, zero = measured(node, matrix, (rank - 1,), asymmetric)
    sums = node.emit("matmul_integer", x, name, trans_a=0, trans_b=int(transposed), a_zero=0, b_zero=0)
    if zero:
        assert weights is not None
        columns = weights.astype(np.int64).sum(-1 if transposed else -2, keepdims=True)
        rows = node.spelled().constant((columns.swapaxes(-1, -2) if transposed else columns).astype(np.int32))
        expr = X - call("nearest", arg(1)) * arg(2)
        sums = emit_broadcast(node.spelled(), "elementwise", (sums, zero, rows), expr=expr, dtype="int32")[0]
    return _dequantized(node, sums, scale, own, bias, 0)


@hybrid("BATCH_MATMUL")
def batch_matmul(node: Node) -> Results:
    """Imports BATCH_MATMUL. Each row of the first operand has a scale; each column of the second one may have one."""
    own = scales(node, 1, node.type(1).rank - (2 if node.option("AdjY") else 1))
    matrix = node.plain(0)
    if node.option("AdjX"):
        rank = node.type(0).rank
        matrix = node.emit("transpose", matrix, perm=(*range(rank - 2), rank - 1, rank - 2))
    asymmetric = bool(node.option("AsymmetricQuantizeInputs", False))
    return [product_of_rows(node, matrix, 1, own, asymmetric, transposed=bool(node.option("AdjY")))]


@hybrid("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Results:
    """Operands: indices of rows, table."""
    own = scales(node, 1, 0)
    if len(own) > 1:
        raise Unsupported("a table with several scales is not supported")
    (rows,) = node.onnx("Gather", node.plain(1), node.plain(0), axis=0)
    return [emit_broadcast(node.spelled(), "elementwise", (rows,), expr=call("real", X) * float(own[0]),
                           dtype="float32")[0]]
