# SPDX-License-Identifier: Apache-2.0
"""Pools of quantised images."""

from __future__ import annotations

import numpy as np

from ...ir.expr import X, arg, call, clip
from ...ops.windows import output_extent, window_attrs
from . import fixed
from .node import Node, Results, Unsupported
from .quantised import (
    activation,
    quantised,
    require_same_scales,
    typed,
)
from .value import IMAGES
from .windows import channels, windows


@quantised("MAX_POOL_2D", any_width=True)
def max_pool(node: Node) -> Results:
    require_same_scales(node)
    attrs = {**windows(node), "kernel_shape": [node.option("FilterHeight"), node.option("FilterWidth")]}
    (y,) = node.onnx("MaxPool", channels(node), **attrs)
    within = activation(node)
    if within != fixed.limits(node.results[0].dtype):
        y = typed(node, clip(X, *within), y)
    return [node.made(y, IMAGES[4])]


#: Sums of so many numbers, and halves between them, are exact in float32.
_MOST_COUNTED = {"int8": 2**15, "uint8": 2**15, "int16": 2**8}


@quantised("AVERAGE_POOL_2D", any_width=True)
def average_pool(node: Node) -> Results:
    """Sums in float32, which are exact, over how many there are, halves away from zero."""
    require_same_scales(node)
    image, kernel = channels(node), (node.option("FilterHeight"), node.option("FilterWidth"))
    attrs = window_attrs(node.spelled("AveragePool", (image,), windows(node)), kernel)
    if kernel[0] * kernel[1] >= _MOST_COUNTED[node.type(0).dtype]:
        raise Unsupported(f"windows of {kernel[0]} x {kernel[1]} are not supported")
    real = node.emit("elementwise", image, expr=call("real", X), dtype="float32")
    sums = node.emit("sum_pool", real, **attrs)
    counts = [_counts(node, extent, *(attrs[name][axis] for name in ("kernel", "strides")), attrs["pads"][axis::2])
              for axis, extent in enumerate(node.type_of(image).shape[2:])]
    count = np.outer(*counts)
    # (|sum| + count // 2) // count: half a unit more keeps the quotient off whole numbers.
    half = (count // 2 + 0.5).astype(np.float32)
    within = activation(node)
    if (count == count[0, 0]).all():
        size = call("floor", (call("abs", X) + float(half[0, 0])) / float(count[0, 0]))
        operands: list[str] = []
    else:
        size = call("floor", (call("abs", X) + arg(1)) / arg(2))
        operands = [node.spelled().constant(table[None, None]) for table in (half, count.astype(np.float32))]
    expr = clip(call("nearest", call("if_lt", X, 0, -size, size)), *within)
    return [node.made(typed(node, expr, sums, *operands), IMAGES[4])]


def _counts(node: Node, extent, kernel: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """How many elements of an axis each window has."""
    if not isinstance(extent, int):
        if any(pads):
            raise Unsupported(f"average pools with pads over a symbolic extent {extent} are not supported")
        return np.array([kernel])
    positions = output_extent(extent, kernel, stride, 1, *pads)
    node.require_room(positions)
    begins = np.arange(positions) * stride - pads[0]
    return np.minimum(begins + kernel, extent) - np.maximum(begins, 0)
