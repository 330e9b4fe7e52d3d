# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation, which importers and exporters write as means, squares and roots, as one operator."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op
from ..kernels.site import Site
from ..kernels.support import realisable
from ..ops.base import operator
from .edit import Editor

Readers = dict[str, list[Op]]


def fuse_norms(graph: Graph, context: Context) -> Graph:
    """Along the last axis: x - mean, over the root of the mean of its squares, times a constant, plus another."""
    edit = Editor(graph)
    readers: Readers = graph.consumers()
    for op in graph.ops:
        found = _normalised(edit, op, readers)
        if found is None:
            continue
        x, epsilon = found
        extent = edit.types[x].shape[-1]
        weight, last = _line(edit, readers, op, "mul", extent)
        bias, last = _line(edit, readers, last, "add", extent)
        lines = tuple(edit.constant(f"{last.outputs[0]}.{what}", array) if array is not None else ""
                      for what, array in (("weight", weight), ("bias", bias)))
        operands = (x, *lines) if lines[1] else (x, *filter(None, lines))
        made = Op("layer_norm", Attrs(epsilon=epsilon), operands, last.outputs, origin=last.origin)
        types = tuple(edit.types[name] if name else None for name in operands)
        if realisable(Site(made, types, (edit.types[last.outputs[0]],), context)):
            edit.replace(last, made)
    return edit.finish()


def _normalised(edit: Editor, op: Op, readers: Readers) -> tuple[str, float] | None:
    """What is normalised by the operator that ends with (x - mean) / root, and the number under the root."""
    if op.kind not in ("div", "mul") or edit.types[op.outputs[0]].dtype != "float32":
        return None
    for centred, root in (op.inputs, op.inputs[::-1]):
        difference, inverse = edit.producer(centred), edit.producer(root)
        if difference is None or inverse is None or (difference.kind, inverse.kind) != (
                "sub", "sqrt" if op.kind == "div" else "rsqrt"):
            continue
        x, mean = difference.inputs
        under, square = edit.producer(inverse.inputs[0]), None
        epsilon = _constant_of(edit, under)
        if under is not None and epsilon is not None:
            square = edit.producer(epsilon[0])
        if square is None or epsilon is None or not _is_mean(edit, square) or not _is_mean(edit, edit.producer(mean)):
            return None
        product = edit.producer(square.inputs[0])
        if product is not None and product.kind == "mul" and product.inputs == (centred, centred) \
                and edit.producer(mean).inputs == (x,) and len(readers[centred]) == 2:  # type: ignore[union-attr]
            return x, epsilon[1]
        return None
    return None


def _is_mean(edit: Editor, op: Op | None) -> bool:
    """Whether it is one of rows."""
    return (op is not None and op.kind == "reduce_mean" and bool(op.attrs.keepdims) and edit.is_read_once(op.outputs[0])
            and tuple(op.attrs.axes) == (edit.types[op.inputs[0]].rank - 1,))


def _constant_of(edit: Editor, op: Op | None) -> tuple[str, float] | None:
    """The operand of a sum to which one positive number is added, and that number."""
    if op is None or op.kind != "add":
        return None
    for name, other in (op.inputs, op.inputs[::-1]):
        array = edit.constants.get(other)
        if array is not None and array.size == 1 and 0 < float(array.reshape(-1)[0]) < 1:
            return name, float(array.reshape(-1)[0])
    return None


def _known(edit: Editor, name: str) -> np.ndarray | None:
    """A constant, also one that is dequantised."""
    source = edit.producer(name)
    if source is not None and source.kind == "dequantize_linear" \
            and all(each in edit.constants for each in source.inputs if each):
        operands = (edit.constants[each] if each else None for each in source.inputs)
        return operator(source.kind).compute(source.attrs, *operands)[0]
    return edit.constants.get(name)


def _line(edit: Editor, readers: Readers, op: Op, kind: str, extent) -> tuple[np.ndarray | None, Op]:
    """The constant line that the only reader of the operator's result multiplies or adds, and that reader; otherwise
    None and the operator."""
    (value,), (reader, *others) = op.outputs, readers.get(op.outputs[0]) or [None]
    if reader is None or others or reader.kind != kind or not edit.is_read_once(value):
        return None, op
    for name, other in (reader.inputs, reader.inputs[::-1]):
        array = _known(edit, other)
        if name == value and array is not None and array.size == array.shape[-1:].count(extent) * extent \
                and edit.types[reader.outputs[0]] == edit.types[value]:
            return np.ascontiguousarray(array.reshape(-1)), reader
    return None, op
