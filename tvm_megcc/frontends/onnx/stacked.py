# SPDX-License-Identifier: Apache-2.0
"""Sequences whose length is only known at run time: tensors of one type, stacked along a new first axis, whose extent
is the length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import MegccError
from ...ir.dims import Dim
from ...ir.types import TensorType
from ...ops.rules import FAR, arange_along, axis_of
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
        raise MegccError(f"is a sequence whose length a run finds, of tensors that are {type_} and {', '.join(types)}; "
                         "those of one type are supported")
    if not parts:
        empty = node.constant(np.zeros((0, *[1] * type_.rank), np.dtype(type_.dtype)))
        return empty if all(dim == 1 for dim in type_.shape) else \
            node.emit("expand", (empty,), shape=(0, *type_.shape))[0]
    rows = [_row(node, part) for part in parts]
    return node.emit("concat", rows, axis=0)[0] if len(rows) > 1 else rows[0]


def _row(node: Node, value: str) -> str:
    return node.emit("reshape", (value,), shape=(1, *node.type_of(value).shape))[0]


def _element(node: Node, stack: str) -> TensorType:
    """Returns the type of the tensors in a stack."""
    type_ = node.type_of(stack)
    return type_.with_shape(type_.shape[1:])


def _scalar(node: Node, value: str) -> str:
    (wide,) = node.emit("cast", (value,), dtype="int64") if node.type_of(value).dtype != "int64" else (value,)
    return node.emit("reshape", (wide,), shape=())[0]


def _from_front(node: Node, stack: str, index: int) -> str:
    """Returns the position in operand `index`, int64 [], counted from the front."""
    at = _scalar(node, node.inputs[index])
    (below,) = node.emit("less", (at, node.constant(np.array(0))))
    return node.emit("where", (below, *node.emit("add", (at, _length(node, stack))), at))[0]


def _length(node: Node, stack: str) -> str:
    return node.extent(node.type_of(stack).shape[0])


def _gathered(node: Node, stack: str, indices: str) -> str:
    return node.emit("gather", (stack, indices), axis=0)[0]


def _on_axis(node: Node, rows: str, at: str, most: Dim) -> str:
    """Returns the positions to gather. If `at` is not from 0 to `most` they are out of bounds, so that the run
    fails."""
    (is_negative,) = node.emit("less", (at, node.constant(np.array(0))))
    (is_too_large,) = node.emit("greater", (at, node.extent(most)))
    (is_outside,) = node.emit("logical_or", (is_negative, is_too_large))
    return node.emit("where", (is_outside, node.constant(np.array(FAR)), rows))[0]


def _counted(sequences: Sequences, node: Node, stack: str) -> list[str]:
    return [_length(node, stack)]


def _at(sequences: Sequences, node: Node, stack: str) -> list[str]:
    return [_gathered(node, stack, _from_front(node, stack, 1))]


def _erased(sequences: Sequences, node: Node, stack: str) -> list[str]:
    left = node.type_of(stack).shape[0] - 1
    if not node.has(1):
        return [sequences.of_stack(emit_slice(node, stack, 0, 0, left))]
    rows = arange_along(node, left, 0, 1)
    at = _from_front(node, stack, 1)
    (is_after,) = node.emit("cast", node.emit("greater_equal", (rows, at)), dtype="int64")
    (rows,) = node.emit("add", (rows, is_after))
    return [sequences.of_stack(_gathered(node, stack, _on_axis(node, rows, at, left)))]


def _inserted(sequences: Sequences, node: Node, stack: str) -> list[str]:
    value, length = node.inputs[1], node.type_of(stack).shape[0]
    if str(node.type_of(value)) != str(_element(node, stack)):
        raise MegccError(f"puts {node.type_of(value)} into a sequence whose length a run finds, of tensors that are "
                         f"{_element(node, stack)}; those of one type are supported")
    if length == 0:
        return [sequences.of_stack(_row(node, value))]
    (longer,) = node.emit("concat", (stack, _row(node, value)), axis=0)
    if not node.has(2):
        return [sequences.of_stack(longer)]
    at, rows = _from_front(node, stack, 2), arange_along(node, length + 1, 0, 1)
    (equal,), (is_before,) = node.emit("equal", (rows, at)), node.emit("less", (rows, at))
    (before,) = node.emit("sub", (rows, node.constant(np.array(1))))
    (rows,) = node.emit("where", (is_before, rows, *node.emit("where", (equal, _length(node, stack), before))))
    return [sequences.of_stack(_gathered(node, longer, _on_axis(node, rows, at, length)))]


def _joined(sequences: Sequences, node: Node, stack: str) -> list[str]:
    length, *shape = node.type_of(stack).shape
    new = bool(node.attr("new_axis", 0))
    axis = axis_of(node.attr("axis"), len(shape) + new)
    if axis:  # the stack's first axis is moved there
        (stack,) = node.emit("transpose", (stack,), perm=(*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)))
    if not new:
        shape[axis] = length * shape[axis]
        (stack,) = node.emit("reshape", (stack,), shape=tuple(shape))
    return [stack]


#: Importers of ONNX's sequence operators for a sequence that is a stack, by operator.
IMPORTERS: Mapping[str, Callable[[Sequences, Node, str], list[str]]] = {
    "SequenceLength": _counted, "SequenceAt": _at, "SequenceErase": _erased, "SequenceInsert": _inserted,
    "ConcatFromSequence": _joined,
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


def unstacked(node: Node, stack: str) -> tuple[str, ...]:
    """Returns the tensors of a stack.

    Raises:
        MegccError: if their number is only known at run time.
    """
    length, *shape = node.type_of(stack).shape
    if not isinstance(length, int):
        raise MegccError("is a sequence whose length a run finds, which is supported for SequenceAt, SequenceInsert, "
                         "SequenceErase, SequenceLength and ConcatFromSequence")
    return tuple(node.emit("reshape", (emit_slice(node, stack, 0, row, row + 1),), shape=tuple(shape))[0]
                 for row in range(length))
