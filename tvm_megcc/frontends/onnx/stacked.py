# SPDX-License-Identifier: Apache-2.0
"""Imports operators on sequences if the length or a position is only known at run time. The tensors, which must be of
one type, are stacked along a new first axis, whose extent is the length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from ...ir.dims import Dim
from ...ir.types import TensorType
from ...ops.rules import END_OF_AXIS, arange_along, axis_of
from ...ops.tensor.move import emit_slice
from .builder import Node

if TYPE_CHECKING:
    from .sequences import Sequences


def stack_of(node: Node, parts: Sequence[str], type_: TensorType) -> str:
    """Stacks tensors of a type; there may be none.

    Raises:
        MegccError: if one has another type.
    """
    types = sorted({str(node.type_of(part)) for part in parts} - {str(type_)})
    if types:
        raise MegccError(f"is a sequence whose length is known only at run time, of tensors that are {type_} "
                         f"and {', '.join(types)}; those of one type are supported")
    if not parts:
        empty = node.constant(np.zeros((0, *[1] * type_.rank), np.dtype(type_.dtype)))
        return empty if all(dim == 1 for dim in type_.shape) else \
            node.emit("expand", (empty,), shape=(0, *type_.shape))[0]
    rows = [_row(node, part) for part in parts]
    return node.emit("concat", rows, axis=0)[0] if len(rows) > 1 else rows[0]


def _row(node: Node, value: str) -> str:
    """Returns a tensor with a new first axis of extent 1."""
    return node.emit("reshape", (value,), shape=(1, *node.type_of(value).shape))[0]


def element_type(stack: TensorType) -> TensorType:
    """Returns the type of the tensors in a stack of this type."""
    return stack.with_shape(stack.shape[1:])


def _scalar(node: Node, value: str) -> str:
    """Returns an integer tensor of one element as int64 []."""
    (int64_value,) = node.emit("cast", (value,), dtype="int64") if node.type_of(value).dtype != "int64" else (value,)
    return node.emit("reshape", (int64_value,), shape=())[0]


def _from_front(node: Node, stack: str, index: int) -> str:
    """Returns the position in operand `index`, int64 [], counted from the front."""
    position = _scalar(node, node.inputs[index])
    (is_negative,) = node.emit("less", (position, node.constant(np.array(0))))
    return node.emit("where", (is_negative, *node.emit("add", (position, _length_of(node, stack))), position))[0]


def _length_of(node: Node, stack: str) -> str:
    return node.extent(node.type_of(stack).shape[0])


def _gather(node: Node, stack: str, indices: str) -> str:
    return node.emit("gather", (stack, indices), axis=0)[0]


def _require_in_range(node: Node, rows: str, position: str, last: Dim) -> str:
    """Returns `rows`, the indices to gather, if `position` is from 0 to `last`; else indices that are out of bounds, so
    that the run fails."""
    (is_negative,) = node.emit("less", (position, node.constant(np.array(0))))
    (is_too_large,) = node.emit("greater", (position, node.extent(last)))
    (is_outside,) = node.emit("logical_or", (is_negative, is_too_large))
    return node.emit("where", (is_outside, node.constant(np.array(END_OF_AXIS)), rows))[0]


def _sequence_length(sequences: Sequences, node: Node, stack: str) -> list[str]:
    return [_length_of(node, stack)]


def _sequence_at(sequences: Sequences, node: Node, stack: str) -> list[str]:
    return [_gather(node, stack, _scalar(node, node.inputs[1]))]  # a gather counts negative positions from the end


def _sequence_erase(sequences: Sequences, node: Node, stack: str) -> list[str]:
    remaining = node.type_of(stack).shape[0] - 1
    if not node.has(1):
        return [sequences.of_stack(emit_slice(node, stack, 0, 0, remaining))]
    rows = arange_along(node, remaining, 0, 1)
    position = _from_front(node, stack, 1)
    (is_after,) = node.emit("cast", node.emit("greater_equal", (rows, position)), dtype="int64")
    (rows,) = node.emit("add", (rows, is_after))  # rows from `position` on come from one further
    return [sequences.of_stack(_gather(node, stack, _require_in_range(node, rows, position, remaining)))]


def _sequence_insert(sequences: Sequences, node: Node, stack: str) -> list[str]:
    value, length, element = node.inputs[1], node.type_of(stack).shape[0], element_type(node.type_of(stack))
    if str(node.type_of(value)) != str(element):
        raise MegccError(f"puts {node.type_of(value)} into a sequence whose length is known only at run time, of "
                         f"tensors that are {element}; those of one type are supported")
    if length == 0:
        return [sequences.of_stack(_row(node, value))]
    (longer,) = node.emit("concat", (stack, _row(node, value)), axis=0)
    if not node.has(2):
        return [sequences.of_stack(longer)]
    position, rows = _from_front(node, stack, 2), arange_along(node, length + 1, 0, 1)
    (equal,), (is_before,) = node.emit("equal", (rows, position)), node.emit("less", (rows, position))
    (before,) = node.emit("sub", (rows, node.constant(np.array(1))))
    # The value is the last row of `longer`. It moves to `position`, and the rows from there on move up by one.
    (rows,) = node.emit("where", (is_before, rows, *node.emit("where", (equal, _length_of(node, stack), before))))
    return [sequences.of_stack(_gather(node, longer, _require_in_range(node, rows, position, length)))]


def _concat_from_sequence(sequences: Sequences, node: Node, stack: str) -> list[str]:
    length, *shape = node.type_of(stack).shape
    has_new_axis = bool(node.attr("new_axis", 0))
    axis = axis_of(node.attr("axis"), len(shape) + has_new_axis)
    if axis:  # the stack's first axis is moved there
        (stack,) = node.emit("transpose", (stack,), perm=(*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)))
    if not has_new_axis:
        shape[axis] = length * shape[axis]
        (stack,) = node.emit("reshape", (stack,), shape=tuple(shape))
    return [stack]


#: Importers of ONNX's sequence operators for a sequence that is a stack, by operator. They take the stack as the last
#: argument and return the values of the outputs.
IMPORTERS: Mapping[str, Callable[[Sequences, Node, str], list[str]]] = {
    "SequenceLength": _sequence_length,
    "SequenceAt": _sequence_at,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "ConcatFromSequence": _concat_from_sequence,
}


def split(node: Node, axis: int, keepdims: bool) -> str:
    """Splits operand 0 along an axis of data-dependent extent into slices of one element, returned as a stack."""
    (stack,), type_ = node.inputs[:1], node.type(0)
    if axis:
        (stack,) = node.emit("transpose", (stack,), perm=(axis, *(i for i in range(type_.rank) if i != axis)))
    if not keepdims:
        return stack
    shape = [1 if i == axis else dim for i, dim in enumerate(type_.shape)]
    return node.emit("reshape", (stack,), shape=(type_.shape[axis], *shape))[0]


def unstack(node: Node, stack: str) -> tuple[str, ...]:
    """Returns the tensors of a stack.

    Raises:
        MegccError: if their number is only known at run time.
    """
    length, *shape = node.type_of(stack).shape
    if not isinstance(length, int):
        raise MegccError("is a sequence whose length is known only at run time, which is supported for SequenceAt, "
                         "SequenceInsert, SequenceErase, SequenceLength and ConcatFromSequence")
    return tuple(node.emit("reshape", (emit_slice(node, stack, 0, row, row + 1),), shape=tuple(shape))[0]
                 for row in range(length))
