# SPDX-License-Identifier: Apache-2.0
"""Imports matrix products with at least one int16 operand, which LiteRT sums in int64."""

from __future__ import annotations

from ....errors import ShapeError
from ....ir.expr import Expr, X, arg, call, clip
from ....ops.elementwise import emit_broadcast
from ...fixed_point import floor_shift
from ..node import Node, Results, Unsupported
from . import fixed_point
from .importers import imports_int16, operand, result, with_15_bit_significand, zero

#: The most products of 8-bit parts whose sum cannot overflow int32.
_MAX_DEPTH = 2**15
#: The most products of int16, of 30 bits each, whose sum times a significand of 15 bits fits in the 53 bits of float64.
_MAX_DIRECT_DEPTH = 2**7
#: Larger sums are multiplied in two parts: these lower bits, and the rest.
_LOWER_BITS = 20


@imports_int16("BATCH_MATMUL")
def batch_matmul(node: Node) -> Results:
    """Imports BATCH_MATMUL. An int16 is split into 256 times its upper 8 bits plus its lower 8 bits. The sums of
    products of these parts fit in int32, and are combined in float64, exactly."""
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    types = node.type(0).dtype, node.type(1).dtype, node.results[0].dtype
    if types[0] != "int16" or types[1] not in ("int8", "int16") or types[2] != "int16" or zero(b):
        raise Unsupported(f"a product of {types[0]} and {types[1]} in {types[2]} is not supported")
    transposed = {"trans_a": int(bool(node.option("AdjX"))), "trans_b": int(bool(node.option("AdjY")))}
    if node.type(0).rank < 2:
        raise ShapeError(f"{node.type(0)} is no matrix")
    depth = node.type(0).shape[-2 if transposed["trans_a"] else -1]
    if not isinstance(depth, int) or depth >= _MAX_DEPTH:
        raise Unsupported(f"sums of {depth} products of 16 bits are not supported")
    total = None
    for left, left_shift in _bytes_of_int16(node, node.plain(0)):
        for right, right_shift in _bytes_of_int16(node, node.plain(1)) if types[1] == "int16" else [(node.plain(1), 0)]:
            sums = node.emit("matmul_integer", left, right, **transposed, a_zero=0, b_zero=0)
            part = node.compute(X * 2.0**(left_shift + right_shift), node.emit("cast", sums, dtype="float64"))
            total = part if total is None else node.compute(X + arg(1), total, part)
    (factor,) = fixed_point.product_multipliers(a, b, y, per_channel=False)
    significand, shift = with_15_bit_significand(factor)
    bits = 31 - shift  # the right shift after the product with the 15-bit significand
    if bits < 1 or (bits <= _LOWER_BITS and depth > _MAX_DIRECT_DEPTH):
        raise Unsupported(f"its scales differ by a factor of 2^{15 - bits}")
    assert total is not None
    clipped = clip(_requantized(significand, bits, depth), *map(float, fixed_point.integer_range("int16")))
    return [node.emit("cast", node.compute(clipped, total), dtype="int16")]


def _bytes_of_int16(node: Node, name: str) -> list[tuple[str, int]]:
    """Splits a value into 8-bit values, each with the number of bits by which it is shifted left."""
    def emitted(expr: Expr, dtype: str) -> str:
        return emit_broadcast(node.onnx_node(), "elementwise", (name,), expr=expr, dtype=dtype)[0]

    upper = floor_shift(X, 8)
    return [(emitted(upper, "int8"), 8), (emitted(X - upper * 256, "uint8"), 0)]


def _requantized(significand: int, bits: int, depth: int) -> Expr:
    """Returns floor((X * significand + 2^(bits - 1)) / 2^bits), in float64; no intermediate needs more than 53 bits.

    X: a sum of `depth` products. significand: of 15 bits. bits: more than `_LOWER_BITS` if X is split.
    """
    if depth <= _MAX_DIRECT_DEPTH:
        return call("floor", (X * significand + 2.0**(bits - 1)) / 2.0**bits)
    unit = 2.0**_LOWER_BITS
    upper = call("floor", X / unit)
    lower = call("floor", ((X - upper * unit) * significand + 2.0**(bits - 1)) / unit)
    return call("floor", (upper * significand + lower) / 2.0**(bits - _LOWER_BITS))
