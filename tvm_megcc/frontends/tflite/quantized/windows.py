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


@imports_quantised("MAX_POOL_2D", also_int16=True)
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


@imports_quantised("AVERAGE_POOL_2D", also_int16=True)
def average_pool(node: Node) -> Results:
    """Imports AVERAGE_POOL_2D: divides each sum by the number of elements in the window, ties away from zero."""
    require_same_scales(node)
    image, kernel = channels(node), (node.option("FilterHeight"), node.option("FilterWidth"))
    dtype, pool = node.type(0).dtype, node.onnx_node("AveragePool", (image,), windows(node))
    if kernel[0] * kernel[1] > _MAX_WINDOW_SIZE[dtype]:
        raise Unsupported(f"windows of {kernel[0]} x {kernel[1]} are not supported")
    pads, extents = symbolic_pads(pool, kernel), node.type_of(image).shape[2:]
    image, attrs = pad_for_windows(pool, image, kernel, fill=0)  # pads add nothing to sums
    counts_at_run_time = ""
    if pads or any(not isinstance(extent, int) and any(attrs["pads"][axis::2]) for axis, extent in enumerate(extents)):
        # Which windows reach into the pads depends on an extent that is not known.
        rows, columns = count_window_elements(pool, kernel, pads or attrs["pads"])
        counts_at_run_time = node.emit("cast", node.emit("mul", rows, columns), dtype="int32")
        counts = np.arange(kernel[0] * kernel[1] + 1)  # all possible ones
    else:
        counts = np.outer(*(_window_sizes(node, extent, attrs["kernel"][axis], attrs["strides"][axis],
                                          attrs["pads"][axis::2]) for axis, extent in enumerate(extents)))
    if dtype == "int16":
        real = node.emit("elementwise", image, expr=call("real", X), dtype="float32")
        sums, total = node.emit("sum_pool", real, **attrs), call("nearest", X)
    else:
        sums, total = node.emit("sum_pool_integer", image, **attrs, x_zero=0), X
    # The operands of the mean besides the sums: the multiplier and the shift of each window, if windows differ.
    operands: list[str] = []
    if np.unique(counts).size > 1:
        multipliers_and_shifts = zip(*(_factor(max(int(count), 1)) for count in counts.flat), strict=True)
        operands = [node.onnx_node().constant(np.array(column, np.int32)) for column in multipliers_and_shifts]
        if counts_at_run_time:
            operands = [node.onnx("Gather", operand, counts_at_run_time, axis=0)[0] for operand in operands]
        else:
            operands = [node.emit("reshape", operand, shape=(1, 1, *counts.shape)) for operand in operands]
    factor = (arg(1), arg(2)) if operands else _factor(max(int(counts.flat[0]), 1))
    mean = call("rescale_once", total, *factor)
    if dtype != "uint8" and not (counts % 2).all():
        # A negative mean may be a tie, which rescale_once rounds up, towards zero: its absolute value is rounded.
        mean = call("rescale_once", maximum(total, 0), *factor) - call("rescale_once", maximum(0 - total, 0), *factor)
    expr = clip(mean, *activation(node))
    return [node.as_value(emit_as_result(node, expr, sums, *operands), CHANNELS_FIRST[4])]


def _factor(count: int) -> Multiplier:
    """Returns 1 / count as a 31-bit fixed-point multiplier, rounded up so that ties round away from zero. Its error is
    less than 2^-30 / count. So the error of a mean of `count` 8-bit numbers is less than 1 / (2 count), the distance
    from the next tie, and no other mean is rounded wrongly."""
    bits = (count - 1).bit_length()
    return Multiplier(-(-2**(30 + bits) // count), 1 - bits)


def _window_sizes(node: Node, extent, kernel: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """Returns the number of elements along an axis in each window; one number for a symbolic extent, which has no pads
    here, so that all windows are full."""
    if not isinstance(extent, int):
        return np.array([kernel])
    positions = output_extent(extent, kernel, stride, 1, *pads)
    node.require_budget(positions)
    begins = np.arange(positions) * stride - pads[0]
    return np.minimum(begins + kernel, extent) - np.maximum(begins, 0)
