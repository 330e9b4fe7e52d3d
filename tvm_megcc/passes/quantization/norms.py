# SPDX-License-Identifier: Apache-2.0
"""Lowers layer normalisation between dequantize_linear and quantize_linear to one integer operator."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ops.quantized.conv_matmul import INT8_TYPES
from ...ops.quantized.layer_norm import MAX_LENGTH
from ..edit import Editor
from .requantize import DEQUANTIZE, QUANTIZE, Parameters


def lower_norms(graph: Graph, context: Context) -> Graph:
    """Rewrites quantize(layer_norm(dequantize(x))) → layer_norm_quantised(x), if both have one scale and 8-bit
    integers."""
    edit = Editor(graph)
    for op in graph.ops:
        norm = edit.producer(op.inputs[0]) if op.kind == QUANTIZE else None
        if norm is None or norm.kind != "layer_norm" or not edit.is_read_once(norm.outputs[0]):
            continue
        source, length = edit.producer(norm.inputs[0]), edit.types[norm.inputs[0]].shape[-1]
        before, after = Parameters.of(edit, source, DEQUANTIZE), Parameters.of(edit, op, QUANTIZE)
        if source is None or before is None or after is None or not before.is_single or not after.is_single \
                or not {before.dtype, after.dtype} <= set(INT8_TYPES) or not isinstance(length, int) \
                or not 0 < length <= MAX_LENGTH:
            continue
        scales = edit.constant(f"{op.outputs[0]}.scales",
                               np.concatenate([before.scale, after.scale]).astype(np.float32))
        attrs = Attrs(norm.attrs, x_zero=int(before.zero[0]), dtype=after.dtype, zero=int(after.zero[0]))
        edit.replace(norm)
        edit.replace(op, Op("layer_norm_quantised", attrs, (source.inputs[0], scales, *norm.inputs[1:]), op.outputs,
                            origin=norm.origin))
    return edit.finish()
