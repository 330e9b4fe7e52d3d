# SPDX-License-Identifier: Apache-2.0
"""Represents sequences that loops carry or branches return as tensors: one for each element, or one stack of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from ...errors import MegccError
from ...ir.dims import symbols
from ...ir.types import TensorType
from .builder import Node
from .loops import LOOP_TYPES, add_loop_input
from .sequences import Sequences
from .stacked import element_type, stack_of

if TYPE_CHECKING:
    from .nodes import Importer


@dataclass(frozen=True)
class Form:
    """The representation of a value as tensors. `Form()` is that of a value that is a tensor itself.

    parts: the number of tensors of a sequence that is passed as separate tensors; otherwise None.
    element: the type of the elements of a sequence that is passed as a stack; otherwise None.
    """

    parts: int | None = None
    element: TensorType | None = None


@dataclass(frozen=True)
class ValueTypes:
    """The types of an imported value.

    types: the type of a tensor, or the types of a sequence's elements.
    stack: the type of the stack of a sequence whose length is found at run time; None for others.
    """

    types: tuple[TensorType, ...]
    is_sequence: bool = False
    stack: TensorType | None = None


def types_of(sequences: Sequences, node: Node, value: str) -> ValueTypes:
    """Returns the types of a value.

    Raises:
        MegccError: for an optional without a value.
    """
    if value in sequences.absent:
        raise MegccError("gives, or carries, an optional without a value, which is not supported")
    if value in sequences.stacked:
        stack = node.type_of(sequences.stacked[value])
        return ValueTypes((element_type(stack),), is_sequence=True, stack=stack)
    parts = sequences.elements.get(value)
    return ValueTypes((node.type_of(value),)) if parts is None else \
        ValueTypes(tuple(map(node.type_of, parts)), is_sequence=True)


def form_of(alternatives: Sequence[ValueTypes]) -> Form:
    """Returns a form that can hold each of the alternatives, such as the values that the branches of an If give.

    Raises:
        MegccError: if only some are sequences, or if sequences of different lengths have elements of several types.
    """
    if len({alternative.is_sequence for alternative in alternatives}) > 1:
        raise MegccError("gives a sequence in one case and a tensor in another")
    if not alternatives[0].is_sequence:
        return Form()
    if all(alternative.stack is None for alternative in alternatives) \
            and len({len(alternative.types) for alternative in alternatives}) == 1:
        return Form(len(alternatives[0].types))
    types = {str(type_): type_ for alternative in alternatives for type_ in alternative.types}
    if len(types) > 1:
        raise MegccError(f"gives sequences whose length is known only at run time, of tensors that are "
                         f"{' and '.join(sorted(types))}; those of one type are supported")
    return Form(element=next(iter(types.values())))


def tensor_types(value: ValueTypes, form: Form) -> tuple[TensorType, ...]:
    """Returns the types of the tensors that represent a value in a form."""
    if form.element is None:
        return value.types
    return (value.stack or form.element.with_shape((len(value.types), *form.element.shape)),)


def to_tensors(sequences: Sequences, node: Node, value: str, form: Form) -> list[str]:
    """Returns the tensors that represent a value in a form.

    Raises:
        MegccError: if the form cannot hold the value.
    """
    if (form != Form()) != (value in sequences):
        raise MegccError("gives a sequence in one case and a tensor in another")
    if form.element is None:
        return [value] if form.parts is None else list(sequences.elements[value])
    if value not in sequences.stacked:
        return [stack_of(node, sequences.elements[value], form.element)]
    element = element_type(node.type_of(sequences.stacked[value]))
    if element != form.element:
        raise MegccError(f"is a sequence whose length is known only at run time, of tensors that are "
                         f"{form.element} and {element}; those of one type are supported")
    return [sequences.stacked[value]]


def from_tensors(sequences: Sequences, tensors: Sequence[str], form: Form) -> str:
    """Returns the value that tensors represent in a form."""
    if form.element is not None:
        return sequences.of_stack(tensors[0])
    return tensors[0] if form.parts is None else sequences.of(tensors)


#: Imports a loop body. It takes the body's inputs by name. It returns the condition, the loop-carried values and the
#: scan outputs; None for a value that could not be imported.
ImportBody = Callable[[dict[str, str]], "list[str | None]"]


def carried_forms(importer: Importer, node: Node, initial_values: Sequence[str], body_inputs: Sequence[str],
                  import_body: ImportBody, positions: Sequence[int]) -> list[Form]:
    """Returns the forms of the loop-carried values. Sequences are stacked. The element type of a sequence that is empty
    at first is found by importing one iteration.

    body_inputs: the names in the body of the iteration number, of the condition and of the carried values. positions:
    the positions of the carried values among the results of `import_body`, not counting the condition.

    Raises:
        MegccError: if the element type is not found, or a sequence has elements of several types.
    """
    initial = [types_of(importer.sequences, node, value) for value in initial_values]
    elements = [value.types for value in initial]
    if any(value.is_sequence and not value.types for value in initial):
        found = _types_after_iteration(importer, node, initial_values, body_inputs, import_body, positions)
        elements = [value.types or types for value, types in zip(initial, found, strict=True)]
        outer_symbols = importer.builder.unbacked.taken
        if inner := {name for types in elements for type_ in types for dim in type_.shape for name in symbols(dim)} - \
                outer_symbols:
            raise MegccError(f"carries a sequence of tensors of {', '.join(sorted(inner))} elements, which "
                             "differ from iteration to iteration; not supported")
    forms = []
    for value, types in zip(initial, elements, strict=True):
        if value.is_sequence and len({str(type_) for type_ in types}) != 1:
            raise MegccError("carries a sequence of tensors that are " + (" and ".join(sorted(
                {str(type_) for type_ in types})) or "not known") + "; those of one type are supported")
        forms.append(Form(element=types[0]) if value.is_sequence else Form())
    return forms


def _types_after_iteration(importer: Importer, node: Node, initial_values: Sequence[str], body_inputs: Sequence[str],
                           import_body: ImportBody, positions: Sequence[int]) -> list[tuple[TensorType, ...]]:
    """Imports one iteration, drops its operators, and returns the types of the carried values after it. Parameters as
    for `carried_forms`.

    Raises:
        MegccError: if the iteration cannot be imported.
    """
    checkpoint = importer.checkpoint()
    inputs = [add_loop_input(importer.builder, name, type_)
              for name, type_ in zip(body_inputs[:2], LOOP_TYPES, strict=True)]
    results = import_body(dict(zip(body_inputs, [*inputs, *initial_values], strict=True)))
    reasons = "; ".join(importer.findings_since(checkpoint))
    types = [] if None in results else [types_of(importer.sequences, node, str(results[1 + position])).types
                                        for position in positions]
    importer.restore(checkpoint)
    if not types:
        raise MegccError(f"carries a sequence that is empty at first, and an iteration does not tell its type: "
                         f"{reasons}")
    return types


def only_appends(body: onnx.GraphProto, body_input: str, result: str) -> bool:
    """Whether a loop body only appends tensors to the sequence `body_input`, which gives `result`. Then the sequence is
    a scan output of the loop."""
    producer = next((proto for proto in body.node if result in proto.output), None)
    if producer is None or producer.op_type != "SequenceInsert" or producer.domain:
        return False
    inserts_at_end = not any(producer.input[2:])  # the default position
    has_no_other_reader = _count_reads(body, body_input) == 1 and _count_reads(body, result) == 1
    return producer.input[0] == body_input and inserts_at_end and has_no_other_reader


def _count_reads(graph: onnx.GraphProto, name: str) -> int:
    """Returns how often a graph and its subgraphs read a value. An output counts as a read."""
    reads = sum(value.name == name for value in graph.output)
    for proto in graph.node:
        reads += list(proto.input).count(name)
        reads += sum(_count_reads(attribute.g, name) for attribute in proto.attribute if attribute.HasField("g"))
    return reads
