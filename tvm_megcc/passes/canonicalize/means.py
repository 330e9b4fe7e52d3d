# SPDX-License-Identifier: Apache-2.0
"""A mean over all places of a channel is one operator, however the model spells it."""

from __future__ import annotations

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ..edit import Editor


def spell_means(graph: Graph, context: Context) -> Graph:
    """Over one axis `reduce_mean`, which sums rows; over those of a picture `global_avg_pool`, which also reads
    channels in blocks. TVM's importer knows only the first, ONNX both."""
    edit = Editor(graph)
    for op in graph.ops:
        x = edit.types[op.inputs[0]] if op.inputs and op.epilogue is None else None
        other = _other(op, x) if x is not None and x.dtype == "float32" else None
        if other is not None:
            edit.replace(op, other)
    return edit.finish()


def _other(op: Op, x: TensorType) -> Op | None:
    """Returns the operator in its one spelling; None where that is how it is spelled."""
    if op.kind == "global_avg_pool" and x.rank == 3:
        return op.with_(kind="reduce_mean", attrs=Attrs(axes=(2,), keepdims=True))
    if op.kind == "reduce_mean" and x.rank == 4 and op.attrs.keepdims and op.attrs.axes == (2, 3):
        return op.with_(kind="global_avg_pool", attrs=Attrs())
    return None
