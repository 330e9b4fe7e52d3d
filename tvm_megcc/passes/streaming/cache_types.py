# SPDX-License-Identifier: Apache-2.0
"""Stores KV caches as float16 or int8 instead of the model's float32 (`--cache`). Attention kernels read the stored
dtype, without a copy."""

from __future__ import annotations

from dataclasses import replace

from ...errors import MegccError, ModelError
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...ops.cache_rows import stored_rows, stored_shape
from ...ops.rules import slice_axes
from ..edit import Editor


def store_caches(graph: Graph, dtype: str) -> Graph:
    """Stores the float32 states to which a run appends rows as float16, or as int8 with a scale for each row.

    Readers of a cache get an operator `widen_cache` before them; fuse_attention removes it, because the kernels of
    attention widen themselves.

    Args:
        dtype: "float16", "int8", or "float32", which leaves them unchanged.

    Raises:
        MegccError: if the graph has no such state.
        ModelError: for "int8", listing the caches that grow along their last axis, whose rows would have no scale.
    """
    if dtype == "float32":
        return graph
    states = dict(graph.states)
    caches = [op for op in graph.ops if op.kind == "append" and states.get(op.outputs[0]) == op.inputs[0]
             and {graph.types[name].dtype for name in op.inputs[:2]} == {"float32"}]
    if not caches:
        raise MegccError(f"--cache {dtype}: {graph.name} has no states of float32 that grow; those of decoders do with "
                         "--state and --bound (docs/streaming.md)")
    last = [op.inputs[0] for op in caches if op.attrs.axis == graph.types[op.inputs[0]].rank - 1]
    if dtype == "int8" and last:
        raise ModelError(graph.name, [f"state '{name}' is {graph.types[name]} and grows along its last axis" for name in
                                      last], "int8 has a scale for each row of the last axis: --cache float16")
    edit = Editor(graph)
    for op in caches:
        for name in (op.inputs[0], op.outputs[0]):
            _widen_reads(edit, name, op, dtype)
    names = {op.inputs[0] for op in caches}
    values = {name: stored_rows(array, dtype) if name in names else array
              for name, array in graph.initial_states.items()}
    return edit.finish().with_(initial_states=values)


def _widen_reads(edit: Editor, name: str, append: Op, dtype: str) -> None:
    """Changes the dtype of a cache and lets its readers read it widened. A slice of rows comes before the widening,
    which then copies less."""
    type_ = edit.types[name]
    readers = [op for op in edit.graph.ops if name in op.inputs and op is not append]
    parts = [op.outputs[0] for op in readers if op.kind == "slice" and op.outputs[0] not in edit.graph.outputs
             and type_.rank - 1 not in slice_axes(op.attrs, type_.shape)]
    for part in parts:
        edit.redirect({part: _widened(edit, part, dtype, append.origin)})
    others = [op for op in readers if op.outputs[0] not in parts]
    if not others:
        edit.types[name] = _stored(type_, dtype)
        return
    wide = _widened(edit, name, dtype, append.origin)
    for original in others:
        op = edit.producer(original.outputs[0]) or original  # `redirect` may have changed its operands
        edit.replace(op, op.with_(inputs=tuple(wide if operand == name else operand for operand in op.inputs)))


def _widened(edit: Editor, name: str, dtype: str, origin: str) -> str:
    """Changes the dtype of a value, and adds a `widen_cache` after it, whose result is returned."""
    wide = edit.value(f"{name}.wide", edit.types[name])
    edit.types[name] = _stored(edit.types[name], dtype)
    edit.add_after(name, Op("widen_cache", Attrs(), (name,), (wide,), origin=origin))
    return wide


def _stored(type_: TensorType, dtype: str) -> TensorType:
    """Returns the type in which rows of this type are stored."""
    return replace(type_, dtype=dtype, shape=stored_shape(type_.shape, dtype))
