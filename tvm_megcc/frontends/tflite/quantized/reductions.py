# SPDX-License-Identifier: Apache-2.0
"""Imports quantised operators along axes: sums, means, products, softmax."""

from __future__ import annotations

import numpy as np

from ....ir.dims import product
from ....ir.expr import X, call
from ....ops.quantized import log_softmax as log_softmax_fixed
from ....ops.quantized import reduce_prod, softmax_int8
from ....ops.quantized.lookup_table import INT8_TYPES
from ...fixed_point import MAX_SHIFT, round_half_away
from ..node import Node, Results, Unsupported
from ..products import reduced
from . import fixed_point
from .importers import (
    common_dtype,
    emit_as_result,
    imports_quantised,
    operand,
    requantize,
    require_same_scales,
    result,
    with_15_bit_significand,
    zero,
)

#: More summands than these could overflow an int32 sum: 2^31 over the largest distance of a code from its zero point,
#: with a bit to spare.
_MAX_COUNT = {"int8": 2**22, "uint8": 2**22, "int16": 2**15}


@imports_quantised("MEAN", "SUM", also_int16=True)
def mean(node: Node) -> Results:
    """Imports MEAN and SUM. SUM of int8 and int16 is computed as in LiteRT's optimised kernel, which rounds to the
    nearest; the reference kernel reads int8 as uint8."""
    value, x, y = node.value(0), operand(node, 0), result(node)
    in_float32 = node.kind == "SUM" and value.type.dtype != "uint8"
    axes = node.axes(1, len(value.order))
    count = product(value.type.shape[axis] for axis in axes)
    if not isinstance(count, int) or not 0 < count < _MAX_COUNT[value.type.dtype]:
        raise Unsupported(f"the {node.kind.lower()} of {count} numbers is not supported")
    reduction = {"axes": tuple(sorted(value.order.index(axis) for axis in axes)), "keepdims": True}
    if value.type.dtype in INT8_TYPES:
        total = node.emit("reduce_sum_integer", value.name, x_zero=0 if in_float32 else zero(x), **reduction)
    else:
        total = node.emit("reduce_sum", node.emit("elementwise", value.name, expr=X, dtype="int32"), **reduction)
    if in_float32:
        factor = x.scale[0] / y.scale[0]
        real = call("real", X) * float(factor) + float(np.float32(-zero(x)) * factor * np.float32(count))
        expr = call("nearest", round_half_away(real)) + zero(y)
    else:
        expr = requantize(X, fixed_point.mean_multiplier(x, y, count) if node.kind == "MEAN" else
                        fixed_point.multiplier(fixed_point.scale(x) / fixed_point.scale(y))) + zero(y)
    rounded_mean = node.as_value(emit_as_result(node, expr, total), value.order)
    return [rounded_mean if node.option("KeepDims") else node.without_axes(rounded_mean, axes)]


@imports_quantised("REDUCE_MAX", "REDUCE_MIN", also_int16=True)
def extreme(node: Node) -> Results:
    require_same_scales(node)
    value = node.value(0)
    axes = node.axes(1, len(value.order))
    return [reduced(node, value, node.kind.lower(), axes, bool(node.option("KeepDims")))]


@imports_quantised("REDUCE_PROD", also_int16=True)
def product_along(node: Node) -> Results:
    """Imports REDUCE_PROD. As in LiteRT, each partial product is requantized by the n-th root of the whole factor."""
    value, x, y = node.value(0), operand(node, 0), result(node)
    if node.type(0).dtype not in reduce_prod.DTYPES or node.results[0].dtype != node.type(0).dtype:
        raise Unsupported(f"the product of {node.type(0).dtype} in {node.results[0].dtype} is not supported")
    axes, shape = node.axes(1, len(value.order)), value.type.shape
    count = product(shape[axis] for axis in axes)
    if not isinstance(count, int) or count < 1:
        raise Unsupported(f"the product of {count} numbers is not supported")
    significand, shift = with_15_bit_significand(
        fixed_point.multiplier(fixed_point.scale(x) / float(np.power(fixed_point.scale(y), 1.0 / count))))
    if not -31 <= shift <= MAX_SHIFT:
        raise Unsupported(f"its scales differ by a factor of 2^{shift - 15}")
    kept_axes = [axis for axis in range(len(shape)) if axis not in axes]
    transposed = node.in_order(value, (*kept_axes, *axes))
    rows = node.emit("reshape", transposed, shape=(*(shape[axis] for axis in kept_axes), count))
    name = node.emit("product_fixed", rows, zero=zero(x), result_zero=zero(y), significand=significand, bits=31 - shift)
    return [node.reshaped(node.as_value(name), node.results[0].shape) if node.option("KeepDims") else name]


@imports_quantised("SOFTMAX")
def softmax(node: Node) -> Results:
    """Imports SOFTMAX along the last axis. The scale of an 8-bit result is 1 / 256, of an int16 result 1 / 65536."""
    value, result_dtype, y = node.value(0), node.results[0].dtype, node.results[0].quantization
    wide = result_dtype == "int16"
    # LiteRT's kernel ignores the exact scale of an int16 result.
    steps, tolerance = (2**16, 1e-3) if wide else (2**8, 0.0)
    if result_dtype not in (value.type.dtype, "int16") or y is None or abs(y.scale[0] * steps - 1) > tolerance \
            or zero(y) != fixed_point.integer_range(result_dtype).minimum:
        raise Unsupported("its result is not in steps of 1 / 256, or 1 / 65536 of int16, from the least number on")
    axis = value.order.index(len(value.order) - 1)
    powers = softmax_int8.trim_table(softmax_int8.table(float(np.float32(node.option("Beta"))),
                                                           fixed_point.scale(operand(node, 0))), wide)
    attrs = {"axis": axis, "wide": True} if wide else {"axis": axis}
    return [node.as_value(node.emit("softmax_fixed", value.name, node.onnx_node().constant(powers), **attrs),
                          value.order)]


@imports_quantised("L2_NORMALIZATION")
def l2_normalization(node: Node) -> Results:
    """Imports L2_NORMALIZATION along the last axis. The scale of the result is 1 / 128."""
    dtype, y, value = common_dtype(node), result(node), node.value(0)
    if y.scale[0] != np.float32(1 / 128) or zero(y) != (0 if dtype == "int8" else 128):
        raise Unsupported("its result is not in steps of 1 / 128 above and below the middle")
    if node.option("FusedActivationFunction", 0):
        raise Unsupported("an activation after it is not supported")
    axis = value.order.index(len(value.order) - 1)
    return [node.as_value(node.emit("l2_fixed", value.name, axis=axis, zero=zero(operand(node, 0))), value.order)]


@imports_quantised("LOG_SOFTMAX")
def log_softmax(node: Node) -> Results:
    """Imports LOG_SOFTMAX along the last axis. The scale of the result is 1 / 16."""
    y, value = result(node), node.value(0)
    if y.scale[0] != np.float32(1 / 16) or zero(y) != fixed_point.integer_range(common_dtype(node)).maximum:
        raise Unsupported("its result is not in steps of 1 / 16 below the largest number")
    tables = log_softmax_fixed.tables(fixed_point.scale(operand(node, 0)))
    axis = value.order.index(len(value.order) - 1)
    return [node.as_value(node.emit("log_softmax_fixed", value.name, node.onnx_node().constant(tables), axis=axis),
                          value.order)]
