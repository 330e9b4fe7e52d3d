# SPDX-License-Identifier: Apache-2.0
"""Replaces the mean over all positions of a channel by one canonical operator."""

from __future__ import annotations

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ..edit import Editor


def canonicalize_means(graph: Graph, context: Context) -> Graph:
    """Uses `reduce_mean` for one axis, since it sums rows, and `global_avg_pool` for two, since it also reads blocked
    layouts. TVM's importer emits only the former, ONNX has both."""
    edit = Editor(graph)
    for op in graph.ops:
        x = edit.types[op.inputs[0]] if op.inputs and op.epilogue is None else None
        other = _other(op, x) if x is not None and x.dtype == "float32" else None
        if other is not None:
            edit.replace(op, other)
    return edit.finish()


def _other(op: Op, x: TensorType) -> Op | None:
    """Returns the operator in its canonical form; None if it has that form already."""
    if op.kind == "global_avg_pool" and x.rank == 3:
        return op.with_(kind="reduce_mean", attrs=Attrs(axes=(2,), keepdims=True))
    if op.kind == "reduce_mean" and x.rank == 4 and op.attrs.keepdims and op.attrs.axes == (2, 3):
        return op.with_(kind="global_avg_pool", attrs=Attrs())
    return None
