# SPDX-License-Identifier: Apache-2.0
"""Transposes and reshapes that only bring an axis to where an operator of the framework wanted it are left out."""

from __future__ import annotations

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from .edit import Editor

#: Operators along one axis, attribute `axis`, whose result has the operand's shape: they work along any axis.
ALONG_AXIS = ("softmax", "log_softmax")


def absorb_transposes(graph: Graph, context: Context) -> Graph:
    """Takes operators along an axis out of what is undone behind them:

    reshape(f(reshape(x), last), shape of x) → f(x, last) where the last extent stays;
    transpose(f(transpose(x, p), axis), q) → f(x, p[axis]) where q undoes p.
    """
    edit = Editor(graph)
    for op in graph.ops:
        line = edit.producer(op.inputs[0]) if op.kind in _UNDONE and op.inputs else None
        before = edit.producer(line.inputs[0]) if line is not None and line.kind in ALONG_AXIS else None
        if before is not None and before.kind == op.kind and edit.is_read_once(line.outputs[0]):
            axis = _UNDONE[op.kind](graph, before, line, op)
            if axis is not None:
                edit.replace(op, line.with_(attrs=Attrs(line.attrs, axis=axis), inputs=before.inputs,
                                            outputs=op.outputs))
    return edit.finish()


def _transposed_axis(graph: Graph, before: Op, line: Op, op: Op) -> int | None:
    perm = before.attrs.perm
    return perm[line.attrs.axis] if [perm[axis] for axis in op.attrs.perm] == list(range(len(perm))) else None


def _last_axis(graph: Graph, before: Op, line: Op, op: Op) -> int | None:
    whole, flat = graph.types[before.inputs[0]].shape, graph.types[line.outputs[0]].shape
    stays = whole and flat and whole[-1] == flat[-1] and line.attrs.axis % len(flat) == len(flat) - 1
    return len(whole) - 1 if stays and graph.types[op.outputs[0]].shape == whole else None


#: Kind of the operators on both sides -> the axis of the operator between them without these; None if they stay.
_UNDONE = {"transpose": _transposed_axis, "reshape": _last_axis}
