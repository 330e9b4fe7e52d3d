# SPDX-License-Identifier: Apache-2.0
"""Imports pooling of quantised images."""

from __future__ import annotations

import numpy as np

from ....ir.expr import X, arg, call, clip, maximum
from ....ops.nn.windows import count_window_elements, output_extent, pad_for_windows, symbolic_pads
from ..node import Node, Results, Unsupported
from ..value import CHANNELS_FIRST
from ..windows import channels, windows
from . import fixed_point
from .fixed_point import Multiplier
from .importers import activation, emit_as_result, imports_quantised, require_same_scales


@imports_quantised("MAX_POOL_2D", any_bits=True)
def max_pool(node: Node) -> Results:
    require_same_scales(node)
    attrs = {**windows(node), "kernel_shape": [node.option("FilterHeight"), node.option("FilterWidth")]}
    (y,) = node.onnx("MaxPool", channels(node), **attrs)
    bounds = activation(node)
    if bounds != fixed_point.integer_range(node.results[0].dtype):
        y = emit_as_result(node, clip(X, *bounds), y)
    return [node.as_value(y, CHANNELS_FIRST[4])]


#: The largest window in elements. For 8 bits: the mean by a 31-bit multiplier (`_factor`) is exact. For int16: sums are
#: exact in float32.
_MAX_WINDOW_SIZE = {"int8": 2**20, "uint8": 2**20, "int16": 2**8}


@imports_quantised("AVERAGE_POOL_2D", any_bits=True)
def average_pool(node: Node) -> Results:
    """Imports AVERAGE_POOL_2D: divides each sum by the number of elements in the window, ties away from zero."""
    require_same_scales(node)
    image, kernel = channels(node), (node.option("FilterHeight"), node.option("FilterWidth"))
    dtype, pool = node.type(0).dtype, node.onnx_node("AveragePool", (image,), windows(node))
    if kernel[0] * kernel[1] > _MAX_WINDOW_SIZE[dtype]:
        raise Unsupported(f"windows of {kernel[0]} x {kernel[1]} are not supported")
    pads, extents = symbolic_pads(pool, kernel), node.type_of(image).shape[2:]
    image, attrs = pad_for_windows(pool, image, kernel, 0)
    if pads or any(attrs["pads"][axis] + attrs["pads"][axis + 2] and not isinstance(extent, int)
                   for axis, extent in enumerate(extents)):
        rows, columns = count_window_elements(pool, kernel, pads or attrs["pads"])
        counted, count = node.emit("cast", node.emit("mul", rows, columns), dtype="int32"), None
        possible = np.arange(kernel[0] * kernel[1] + 1)
    else:
        counted, count = "", np.outer(*(_window_sizes(node, extent, attrs["kernel"][axis], attrs["strides"][axis],
                                                      attrs["pads"][axis::2]) for axis, extent in enumerate(extents)))
        possible = count
    if dtype == "int16":
        real = node.emit("elementwise", image, expr=call("real", X), dtype="float32")
        sums, total = node.emit("sum_pool", real, **attrs), call("nearest", X)
    else:
        sums, total = node.emit("sum_pool_integer", image, **attrs, x_zero=0), X
    several = np.unique(possible).size > 1
    factors = [_factor(max(int(taps), 1)) for taps in (possible.flat if several else possible.flat[:1])]
    parts = [node.onnx_node().constant(np.array(part, np.int32)) for part in zip(*factors, strict=True)] \
        if several else []
    if count is None:
        parts = [node.onnx("Gather", part, counted, axis=0)[0] for part in parts]
    elif several:
        parts = [node.emit("reshape", part, shape=(1, 1, *count.shape)) for part in parts]
    factor = (arg(1), arg(2)) if several else factors[0]
    mean = call("rescale_once", total, *factor)
    if dtype != "uint8" and not (possible % 2).all():  # negative means may be ties
        mean = call("rescale_once", maximum(total, 0), *factor) - call("rescale_once", maximum(0 - total, 0), *factor)
    expr = clip(mean, *activation(node))
    return [node.as_value(emit_as_result(node, expr, sums, *parts), CHANNELS_FIRST[4])]


def _factor(count: int) -> Multiplier:
    """Returns 1 / count as a 31-bit fixed-point multiplier, rounded up so that ties round away from zero. Its error is
    less than 2^-30 / count. So the error of a mean of `count` 8-bit numbers is less than 1 / (2 count), the distance
    from the next tie, and no other mean is rounded wrongly."""
    bits = (count - 1).bit_length()
    return Multiplier(-(-2**(30 + bits) // count), 1 - bits)


def _window_sizes(node: Node, extent, kernel: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """Returns the number of elements along an axis in each window."""
    if not isinstance(extent, int):  # without pads
        return np.array([kernel])
    positions = output_extent(extent, kernel, stride, 1, *pads)
    node.require_budget(positions)
    begins = np.arange(positions) * stride - pads[0]
    return np.minimum(begins + kernel, extent) - np.maximum(begins, 0)
