# SPDX-License-Identifier: Apache-2.0
"""Softmax between dequantize_linear and quantize_linear is one operator of integers."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from ..ops.integer import BYTES
from ..ops.softmax_quantised import table
from .edit import Editor
from .quantisation import DEQUANTIZE, QUANTIZE, Parameters

#: Numbers of a line, at most: with more, exponentials would have fewer than 15 bits.
LONGEST = 1 << 15


def lower_softmax(graph: Graph, context: Context) -> Graph:
    """Along the last axis, with one scale before and one behind."""
    edit = Editor(graph)
    for op in graph.ops:
        softmax = edit.producer(op.inputs[0]) if op.kind == QUANTIZE else None
        if softmax is None or softmax.kind != "softmax" or not edit.is_read_once(softmax.outputs[0]):
            continue
        source, shape = edit.producer(softmax.inputs[0]), edit.types[softmax.inputs[0]].shape
        before, after = Parameters.of(edit, source, DEQUANTIZE), Parameters.of(edit, op, QUANTIZE)
        if source is None or before is None or after is None or softmax.attrs.axis % len(shape) != len(shape) - 1 \
                or not isinstance(shape[-1], int) or not 0 < shape[-1] <= LONGEST:
            continue
        if before.is_single and after.is_single and {before.dtype, after.dtype} <= set(BYTES):
            powers = edit.constant(f"{op.outputs[0]}.powers", table(float(before.scale[0]), shape[-1]))
            inverse = edit.constant(f"{op.outputs[0]}.inverse", np.float32(1) / after.scale)
            edit.replace(softmax)
            edit.replace(op, Op("softmax_quantised", Attrs(dtype=after.dtype, zero=int(after.zero[0])),
                                (source.inputs[0], powers, inverse), op.outputs, origin=softmax.origin))
    return edit.finish()
