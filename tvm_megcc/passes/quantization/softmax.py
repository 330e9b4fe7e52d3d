# SPDX-License-Identifier: Apache-2.0
"""Lowers softmax between dequantize_linear and quantize_linear to one integer operator."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ops.quantized.conv_matmul import INT8_TYPES
from ...ops.quantized.softmax import table
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE, Parameters

#: The smallest scale of results. Exponentials are rounded to 2**-23 of the largest one, which changes a result by up to
#: 6e-5 of this scale; with a smaller scale, more results would be rounded to another integer than with floats.
MIN_SCALE = 2.0**-10


def lower_softmax(graph: Graph, context: Context) -> Graph:
    """Rewrites quantize(softmax(dequantize(x))) → softmax_quantised(x), if both have one scale and 8-bit integers. If
    the axis is not the last one, 8-bit transposes are added before and after."""
    edit = Editor(graph)
    for op in graph.ops:
        softmax = edit.producer(op.inputs[0]) if op.kind == QUANTIZE else None
        if softmax is None or softmax.kind != "softmax" or not edit.is_read_once(softmax.outputs[0]):
            continue
        source, shape = edit.producer(softmax.inputs[0]), edit.types[softmax.inputs[0]].shape
        before, after = Parameters.of(edit, source, DEQUANTIZE), Parameters.of(edit, op, QUANTIZE)
        if source is None or before is None or after is None or not before.is_single or not after.is_single \
                or not {before.dtype, after.dtype} <= set(INT8_TYPES) or after.scale[0] < MIN_SCALE:
            continue
        axis = softmax.attrs.axis % len(shape)
        length = shape[axis]
        if not isinstance(length, int) or not length:
            continue
        powers = edit.constant(f"{op.outputs[0]}.powers", table(float(before.scale[0])))
        inverse = edit.constant(f"{op.outputs[0]}.inverse", np.float32(1) / after.scale)
        attrs, (y,) = Attrs(dtype=after.dtype, zero=int(after.zero[0])), op.outputs
        perm = [*range(len(shape))]
        perm[axis], perm[-1] = perm[-1], perm[axis]
        swap = Attrs(perm=tuple(perm))  # its own inverse
        x, rows, before_it, after_it = source.inputs[0], y, [], []
        if axis != len(shape) - 1:
            x = edit.result(f"{y}.transposed", "transpose", swap, source.inputs[:1])
            rows = edit.result(f"{y}.rows", "softmax_quantised", attrs, (x, powers, inverse))
            before_it = [Op("transpose", swap, source.inputs[:1], (x,), origin=softmax.origin)]
            after_it = [Op("transpose", swap, (rows,), (y,), origin=softmax.origin)]
        integer_softmax = Op("softmax_quantised", attrs, (x, powers, inverse), (rows,), origin=softmax.origin)
        edit.replace(softmax)
        edit.replace(op, *before_it, integer_softmax, *after_it)
    return edit.finish()
