# SPDX-License-Identifier: Apache-2.0
"""Lowers means and sums of dequantised numbers to integer sums, which are then multiplied by a factor."""

from __future__ import annotations

import math

import numpy as np

from ...context import Context
from ...ir.dims import product, static
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.site import Site
from ...kernels.support import realisable
from ...ops.base import operator
from ...ops.nn.pool import window_taps
from ...ops.quantized.conv_matmul import INT8_TYPES
from ..edit import Editor
from .requantize import DEQUANTIZE, Parameters, finish_sums

#: The largest number of 8-bit integers whose sum always fits in int32.
MAX_SUMMANDS = 2**31 // 256

#: The largest number of elements of an input for which the sizes of windows are computed at compile time.
MAX_POSITIONS = 1 << 22


def lower_sums(graph: Graph, context: Context) -> Graph:
    """Lowers average pools, means and sums over axes of dequantised numbers with one scale."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        sums_of_op = _sums_of(op, graph.types[op.inputs[0]]) if op.kind in _KINDS else None
        source = edit.producer(op.inputs[0]) if sums_of_op else None
        parameters = Parameters.of(edit, source, DEQUANTIZE)
        if not sums_of_op or source is None or parameters is None or not parameters.is_single \
                or parameters.dtype not in INT8_TYPES:
            continue
        kind, attrs, count = sums_of_op
        attrs = Attrs(attrs, x_zero=int(parameters.zero[0]))
        integers = edit.types[source.inputs[0]]
        (sums_type,) = operator(kind).infer(attrs, integers)
        sums = edit.value(f"{op.outputs[0]}.sums", sums_type)
        integer_sums = Op(kind, attrs, source.inputs[:1], (sums,), origin=op.origin)
        if realisable(Site(integer_sums, (integers,), (sums_type,), context)):
            # The sum of an empty window is 0, so any divisor does.
            scale = (parameters.scale.astype(np.float64) / np.maximum(count, 1)).astype(np.float32)
            finish_sums(edit, op, integer_sums, sums, scale.reshape(-1), np.shape(count), readers)
    return edit.finish()


_KINDS = ("avg_pool", "sum_pool", "global_avg_pool", "reduce_mean", "reduce_sum")


def _sums_of(op: Op, x: TensorType) -> tuple[str, Attrs, np.ndarray] | None:
    """Returns the integer operator of a mean or sum: its kind, its attributes, and the divisors of its sums (one
    number, or one for each position [H, W]). Returns None if the divisors are not known at compile time."""
    if "pool" in op.kind and x.rank != 4:
        return None
    if op.kind in ("avg_pool", "sum_pool"):
        counts = _window_sizes(op.attrs, x) if op.kind == "avg_pool" else np.ones(1)
        attrs = Attrs({name: value for name, value in op.attrs.items() if name != "count_pads"})
        if counts is None or math.prod(op.attrs.kernel) > MAX_SUMMANDS:
            return None
        return "sum_pool_integer", attrs, counts
    axes, keep = (tuple(range(2, x.rank)), True) if op.kind == "global_avg_pool" else (op.attrs.axes, op.attrs.keepdims)
    count = product(x.shape[axis] for axis in axes)
    if not isinstance(count, int) or not 0 < count <= MAX_SUMMANDS:
        return None
    return "reduce_sum_integer", Attrs(axes=axes, keepdims=keep), np.full(1, 1 if op.kind == "reduce_sum" else count)


def _window_sizes(attrs: Attrs, x: TensorType) -> np.ndarray | None:
    """Returns the number of elements in each window of a pool: an array [1] if all are equal, else [1, 1, H, W]; None
    if it depends on symbols or there are too many windows."""
    counts_pads = bool(attrs.get("count_pads", 0))
    if not attrs.ceil and (counts_pads or not any(attrs.pads)):
        return np.full(1, product(attrs.kernel))
    extents = static(x.shape[2:])
    if extents is None:
        return None
    padded = [extent + before + after
              for extent, before, after in zip(extents, attrs.pads[:2], attrs.pads[2:], strict=True)]
    if math.prod(padded) > MAX_POSITIONS:
        return None
    # The sums of windows over an input of ones. If pads count, they are part of that input.
    ones = np.ones((1, 1, *(padded if counts_pads else extents)), np.int32)
    attrs = Attrs(attrs, pads=(0,) * 4) if counts_pads else attrs
    counts = np.asarray(sum(window_taps(attrs, ones, fill=0)))
    return counts if (counts != counts.flat[0]).any() else counts.reshape(-1)[:1]
