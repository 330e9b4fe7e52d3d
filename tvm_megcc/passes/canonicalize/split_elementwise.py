# SPDX-License-Identifier: Apache-2.0
"""Moves elementwise operators before a concat where that saves a pass over its result.

f(concat(a, b)) is concat(f(a), f(b)). If a convolution computes the part a, f becomes the convolution's epilogue. If
other operators read a too, a cannot be computed in place in the concat; then f(a) is written there, instead of a copy
of a that f would read.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from ...context import Context
from ...ir.dims import product
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...kernels.support import fuses_epilogue
from ..edit import Editor
from ..fusion.elementwise import is_float_elementwise

#: The largest number of parts: with more, kernel calls cost more than the saved pass over the result.
MAX_PARTS = 4


def split_elementwise(graph: Graph, context: Context) -> Graph:
    """Rewrites f(concat(a, b)) → concat(f(a), f(b)) for elementwise f. Other operands of f are sliced, if the slices
    are views."""
    edit = Editor(graph)
    parts: set[str] = set()
    for op in graph.ops:
        concat = _concat_before(edit, op, parts)
        if concat is not None:
            edit.replace(op, *_split(edit, op, concat))
            joined = edit.producer(op.outputs[0])
            assert joined is not None
            parts.update(joined.inputs)
    return edit.finish()


def _concat_before(edit: Editor, op: Op, parts: Container[str]) -> Op | None:
    """Returns the concat before which the operator should be moved; None if there is none. parts: operands of the
    concats before which operators were already moved."""
    if not is_float_elementwise(edit.graph, op):
        return None
    for name in op.inputs:
        concat = edit.producer(name)
        if concat is None or concat.kind != "concat" or len(concat.inputs) > MAX_PARTS \
                or not edit.is_read_once(name) or not _gains(edit, concat, parts):
            continue
        output, axis = edit.types[op.outputs[0]], concat.attrs.axis
        if output.is_static and output.shape == edit.types[name].shape \
                and all(operand == name or _can_cut(edit, operand, output, axis) for operand in op.inputs):
            return concat
    return None


def _gains(edit: Editor, concat: Op, parts: Container[str]) -> bool:
    """Returns whether moving an operator before the concat saves work for at least one of its parts."""
    def gains(name: str) -> bool:
        if name in parts:
            return True  # the operator before this one was moved: a chain stays together
        if not edit.is_read_once(name):
            return True  # the part would be copied into the concat: the moved operator replaces the copy
        source = edit.producer(name)
        return source is not None and (fuses_epilogue(source.kind) or is_float_elementwise(edit.graph, source))

    is_any_repeated = len(set(concat.inputs)) < len(concat.inputs)
    return not is_any_repeated and any(map(gains, concat.inputs))


def _can_cut(edit: Editor, name: str, output: TensorType, axis: int) -> bool:
    """Returns whether the slices of an operand along the axis are constants, the whole operand, or views."""
    type_ = edit.types[name]
    operand_axis = axis - (output.rank - type_.rank)
    if name in edit.constants or operand_axis < 0 or type_.shape[operand_axis] == 1:
        return True
    return type_.shape == output.shape and product(output.shape[:axis]) == 1


def _cut(edit: Editor, name: str, output: TensorType, axis: int, first: int, count: int, origin: str) -> str:
    """Returns the slice of an operand for indices first to first + count - 1 of the output's axis."""
    type_ = edit.types[name]
    operand_axis = axis - (output.rank - type_.rank)
    if operand_axis < 0 or type_.shape[operand_axis] == 1:
        return name
    if name in edit.constants:
        values = edit.constants[name].take(range(first, first + count), operand_axis)
        return edit.constant(f"{name}:{first}", np.ascontiguousarray(values))
    part = edit.value(f"{name}:{first}", type_.with_shape((*type_.shape[:operand_axis], count,
                                                           *type_.shape[operand_axis + 1:])))
    attrs = Attrs(axes=(operand_axis,), starts=(first,), ends=(first + count,), steps=(1,))
    # Right after the value, so that it precedes all its readers.
    edit.add_after(name, Op("slice", attrs, (name,), (part,), origin=origin))
    return part


def _split(edit: Editor, op: Op, concat: Op) -> list[Op]:
    """Returns the operator on each part of the concat, and the concat of the results."""
    output, axis, first = edit.types[op.outputs[0]], concat.attrs.axis, 0
    ops, parts = [], []
    for part_in in concat.inputs:
        type_ = edit.types[part_in]
        count = type_.shape[axis]
        inputs = tuple(part_in if name == concat.outputs[0] else _cut(edit, name, output, axis, first, count, op.origin)
                       for name in op.inputs)
        parts.append(edit.value(f"{op.outputs[0]}:{first}", type_))
        ops.append(op.with_(inputs=inputs, outputs=(parts[-1],)))
        first += count
    return [*ops, concat.with_(inputs=tuple(parts), outputs=op.outputs)]
