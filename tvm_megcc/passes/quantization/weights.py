# SPDX-License-Identifier: Apache-2.0
"""Quantises float weights of products to int8 in blocks, if an option asks for it."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ops.quantized.nbits import BLOCK, default_zero_point
from ..edit import Editor

#: The bits of a weight.
BITS = 8


def quantize_weights(graph: Graph, context: Context) -> Graph:
    """Replaces products by a constant float32 matrix by matmul_nbits of int8 weights, and the gather of its rows
    (`matmul_rows`) by nbits_rows. Products with less than a block of weights in a column keep floats."""
    if context.weight_dtype != "int8":
        return graph
    edit = Editor(graph)
    quantised: dict[tuple[str, bool], tuple[str, str]] = {}

    def of(op: Op, name: str) -> tuple[str, str] | None:
        """Returns the names of the quantised numbers and scales of a matrix; None if it keeps floats."""
        is_transposed, b = bool(op.attrs.trans_b), graph.constants.get(name)
        if b is None or b.dtype != np.float32 or b.ndim != 2 or b.shape[1 if is_transposed else 0] < BLOCK \
                or not np.isfinite(b).all():
            return None
        if (name, is_transposed) not in quantised:
            numbers, scale = quantize_rows(b if is_transposed else b.T)
            quantised[name, is_transposed] = (edit.constant(f"{op.outputs[0]}.int8", numbers),
                                              edit.constant(f"{op.outputs[0]}.scale", scale))
        return quantised[name, is_transposed]

    for op in graph.ops:
        if op.kind == "matmul" and not op.attrs.trans_a and graph.types[op.inputs[0]].rank >= 2:
            found = of(op, op.inputs[1])
            if found is not None:
                edit.replace(op, op.with_(
                    kind="matmul_nbits", attrs=Attrs(bits=BITS, block=BLOCK, activations="int8"),
                    inputs=(op.inputs[0], *found, *(("", *op.inputs[2:]) if len(op.inputs) > 2 else ()))))
        elif op.kind == "matmul_rows":
            found = of(op, op.inputs[1])
            if found is not None:
                depth = graph.types[op.inputs[1]].shape[1 if op.attrs.trans_b else 0]
                edit.replace(op, op.with_(kind="nbits_rows", attrs=Attrs(bits=BITS, block=BLOCK, depth=depth, tied=""),
                                          inputs=(op.inputs[0], *found)))
    return edit.finish()


def quantize_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantises float32 [N, K] in blocks of 32 along rows, as Q8_0 of GGUF does: a scale is the largest magnitude of
    its block / 127, rounded to float16 if float16 can represent all scales.

    Returns the numbers plus 128, uint8 [N, K], and the scales, float32 [N, ceil(K / 32)].
    """
    depth = rows.shape[1]
    blocks = np.pad(rows, ((0, 0), (0, -depth % BLOCK))).reshape(len(rows), -1, BLOCK)
    scale = np.abs(blocks).max(-1) / np.float32(127)
    with np.errstate(all="ignore"):  # a scale may be 0, or too large for float16
        half = scale.astype(np.float16).astype(np.float32)
        if np.isfinite(half).all() and (half >= np.where(scale > 0, np.finfo(np.float16).tiny, 0)).all():
            scale = half
        numbers = np.clip(np.rint(np.nan_to_num(blocks / scale[..., None], posinf=0, neginf=0)), -127, 127)
    stored = (numbers + default_zero_point(BITS)).astype(np.uint8)
    return stored.reshape(len(rows), -1)[:, :depth].copy(), scale
