# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals of tensors, which exist only during the import. A sequence is a list of values of known
length; an optional has a value or none. A sequence `x` that is an input or output becomes its tensors `x.0`, `x.1`, …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ...errors import MegccError, ShapeError, quoted
from ...ops.rules import axis_of
from ...ops.tensor.move import emit_slice
from .builder import Node
from .stacked import IMPORTERS as STACKED
from .stacked import split, unstacked

if TYPE_CHECKING:
    from .importer import Importer, Scope

#: The most elements of a sequence.
LONGEST = 1024


class Sequences:
    """The values of an import that are not tensors, by name.

    elements: sequence of known length -> its values.
    stacked: sequence whose length is found at run time -> the stack of its tensors.
    absent: optionals without a value; an optional with one is that value itself.
    """

    def __init__(self, unique: Callable[[str], str]):
        self.elements: dict[str, tuple[str, ...]] = {}
        self.stacked: dict[str, str] = {}
        self.absent: set[str] = set()
        self._unique = unique

    def __contains__(self, name: str | None) -> bool:
        return name in self.elements or name in self.stacked or name in self.absent

    def of(self, parts: Sequence[str], hint: str = "sequence") -> str:
        if len(parts) > LONGEST:
            raise MegccError(f"is a sequence of {len(parts)} tensors; {LONGEST} are supported")
        name = self._unique(hint)
        self.elements[name] = tuple(parts)
        return name

    def of_stack(self, value: str, hint: str = "sequence") -> str:
        name = self._unique(hint)
        self.stacked[name] = value
        return name

    def none(self) -> str:
        name = self._unique("optional")
        self.absent.add(name)
        return name

    def parts(self, node: Node, index: int = 0) -> tuple[str, ...]:
        """Returns the values of an operand, which must be a sequence."""
        if node.has(index) and node.inputs[index] in self.stacked:
            return unstacked(node, self.stacked[node.inputs[index]])
        if not node.has(index) or node.inputs[index] not in self.elements:
            raise MegccError(f"its operand {index} is no sequence")
        return self.elements[node.inputs[index]]


def input_tensors(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence]) -> list[onnx.ValueInfoProto]:
    """Returns the tensors of an input: the input itself or, for a sequence `x`, the tensors `x.0`, `x.1`, … whose
    shapes are given.

    Raises:
        ShapeError: if no shapes tell the length of a sequence.
    """
    kind = value.type.optional_type.elem_type if value.type.HasField("optional_type") else value.type
    if kind.HasField("tensor_type"):
        return [onnx.ValueInfoProto(name=value.name, type=kind)]
    if not kind.HasField("sequence_type") or not kind.sequence_type.elem_type.HasField("tensor_type"):
        raise ShapeError("is neither a tensor nor a sequence of tensors nor an optional of one")
    element = kind.sequence_type.elem_type.tensor_type.elem_type
    names = takewhile(lambda name: name in shapes, (f"{value.name}.{index}" for index in count()))
    tensors = [onnx.helper.make_tensor_value_info(name, element, tuple(shapes[name])) for name in names]
    if not tensors:
        raise ShapeError(f"is a sequence; give the shapes of its tensors, '{value.name}.0' and so on, or the constant "
                         "None if it is empty")
    return tensors


def is_sequence(kind: onnx.TypeProto) -> bool:
    """Whether an input or output is a sequence, also an optional one."""
    return (kind.optional_type.elem_type if kind.HasField("optional_type") else kind).HasField("sequence_type")


def given_tensors(importer: Importer, scope: Scope) -> list[onnx.ValueInfoProto]:
    """Returns the input tensors of the graph. Sequences and optionals among the inputs are put into the scope."""
    given: list[onnx.ValueInfoProto] = []
    for value in importer.graph.input:
        if value.name in scope.values:
            continue
        empty = value.name in importer.fixed and importer.fixed[value.name] is None
        try:
            tensors = [] if empty else input_tensors(value, importer.input_shapes)
        except ShapeError as error:
            importer.findings.append(f"input {quoted(value.name)}: {error}")
            scope.values[value.name] = None
            continue
        if empty and (value.type.HasField("optional_type") or not is_sequence(value.type)):
            scope.values[value.name] = importer.sequences.none()
        elif is_sequence(value.type):
            scope.values[value.name] = importer.sequences.of([tensor.name for tensor in tensors], value.name)
        given += tensors
    return given


def output_tensors(importer: Importer, name: str, scope: Scope) -> list[str]:
    """Returns the names of an output's tensors: its own name, `y.0`, `y.1`, … for a sequence `y`, or none for an empty
    optional."""
    value = scope[name] if name in scope else name
    if value not in importer.sequences:
        return [name]
    found = importer.sequences.elements.get(str(value), ())
    if value in importer.sequences.stacked:
        node = Node(importer.builder, onnx.NodeProto(name=name, output=[name]), [], 0, None)
        try:
            found = unstacked(node, importer.sequences.stacked[str(value)])
        except MegccError:
            importer.findings.append(f"output {quoted(name)}: is a sequence whose length a run finds; join its tensors "
                                     "to one (ConcatFromSequence)")
            return []
    parts = {f"{name}.{index}": part for index, part in enumerate(found)}
    taken = [part for part in parts if part in scope]
    if taken:
        importer.findings.append(f"output {quoted(name)}: its tensor {quoted(taken[0])} has the name of another value; "
                                 "rename it")
    scope.values.update(parts)
    return list(parts)


def _constructed(sequences: Sequences, node: Node) -> list[str]:
    return [sequences.of(node.inputs)]


def _empty(sequences: Sequences, node: Node) -> list[str]:
    return [sequences.of(())]


def _length(sequences: Sequences, node: Node) -> list[str]:
    return [node.constant(np.array(len(sequences.parts(node)), np.int64))]


def _constant_position(node: Node, index: int, length: int, beyond: int = 0) -> int:
    """Returns a constant position operand, counted from the front. Positions up to `length + beyond` are allowed: an
    insertion may be at the end."""
    at = int(node.const(index, "position").reshape(-1)[0])
    if not -length <= at < length + beyond:
        raise ShapeError(f"position {at} of a sequence of {length}")
    return at % length if at < 0 else at


def _picked(node: Node, parts: Sequence[str], index: int, positions_of: Callable[[str], str], wanted: int) -> list[str]:
    """Selects `wanted` of the tensors at run time. positions_of: gives their indices, computed from the position in
    operand `index`, counted from the front."""
    types = {str(node.type_of(part)) for part in parts}
    if len(types) != 1:
        raise MegccError(f"its position is computed at run time, and its tensors are {', '.join(sorted(types))}; those "
                         "of one type are supported")
    shape = node.type_of(parts[0]).shape
    rows = [node.emit("reshape", (part,), shape=(1, *shape))[0] for part in parts]
    stack = node.emit("concat", rows, axis=0)[0] if len(rows) > 1 else rows[0]
    (at,) = node.emit("cast", node.emit("reshape", (node.inputs[index],), shape=(1,)), dtype="int64")
    (picked,) = node.emit("gather", (stack, positions_of(at)), axis=0)
    return [node.emit("reshape", (emit_slice(node, picked, 0, row, row + 1),), shape=shape)[0] for row in range(wanted)]


def _from_front(node: Node, at: str, length: int) -> str:
    zero, extent = (node.constant(np.array([number], np.int64)) for number in (0, length))
    (below,) = node.emit("less", (at, zero))
    return node.emit("where", (below, *node.emit("add", (at, extent)), at))[0]


def _at(sequences: Sequences, node: Node) -> list[str]:
    parts = sequences.parts(node)
    if node.is_const(1):
        return [parts[_constant_position(node, 1, len(parts))]]
    return _picked(node, parts, 1, lambda at: at, 1)


def _erased(sequences: Sequences, node: Node) -> list[str]:
    parts = sequences.parts(node)
    left = len(parts) - 1
    if not parts:
        raise ShapeError("takes a tensor out of an empty sequence")
    if not node.has(1) or node.is_const(1):
        at = _constant_position(node, 1, len(parts)) if node.has(1) else left
        return [sequences.of(parts[:at] + parts[at + 1:])]

    def positions_of(at: str) -> str:
        rows = node.constant(np.arange(left))
        (is_after,) = node.emit("greater_equal", (rows, _from_front(node, at, len(parts))))
        return node.emit("add", (rows, *node.emit("cast", (is_after,), dtype="int64")))[0]
    return [sequences.of(_picked(node, parts, 1, positions_of, left) if left else ())]


def _inserted(sequences: Sequences, node: Node) -> list[str]:
    parts, value = sequences.parts(node), node.inputs[1]
    length = len(parts)
    if not node.has(2) or node.is_const(2):
        at = _constant_position(node, 2, length, 1) if node.has(2) else length
        return [sequences.of((*parts[:at], value, *parts[at:]))]

    def positions_of(at: str) -> str:
        first = _from_front(node, at, length)
        rows, before, new = (node.constant(array) for array in (
            np.arange(length + 1), np.arange(-1, length), np.array([length])))
        (is_before,), (equal,) = node.emit("less", (rows, first)), node.emit("equal", (rows, first))
        return node.emit("where", (is_before, rows, *node.emit("where", (equal, new, before))))[0]
    return [sequences.of(_picked(node, (*parts, value), 2, positions_of, length + 1))]


def _split(sequences: Sequences, node: Node) -> list[str]:
    type_ = node.type(0)
    axis = axis_of(node.attr("axis", 0), type_.rank)
    extent = type_.shape[axis]
    single = not node.has(1)
    if not single and node.type(1).rank == 1:
        sizes = node.dims(1, "split", most=extent)
    else:
        size = 1 if single else int(node.const(1, "split").reshape(()))
        if size == 1 and not isinstance(extent, int):
            return [sequences.of_stack(split(node, axis, not single or bool(node.attr("keepdims", 1))))]
        if not isinstance(extent, int) or size < 1:
            raise MegccError(f"cuts an axis of {extent} into parts of {size}, whose number is not known")
        sizes = tuple(min(size, extent - start) for start in range(0, extent, size))
    parts, start = [], 0
    for size in sizes:
        part = emit_slice(node, node.inputs[0], axis, start, start + size)
        if single and not node.attr("keepdims", 1):
            (part,) = node.emit("reshape", (part,), shape=type_.shape[:axis] + type_.shape[axis + 1:])
        parts.append(part)
        start = start + size
    return [sequences.of(parts)]


def _joined(sequences: Sequences, node: Node) -> list[str]:
    parts = sequences.parts(node)
    if not parts:
        raise ShapeError("joins the tensors of an empty sequence")
    rank = node.type_of(parts[0]).rank
    axis = axis_of(node.attr("axis"), rank + bool(node.attr("new_axis", 0)))
    if node.attr("new_axis", 0):
        shapes = [node.type_of(part).shape for part in parts]
        parts = tuple(node.emit("reshape", (part,), shape=(*shape[:axis], 1, *shape[axis:]))[0]
                      for part, shape in zip(parts, shapes, strict=True))
    return list(node.emit("concat", parts, axis=axis)) if len(parts) > 1 else [parts[0]]


def _optional(sequences: Sequences, node: Node) -> list[str]:
    return [node.inputs[0] if node.has(0) else sequences.none()]


def _element(sequences: Sequences, node: Node) -> list[str]:
    if node.inputs[0] in sequences.absent:
        raise ShapeError("takes the value of an optional that has none")
    return [node.inputs[0]]


def _has_element(sequences: Sequences, node: Node) -> list[str]:
    return [node.constant(np.array(node.has(0) and node.inputs[0] not in sequences.absent))]


IMPORTERS: Mapping[str, Callable[[Sequences, Node], list[str]]] = {
    "SequenceConstruct": _constructed, "SequenceEmpty": _empty, "SequenceLength": _length, "SequenceAt": _at,
    "SequenceErase": _erased, "SequenceInsert": _inserted, "SplitToSequence": _split, "ConcatFromSequence": _joined,
    "Optional": _optional, "OptionalGetElement": _element, "OptionalHasElement": _has_element,
}


def imported(sequences: Sequences, kind: str, node: Node) -> list[str]:
    """Returns the outputs of an operator on sequences or optionals."""
    stack = sequences.stacked.get(node.inputs[0]) if node.inputs else None
    if stack is not None and kind in STACKED:
        return STACKED[kind](sequences, node, stack)
    return IMPORTERS[kind](sequences, node)


def mapped(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
           opsets: Mapping[str, int]) -> list[str | None]:
    """Returns the outputs of a SequenceMap, whose body is imported once for each element of the first sequence."""
    sequences = importer.sequences
    body = next(each.g for each in proto.attribute if each.name == "body")
    rows = []
    for item in range(len(sequences.parts(node))):
        given = [sequences.parts(node, index)[item] if name in sequences else name
                 for index, name in enumerate(node.inputs)]
        names = [value.name for value in body.input]
        rows.append(importer.inlined(body, scope, opsets, dict(zip(names, given, strict=True))))
    if any(None in row for row in rows):
        return []
    return [sequences.of([str(row[output]) for row in rows]) for output in range(len(body.output))]
