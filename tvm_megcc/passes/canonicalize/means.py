# SPDX-License-Identifier: Apache-2.0
"""Rewrites means over all spatial axes to a canonical operator: `reduce_mean` if there is one such axis,
`global_avg_pool` if there are two."""

from __future__ import annotations

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ..edit import Editor


def canonicalize_means(graph: Graph, context: Context) -> Graph:
    """Rewrites means over one spatial axis to `reduce_mean`, whose kernels sum rows, and means over two to
    `global_avg_pool`, whose kernels also read blocked layouts. ONNX has both operators; TVM's importer emits only the
    first."""
    edit = Editor(graph)
    for op in graph.ops:
        x = edit.types[op.inputs[0]] if op.inputs and op.epilogue is None else None
        canonical = _canonical(op, x) if x is not None and x.dtype == "float32" else None
        if canonical is not None:
            edit.replace(op, canonical)
    return edit.finish()


def _canonical(op: Op, x: TensorType) -> Op | None:
    """Returns the operator in its canonical form; None if it has that form already."""
    if op.kind == "global_avg_pool" and x.rank == 3:
        return op.with_(kind="reduce_mean", attrs=Attrs(axes=(2,), keepdims=True))
    if op.kind == "reduce_mean" and x.rank == 4 and op.attrs.keepdims and op.attrs.axes == (2, 3):
        return op.with_(kind="global_avg_pool", attrs=Attrs())
    return None
