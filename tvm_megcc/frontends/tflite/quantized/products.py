# SPDX-License-Identifier: Apache-2.0
"""Imports quantised convolutions and matrix products: int32 sums, requantized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import ShapeError
from ....ir.dims import number
from ....ir.expr import Expr, X, arg, call, clip, maximum
from ...fixed_point import MAX_SHIFT
from ..file import Quantization
from ..moves import sliced
from ..node import Node, Results, Unsupported
from ..products import fully_connected_shapes
from ..value import CHANNELS_FIRST
from ..windows import channels, convolution, transposed_shape, windows
from . import fixed_point
from .fixed_point import Multiplier
from .importers import (
    BYTE_DTYPES,
    activation,
    common_dtype,
    emit_as_result,
    imports_quantised,
    operand,
    quantization_of,
    requantize,
    result,
    zero,
)

#: More padding than this in front of or after an axis is no image: the file contradicts itself.
_MAX_PAD = 2**20


def requantize_sums(node: Node, sums: str, factors: Sequence[Multiplier], trailing_axes: int, function: str) -> str:
    """Requantizes int32 sums of products to the result's type, after the fused activation.

    Args:
        factors: one for all channels, or one for each.
        trailing_axes: the number of axes after that of the channels.
        function: the function that multiplies by a factor. With `rescale_once`, ties are rounded away from zero.
    """
    bounds, zero_point = activation(node), zero(result(node))
    if max(factor.shift for factor in factors) > MAX_SHIFT:
        raise Unsupported("its scales differ too much")
    has_ties = function == "rescale_once" and any(map(_has_ties, factors))

    def scaled(*factor) -> Expr:
        if has_ties:  # `rescale_once` rounds ties up, so negative sums are negated before and after it
            return call(function, maximum(X, 0), *factor) - call(function, maximum(0 - X, 0), *factor)
        return call(function, X, *factor)

    if len(set(factors)) == 1:
        return emit_as_result(node, clip(scaled(*factors[0]) + zero_point, *bounds), sums)
    parts = (np.array(part, np.int32).reshape(-1, *(1,) * trailing_axes) for part in zip(*factors, strict=True))
    expr = clip(scaled(arg(1), arg(2)) + zero_point, *bounds)
    return emit_as_result(node, expr, sums, *map(node.onnx_node().constant, parts))


def _has_ties(factor: Multiplier) -> bool:
    """Whether some int32 times the factor is halfway between two integers. Its product with the significand, which is
    then divided by 2^(31 - shift), is an odd multiple of 2^(30 - shift) in that case."""
    significand, shift = factor
    power_of_two = significand & -significand  # the largest that divides the significand; an int32 has at most 2^31
    return significand > 0 and power_of_two * 2**31 > 2**(30 - shift)


def weights(node: Node, axis: int) -> Quantization:
    """Returns the quantisation of the weights, operand 1: one scale, or one for each index of an axis, and one zero
    point."""
    tensor = node.tensors[1]
    quantization = None if tensor is None else tensor.quantization
    if tensor is None or tensor.dtype not in BYTE_DTYPES or quantization is None:
        raise Unsupported("its weights are not quantised to 8 bits")
    several = len(quantization.scale) != 1
    if (several and (quantization.axis != axis or quantization.zero_point.any())) or not (quantization.scale > 0).all():
        raise Unsupported("its weights have scales or zero points that are not supported")
    if not several:
        quantization_of(tensor)
    return quantization


def bias(node: Node, index: int) -> str:
    """Returns the int32 bias in operand `index`; "" without one."""
    if not node.has(index):
        return ""
    if node.type(index).dtype != "int32":
        raise Unsupported(f"a bias of {node.type(index).dtype} is not supported")
    return node.plain(index)


@imports_quantised("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(node: Node) -> Results:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    x, weights_q = operand(node, 0), weights(node, 3 if depthwise else 0)
    image, w, attrs = convolution(node, channels(node), depthwise, zero(x))
    operands = [image, w, *filter(None, (bias(node, 2),))]
    sums = node.emit("conv2d_integer", *operands, **attrs, x_zero=zero(x), w_zero=zero(weights_q))
    factors = fixed_point.product_multipliers(x, weights_q, result(node), per_channel=node.type(0).dtype == "int8")
    y = requantize_sums(node, sums, factors, trailing_axes=2, function="rescale_fixed")
    return [node.as_value(y, CHANNELS_FIRST[4])]


@imports_quantised("FULLY_CONNECTED")
def fully_connected(node: Node) -> Results:
    """Imports FULLY_CONNECTED. LiteRT's kernel multiplies in float64 and rounds once; its other kernels round twice,
    the high half of the product and the shift."""
    matrix_shape, result_shape = fully_connected_shapes(node)
    x, weights_q = operand(node, 0), weights(node, 0)
    matrix = node.in_order(node.reshaped(node.value(0), matrix_shape))
    sums = node.emit("matmul_integer", matrix, node.plain(1), *filter(None, (bias(node, 2),)), trans_a=0, trans_b=1,
                     a_zero=zero(x), b_zero=zero(weights_q))
    factors = fixed_point.product_multipliers(x, weights_q, result(node), per_channel=True)
    value = node.as_value(requantize_sums(node, sums, factors, trailing_axes=0, function="rescale_once"))
    return [node.reshaped(value, result_shape)]


@imports_quantised("BATCH_MATMUL")
def batch_matmul(node: Node) -> Results:
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    if common_dtype(node) != "int8":
        raise Unsupported("products of matrices of uint8 are not supported")
    sums = node.emit("matmul_integer", node.plain(0), node.plain(1), trans_a=int(bool(node.option("AdjX"))),
                     trans_b=int(bool(node.option("AdjY"))), a_zero=zero(a), b_zero=zero(b))
    (factor,) = fixed_point.product_multipliers(a, b, y, per_channel=False)
    return [emit_as_result(node, requantize(X, factor) + zero(y), sums)]


@imports_quantised("TRANSPOSE_CONV")
def conv_transpose(node: Node) -> Results:
    x, weights_q = operand(node, 2), weights(node, 0)
    image, w, attrs = as_convolution(node, zero(x))
    operands = [image, node.onnx_node().constant(w), *filter(None, (bias(node, 3),))]
    sums = node.emit("conv2d_integer", *operands, **attrs, groups=1, x_zero=zero(x), w_zero=zero(weights_q))
    factors = fixed_point.product_multipliers(x, weights_q, result(node), per_channel=node.type(2).dtype == "int8")
    y = requantize_sums(node, sums, factors, trailing_axes=2, function="rescale_fixed")
    return [node.as_value(y, CHANNELS_FIRST[4])]


def as_convolution(node: Node, fill: int) -> tuple[str, np.ndarray, dict]:
    """Converts a transposed convolution to a convolution of the image, with stride - 1 elements `fill` between its
    elements, and flipped weights. Returns the image with channels first, the weights [outputs, inputs, height, width],
    and the attributes of our operator."""
    shape, image = transposed_shape(node), channels(node, 2)
    w, attrs = node.const(1, "weights").transpose(0, 3, 1, 2)[:, :, ::-1, ::-1], windows(node)
    strides = attrs["strides"]
    value, pads = _dilated(node, image, strides, fill), np.zeros((2, 2), np.int64)
    starts, ends = [0, 0], list(map(number, node.type_of(value).shape[2:]))
    for axis, (wanted, kernel, stride) in enumerate(zip(shape[1:3], w.shape[2:], strides, strict=True)):
        if not isinstance(wanted, int):
            raise Unsupported(f"a result of {shape}, which is not known, is not supported")
        # The padding that TFLite's SAME gives the convolution whose gradient this is; it is cut off the result here.
        total = max((-(-wanted // stride) - 1) * stride + kernel - wanted, 0)
        before = kernel - 1 - (total // 2 if attrs["auto_pad"] == "SAME_UPPER" else 0)
        after = wanted - ends[axis] - before + kernel - 1
        pads[axis] = max(before, 0), max(after, 0)
        starts[axis], ends[axis] = max(-before, 0), ends[axis] + min(after, 0)
        if ends[axis] <= starts[axis] or pads.max() >= _MAX_PAD:
            raise ShapeError(f"a result of {shape} for {node.type(2)}")
    batch, channel_count = node.type_of(value).shape[:2]
    cropped = sliced(node, node.as_value(value), (0, 0, *starts), (batch, channel_count, *ends), (1, 1, 1, 1)).name
    return cropped, np.ascontiguousarray(w), {"strides": (1, 1), "dilations": (1, 1),
                                              "pads": (*pads[:, 0].tolist(), *pads[:, 1].tolist())}


def _dilated(node: Node, image: str, strides: Sequence[int], fill: int) -> str:
    """Inserts stride - 1 elements `fill` between neighbouring elements of an image [N,C,H,W]."""
    n, c, height, width = node.type_of(image).shape
    if not isinstance(height, int) or not isinstance(width, int) or min(strides) < 1:
        raise Unsupported(f"an image {node.type(2)} of extents that are not known, or strides {strides}")
    down, right = strides
    if down == right == 1:
        return image
    node.require_budget(height * down, width * right)
    unsqueezed = node.emit("reshape", image, shape=(n, c, height, 1, width, 1))
    filled = node.emit("pad", unsqueezed, before=(0,) * 6, after=(0, 0, 0, down - 1, 0, right - 1), mode="constant",
                       value=fill)
    dilated = node.as_value(node.emit("reshape", filled, shape=(n, c, height * down, width * right)))
    return sliced(node, dilated, (0,) * 4, (n, c, (height - 1) * down + 1, (width - 1) * right + 1), (1,) * 4).name
