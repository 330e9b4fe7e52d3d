# SPDX-License-Identifier: Apache-2.0
"""Imports sequences and optionals of tensors, which exist only during the import.

A sequence of known length is a list of values; `stacked.py` has the operators for a sequence whose length is found at
run time. An optional has a value or none. A sequence `x` that is an input or output becomes its tensors `x.0`, `x.1`, …
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
from .stacked import split, stack_of, unstack

if TYPE_CHECKING:
    from .importer import ModelImporter
    from .nodes import Importer, Scope

#: The most elements of a sequence.
MAX_ELEMENTS = 1024


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

    def of(self, elements: Sequence[str], hint: str = "sequence") -> str:
        """Adds a sequence of these tensors, and returns its name."""
        if len(elements) > MAX_ELEMENTS:
            raise MegccError(f"is a sequence of {len(elements)} tensors; {MAX_ELEMENTS} are supported")
        name = self._unique(hint)
        self.elements[name] = tuple(elements)
        return name

    def of_stack(self, value: str, hint: str = "sequence") -> str:
        """Adds a sequence of the rows of a tensor, along its first axis, and returns its name."""
        name = self._unique(hint)
        self.stacked[name] = value
        return name

    def none(self) -> str:
        """Adds an optional without a value, and returns its name."""
        name = self._unique("optional")
        self.absent.add(name)
        return name

    def elements_of(self, node: Node, index: int = 0) -> tuple[str, ...]:
        """Returns the tensors of a sequence operand.

        Raises:
            MegccError: if the operand is no sequence, or one whose length is only known at run time.
        """
        if node.has(index) and node.inputs[index] in self.stacked:
            return unstack(node, self.stacked[node.inputs[index]])
        if not node.has(index) or node.inputs[index] not in self.elements:
            raise MegccError(f"its operand {index} is no sequence")
        return self.elements[node.inputs[index]]


def input_tensors(value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence]) -> list[onnx.ValueInfoProto]:
    """Returns the tensors of an input: the input itself or, for a sequence `x`, the tensors `x.0`, `x.1`, … whose
    shapes are given.

    Raises:
        ShapeError: if no shapes tell the length of a sequence.
    """
    type_ = _without_optional(value.type)
    if type_.HasField("tensor_type"):
        return [onnx.ValueInfoProto(name=value.name, type=type_)]
    if not type_.HasField("sequence_type") or not type_.sequence_type.elem_type.HasField("tensor_type"):
        raise ShapeError("is neither a tensor nor a sequence of tensors nor an optional of one")
    element = type_.sequence_type.elem_type.tensor_type.elem_type
    names = takewhile(lambda name: name in shapes, (f"{value.name}.{index}" for index in count()))
    tensors = [onnx.helper.make_tensor_value_info(name, element, tuple(shapes[name])) for name in names]
    if not tensors:
        raise ShapeError(f"is a sequence; give the shapes of its tensors, '{value.name}.0' and so on, or the constant "
                         "None if it is empty")
    return tensors


def _without_optional(type_: onnx.TypeProto) -> onnx.TypeProto:
    """Returns the type of the value that an optional may have; other types unchanged."""
    return type_.optional_type.elem_type if type_.HasField("optional_type") else type_


def is_sequence(type_: onnx.TypeProto) -> bool:
    """Whether an input or output is a sequence, also an optional one."""
    return _without_optional(type_).HasField("sequence_type")


def input_tensors_of(importer: ModelImporter, scope: Scope) -> list[onnx.ValueInfoProto]:
    """Returns the input tensors of the graph. Adds sequences and optionals among the inputs to the scope."""
    found: list[onnx.ValueInfoProto] = []
    for value in importer.graph.input:
        if value.name in scope.values:
            continue
        is_none = value.name in importer.constant_inputs and importer.constant_inputs[value.name] is None
        try:
            tensors = [] if is_none else input_tensors(value, importer.input_shapes)
        except ShapeError as error:
            importer.findings.append(f"input {quoted(value.name)}: {error}")
            scope.values[value.name] = None
            continue
        # None stands for an optional without a value, or for an empty sequence if the input is a sequence.
        if is_none and (value.type.HasField("optional_type") or not is_sequence(value.type)):
            scope.values[value.name] = importer.sequences.none()
        elif is_sequence(value.type):
            scope.values[value.name] = importer.sequences.of([tensor.name for tensor in tensors], value.name)
        found += tensors
    return found


def output_tensors(importer: Importer, name: str, scope: Scope) -> list[str]:
    """Returns the names of an output's tensors: its own name, `y.0`, `y.1`, … for a sequence `y`, or none for an empty
    optional."""
    value = scope[name] if name in scope else name
    if value not in importer.sequences:
        return [name]
    tensors = importer.sequences.elements.get(str(value), ())
    if value in importer.sequences.stacked:
        # `unstack` emits operators through a node. No node of the model is the origin of these.
        node = Node(importer.builder, onnx.NodeProto(name=name, output=[name]), [], opset=0, folder=None)
        try:
            tensors = unstack(node, importer.sequences.stacked[str(value)])
        except MegccError:
            importer.findings.append(f"output {quoted(name)}: is a sequence whose length is known only at run "
                                    "time; join its tensors to one (ConcatFromSequence)")
            return []
    named_tensors = {f"{name}.{index}": tensor for index, tensor in enumerate(tensors)}
    taken = [tensor_name for tensor_name in named_tensors if tensor_name in scope]
    if taken:
        importer.findings.append(f"output {quoted(name)}: its tensor {quoted(taken[0])} has the name of another value; "
                                 "rename it")
    scope.values.update(named_tensors)
    return list(named_tensors)


def _sequence_construct(sequences: Sequences, node: Node) -> list[str]:
    return [sequences.of(node.inputs)]


def _sequence_empty(sequences: Sequences, node: Node) -> list[str]:
    return [sequences.of(())]


def _sequence_length(sequences: Sequences, node: Node) -> list[str]:
    return [node.constant(np.array(len(sequences.elements_of(node)), np.int64))]


def _constant_position(node: Node, index: int, length: int, may_be_end: bool = False) -> int:
    """Returns the constant position in operand `index`, counted from the front of a sequence of `length` tensors.

    may_be_end: whether the position may be `length`, as that of an insertion.
    """
    position = int(node.const(index, "position").reshape(-1)[0])
    if not -length <= position < length + may_be_end:
        raise ShapeError(f"position {position} of a sequence of {length}")
    return position % length if position < 0 else position


def _sequence_at(sequences: Sequences, node: Node) -> list[str]:
    elements = sequences.elements_of(node)
    return [elements[_constant_position(node, 1, len(elements))]]


def _sequence_erase(sequences: Sequences, node: Node) -> list[str]:
    elements = sequences.elements_of(node)
    if not elements:
        raise ShapeError("takes a tensor out of an empty sequence")
    position = _constant_position(node, 1, len(elements)) if node.has(1) else len(elements) - 1
    return [sequences.of(elements[:position] + elements[position + 1:])]


def _sequence_insert(sequences: Sequences, node: Node) -> list[str]:
    elements, value = sequences.elements_of(node), node.inputs[1]
    position = _constant_position(node, 2, len(elements), may_be_end=True) if node.has(2) else len(elements)
    return [sequences.of((*elements[:position], value, *elements[position:]))]


def _split_to_sequence(sequences: Sequences, node: Node) -> list[str]:
    type_ = node.type(0)
    axis = axis_of(node.attr("axis", 0), type_.rank)
    extent = type_.shape[axis]
    has_sizes = node.has(1)
    if has_sizes and node.type(1).rank == 1:
        sizes = node.dims(1, "split", limit=extent)
    else:
        size = 1 if not has_sizes else int(node.const(1, "split").reshape(()))
        if size == 1 and not isinstance(extent, int):
            return [sequences.of_stack(split(node, axis, has_sizes or bool(node.attr("keepdims", 1))))]
        if not isinstance(extent, int) or size < 1:
            raise MegccError(f"cuts an axis of {extent} into parts of {size}, whose number is not known")
        sizes = tuple(min(size, extent - start) for start in range(0, extent, size))
    elements, start = [], 0
    for size in sizes:
        element = emit_slice(node, node.inputs[0], axis, start, start + size)
        if not has_sizes and not node.attr("keepdims", 1):
            (element,) = node.emit("reshape", (element,), shape=type_.shape[:axis] + type_.shape[axis + 1:])
        elements.append(element)
        start = start + size
    return [sequences.of(elements)]


def _concat_from_sequence(sequences: Sequences, node: Node) -> list[str]:
    elements = sequences.elements_of(node)
    if not elements:
        raise ShapeError("joins the tensors of an empty sequence")
    rank = node.type_of(elements[0]).rank
    axis = axis_of(node.attr("axis"), rank + bool(node.attr("new_axis", 0)))
    if node.attr("new_axis", 0):
        shapes = [node.type_of(element).shape for element in elements]
        elements = tuple(node.emit("reshape", (element,), shape=(*shape[:axis], 1, *shape[axis:]))[0]
                         for element, shape in zip(elements, shapes, strict=True))
    return list(node.emit("concat", elements, axis=axis)) if len(elements) > 1 else [elements[0]]


def _optional_of(sequences: Sequences, node: Node) -> list[str]:
    return [node.inputs[0] if node.has(0) else sequences.none()]


def _optional_get_element(sequences: Sequences, node: Node) -> list[str]:
    if node.inputs[0] in sequences.absent:
        raise ShapeError("takes the value of an optional that has none")
    return [node.inputs[0]]


def _optional_has_element(sequences: Sequences, node: Node) -> list[str]:
    return [node.constant(np.array(node.has(0) and node.inputs[0] not in sequences.absent))]


#: Operators that take the position of a tensor in a sequence -> the operand that has it.
_POSITION_OPERANDS = {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2}

#: Importers of ONNX's operators on sequences and optionals, by operator. They require a constant position.
IMPORTERS: Mapping[str, Callable[[Sequences, Node], list[str]]] = {
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": _sequence_empty,
    "SequenceLength": _sequence_length,
    "SequenceAt": _sequence_at,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SplitToSequence": _split_to_sequence,
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _optional_of,
    "OptionalGetElement": _optional_get_element,
    "OptionalHasElement": _optional_has_element,
}


def import_operator(sequences: Sequences, kind: str, node: Node) -> list[str]:
    """Returns the outputs of an operator on sequences or optionals."""
    stack = sequences.stacked.get(node.inputs[0]) if node.inputs else None
    if stack is not None and kind in STACKED:
        return STACKED[kind](sequences, node, stack)
    position = _POSITION_OPERANDS.get(kind)
    if position is not None and node.has(position) and not node.is_const(position):
        return _import_at_run_time_position(sequences, kind, node)
    return IMPORTERS[kind](sequences, node)


def _import_at_run_time_position(sequences: Sequences, kind: str, node: Node) -> list[str]:
    """Returns the output of an operator on a sequence of known length at a position that is computed at run time: the
    tensors are stacked, and those of a resulting sequence are taken apart again."""
    elements = sequences.elements_of(node)
    inserted = node.inputs[1:2] if kind == "SequenceInsert" else ()
    types = {str(type_): type_ for type_ in map(node.type_of, (*elements, *inserted))}
    if len(types) != 1:
        raise MegccError(f"its position is computed at run time, and its tensors are {', '.join(sorted(types))}; those "
                         "of one type are supported")
    (type_,) = types.values()
    (result,) = STACKED[kind](sequences, node, stack_of(node, elements, type_))
    return [sequences.of(unstack(node, sequences.stacked[result]))] if result in sequences.stacked else [result]


def import_map(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
               opsets: Mapping[str, int]) -> list[str | None]:
    """Returns the outputs of a SequenceMap, whose body is imported once for each element of the first sequence."""
    sequences = importer.sequences
    body = next(attribute.g for attribute in proto.attribute if attribute.name == "body")
    rows = []
    for item in range(len(sequences.elements_of(node))):
        given = [sequences.elements_of(node, index)[item] if name in sequences else name
                 for index, name in enumerate(node.inputs)]
        names = [value.name for value in body.input]
        rows.append(importer.inline(body, scope, opsets, dict(zip(names, given, strict=True))))
    if any(None in row for row in rows):
        return []
    return [sequences.of([str(row[output]) for row in rows]) for output in range(len(body.output))]
