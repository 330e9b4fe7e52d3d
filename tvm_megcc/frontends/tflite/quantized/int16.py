# SPDX-License-Identifier: Apache-2.0
"""Imports quantised operators with int16 activations and int8 weights, bit for bit as LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from ....errors import ShapeError
from ....ir.expr import Expr, X, arg, call, clip, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ....ops.nn.windows import pad_for_windows
from ....ops.quantized import softmax_int16
from ...fixed_point import BELOW_HALF64, MAX_SHIFT, floor_shift, round_half_away
from ..file import Quantization
from ..node import Node, Results, Unsupported
from ..products import fully_connected_shapes
from ..value import CHANNELS_FIRST
from ..windows import channels, group_count, weight_order, windows
from . import fixed_point
from .fixed_point import Multiplier
from .importers import (
    QUANTISED_IMPORTERS,
    activation,
    common_dtype,
    elementwise,
    emit_as_result,
    imports_int16,
    operand,
    requantize,
    result,
    with_15_bit_significand,
)
from .products import as_convolution, weights

#: The number of bits by which the operands of a sum are shifted left, for precision, as in LiteRT's add.cc.
_LEFT_SHIFT = 15
#: LiteRT's table of sigmoids at i / 24, in units of 2^-16, is not rounded to the nearest: entry i is larger by 1 where
#: bit i of this number is set.
_ROUNDED_UP = 0x80000000000000000000000000000080 << 128 | 0x11009020440005c0467baefa7bd110


def _sums(node: Node, x: str, w: np.ndarray, bias_index: int, groups: int, **attrs) -> str:
    """Emits the int32 sums of products of a convolution.

    Args:
        x: int16 [N, inputs, H, W].
        w: int8 [outputs, inputs of a group, height, width].
        bias_index: the operand with the bias, if there is one.
        attrs: strides, pads and dilations.

    Raises:
        Unsupported: if sums could overflow int32 for some input.
    """
    has_bias = node.has(bias_index)
    bias = node.const(bias_index, "bias").astype(object).reshape(-1) if has_bias else np.zeros(len(w), object)
    largest = np.abs(w.astype(np.int64)).reshape(len(w), -1).sum(1).astype(object) * 2**15 + abs(bias)
    if (largest >= 2**31).any():
        raise Unsupported(f"its sums may need {int(max(largest)).bit_length() + 1} bits, and 32 are supported; use "
                          "int8 for the inputs of this operator")
    constant = node.onnx_node().constant
    operands = [x, constant(np.ascontiguousarray(w)), *([constant(bias.astype(np.int32))] if has_bias else [])]
    return node.emit("conv2d_integer", *operands, groups=groups, x_zero=0, w_zero=0, **attrs)


def _results(node: Node, sums: str, weights_q: Quantization, x: Quantization, bias_index: int) -> str:
    """Requantizes sums. If the bias is int32 and an option says that sums are, too, LiteRT does that as for int8.
    Otherwise its sums are int64: multipliers have 15 bits, and sums are rounded once."""
    y = result(node)
    if weights_q.zero_point.any():
        raise Unsupported("weights with a zero point are not supported with int16 operands")
    factors, function = fixed_point.product_multipliers(x, weights_q, y, per_channel=True), "rescale_fixed"
    has_int32_bias = node.has(bias_index) and node.type(bias_index).dtype == "int32"
    if not (has_int32_bias and node.option("QuantizedBiasType", 0)):
        factors, function = [with_15_bit_significand(factor) for factor in factors], "rescale_once"
    bounds = activation(node)
    if max(factor.shift for factor in factors) > MAX_SHIFT:
        raise Unsupported("its scales differ too much")
    parts = [np.array(part, np.int32).reshape(-1, 1, 1) for part in zip(*factors, strict=True)]
    names = [sums, *map(node.onnx_node().constant, parts)]
    return emit_as_result(node, clip(call(function, X, arg(1), arg(2)), *bounds), *names)


@imports_int16("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(node: Node) -> Results:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    weights_q, image = weights(node, 3 if depthwise else 0), channels(node)
    w = node.const(1, "weights").transpose(weight_order(depthwise))
    groups = group_count(node, node.type_of(image).shape[1], w.shape, depthwise)
    name = node.onnx_node().constant(np.ascontiguousarray(w))
    image, attrs = pad_for_windows(node.onnx_node("Conv", (image, name), windows(node)), image, w.shape[2:], 0)
    attrs.pop("kernel"), attrs.pop("ceil")
    sums = _sums(node, image, w, 2, groups, **attrs)
    return [node.as_value(_results(node, sums, weights_q, operand(node, 0), 2), CHANNELS_FIRST[4])]


@imports_int16("TRANSPOSE_CONV")
def conv_transpose(node: Node) -> Results:
    weights_q, (image, w, attrs) = weights(node, 0), as_convolution(node, 0)
    sums = _sums(node, image, w, 3, 1, **attrs)
    return [node.as_value(_results(node, sums, weights_q, operand(node, 2), 3), CHANNELS_FIRST[4])]


@imports_int16("FULLY_CONNECTED")
def fully_connected(node: Node) -> Results:
    """Imports FULLY_CONNECTED as a convolution of images of one pixel."""
    matrix_shape, result_shape = fully_connected_shapes(node)
    weights_q, w = weights(node, 0), node.const(1, "weights")
    images = node.in_order(node.reshaped(node.value(0), (*matrix_shape, 1, 1)))
    sums = _sums(node, images, w[:, :, None, None], 2, 1, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
    return [node.reshaped(node.as_value(_requantize_in_float64(node, sums, weights_q)), result_shape)]


def _requantize_in_float64(node: Node, sums: str, weights_q: Quantization) -> str:
    """Requantizes sums in float64, rounding to the nearest, ties away from zero."""
    if weights_q.zero_point.any():
        raise Unsupported("weights with a zero point are not supported with int16 operands")
    factors = fixed_point.scale(operand(node, 0)) * weights_q.scale.astype(np.float64) / fixed_point.scale(result(node))
    scales = node.onnx_node().constant(factors.reshape(-1, 1, 1))
    real = node.emit("mul", node.emit("cast", sums, dtype="float64"), scales)
    nearest = node.compute(clip(round_half_away(X, BELOW_HALF64), *activation(node)), real)
    return node.emit("cast", nearest, dtype="int16")


@imports_int16("ADD", "SUB")
def sum_(node: Node) -> Results:
    """Imports ADD and SUB. If all scales are powers of two, one operand is shifted instead of multiplied, unless an
    option of the file forbids it."""
    common_dtype(node, ("int16",))
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    powers = [power for power in map(_power, (a, b, y)) if power is not None]
    twice = 2 * max(fixed_point.scale(a), fixed_point.scale(b))
    if len(powers) == 3 and node.option("PotScaleInt16", default=True):
        shifts = [power - powers[2] for power in powers[:2]]
        if max(shifts) > 0 or all(shifts):
            raise ShapeError(f"operands in steps of 2^{powers[0]} and 2^{powers[1]}, a result of 2^{powers[2]}")
        # x * 2 * 2^30 * 2^(shift - 31) = x * 2^shift
        terms = [call("rescale_fixed", arg(index) * 2, 2**30, shift) if shift else arg(index)
                 for index, shift in enumerate(shifts)]
        down: Multiplier | None = None
    else:
        terms = [requantize(arg(index) * 2**_LEFT_SHIFT,
                            fixed_point.multiplier(fixed_point.scale(quantization) / twice))
                 for index, quantization in enumerate((a, b))]
        down = fixed_point.multiplier(twice / (2**_LEFT_SHIFT * fixed_point.scale(y)))
    total = terms[0] + terms[1] if node.kind == "ADD" else terms[0] - terms[1]
    total = clip(total, -2**15, 2**15 - 1) if down is None else requantize(total, down)
    return [elementwise(node, clip(total, *activation(node)))]


def _power(quantization: Quantization) -> int | None:
    """Returns the exponent of a scale that is a power of two, None for another scale. The tolerance is that of LiteRT's
    CheckedLog2."""
    power = np.log2(quantization.scale[0])
    return int(np.rint(power)) if abs(power - np.rint(power)) < 1e-3 else None


@imports_int16("LEAKY_RELU")
def leaky_relu(node: Node) -> Results:
    """Imports LEAKY_RELU as a sum of two terms, for positive and negative numbers; one of them is always 0."""
    common_dtype(node, ("int16",))
    x, y, alpha = operand(node, 0), result(node), np.float32(node.option("Alpha"))
    if not alpha >= 0:
        raise Unsupported(f"alpha {alpha}, which is negative, is not supported")
    above = fixed_point.multiplier(float(x.scale[0] / y.scale[0]))
    below = fixed_point.multiplier(float(x.scale[0] * alpha / y.scale[0]))
    total = requantize(maximum(X, 0), above) + requantize(minimum(X, 0), below)
    return [elementwise(node, clip(total, -2**15, 2**15 - 1))]


@imports_int16("LOGISTIC", "TANH")
def sigmoid_or_tanh(node: Node) -> Results:
    """Imports LOGISTIC and TANH: interpolates linearly in a table of 256 sigmoids at steps of 1 / 24, for tanh 1 / 48.

    The fixed point is that of LiteRT's reference kernels. A number is an index into the table times 2^bits, plus the
    position between two entries. Negative numbers use the symmetry of the functions.
    """
    common_dtype(node, ("int16",))
    if _power(result(node)) != -15:
        raise Unsupported("its result is not in steps of 2^-15")
    logistic, value = node.kind == "LOGISTIC", node.value(0)
    bits = 9 if logistic else 8
    (scaled,) = emit_broadcast(node.onnx_node(), "elementwise", (value.name,), expr=_scaled_operand(node),
                               dtype="int32")
    magnitude = maximum(X, 0) - minimum(X, 0)
    step = minimum(floor_shift(magnitude, bits), 255)  # numbers beyond the table use its last entry
    (index,) = emit_broadcast(node.onnx_node(), "elementwise", (scaled,), expr=step, dtype="int32")
    table = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))), 65535).astype(np.int64)
    table += [_ROUNDED_UP >> entry & 1 for entry in range(256)]
    base, slope = table << bits, np.append(np.diff(table), 0)
    base[255] = 0x7FFF << 10 if logistic else 0xFFFF << 8  # LiteRT's height for all numbers from there on
    segment = [node.emit("gather", node.onnx_node().constant(part.astype(np.int32)), index, axis=0)
               for part in (base, slope)]
    height_expr = arg(1) + (magnitude - arg(3) * 2**bits) * arg(2)
    (height,) = emit_broadcast(node.onnx_node(), "elementwise", (scaled, *segment, index), expr=height_expr,
                               dtype="int32")
    negative = minimum(maximum(arg(1), -1), 0)
    if logistic:  # by symmetry, a negative number gives 2^25 - 1 less the height; half a unit is added for rounding
        total = floor_shift(X + 512 + negative * (X * 2 - (2**25 - 1)), 10)
    else:  # tanh(x) = 2 * sigmoid(2 * x) - 1, so 2^23, which stands for 1/2, is subtracted
        total = floor_shift(X - 2**23 + 128 + negative * (X * 2 - (2**24 - 1)), 8)
    return [node.as_value(emit_as_result(node, total, height, scaled), value.order)]


def _scaled_operand(node: Node) -> Expr:
    """Returns the operand rescaled to units of 1 / (3 * 2^12), by the integer factor and right shift of LiteRT's
    `SigmoidPrepare` and `TanhPrepare` (activations.cc)."""
    scale, power = operand(node, 0).scale[0], _power(operand(node, 0))
    left = 12 + power if power is not None else -1
    if left == 0 or (left == 1 and node.kind == "TANH"):  # a scale of 2^-12 or, for tanh, also 2^-11
        return X * (3 << left)
    factor, shift = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        shift, factor = shift + 1, factor * 2.0
    if factor > 65535:  # the product with an int16 could overflow int32
        raise Unsupported(f"numbers in steps of {scale:g} are too coarse")
    return call("rescale_once", X, int(factor), 31 - shift) if shift else X * int(factor)


@imports_int16("SOFTMAX")
def softmax(node: Node) -> Results:
    """Imports SOFTMAX along the last axis. The scale of an int16 result is 2^-15."""
    if node.type(0).dtype != "int16":
        return QUANTISED_IMPORTERS["SOFTMAX"](node)
    common_dtype(node, ("int16",))
    value = node.value(0)
    if _power(result(node)) != -15:
        raise Unsupported("its result is not in steps of 2^-15")
    beta = np.float32(node.option("Beta"))
    factor = fixed_point.multiplier(float(operand(node, 0).scale[0] * beta) / (softmax_int16.EXP_RANGE / 65535.0))
    name = node.emit("softmax_wide", value.name, node.onnx_node().constant(softmax_int16.tables()),
                     axis=value.order.index(len(value.order) - 1), significand=factor.significand, shift=factor.shift)
    return [node.as_value(name, value.order)]
