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
from .loops import loop_input
from .sequences import Sequences
from .stacked import stack_of

if TYPE_CHECKING:
    from .importer import Importer


@dataclass(frozen=True)
class Form:
    """The representation of a value as tensors.

    parts: the number of tensors of a sequence that is passed as separate tensors; otherwise None.
    element: the type of the elements of a sequence that is passed as a stack; None for a value that is a tensor itself.
    """

    parts: int | None = None
    element: TensorType | None = None


@dataclass(frozen=True)
class Found:
    """The types of an imported value. types: the type of a tensor, or the types of a sequence's elements. stack: the
    type of a stack, None for others."""

    types: tuple[TensorType, ...]
    is_sequence: bool = False
    stack: TensorType | None = None


def found(sequences: Sequences, node: Node, value: str) -> Found:
    """Returns the types of a value.

    Raises:
        MegccError: for an optional without a value.
    """
    if value in sequences.absent:
        raise MegccError("gives, or carries, an optional without a value, which is not supported")
    if value in sequences.stacked:
        stack = node.type_of(sequences.stacked[value])
        return Found((stack.with_shape(stack.shape[1:]),), True, stack)
    parts = sequences.elements.get(value)
    return Found((node.type_of(value),)) if parts is None else Found(tuple(map(node.type_of, parts)), True)


def form_of(alternatives: Sequence[Found]) -> Form:
    """Returns a form that can hold each of the alternatives.

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
        raise MegccError(f"gives sequences whose length a run finds, of tensors that are {' and '.join(sorted(types))}"
                         "; those of one type are supported")
    return Form(element=next(iter(types.values())))


def types_in(value: Found, form: Form) -> tuple[TensorType, ...]:
    """Returns the types of the tensors that represent a value."""
    if form.element is None:
        return value.types
    return (value.stack or form.element.with_shape((len(value.types), *form.element.shape)),)


def flattened(sequences: Sequences, node: Node, value: str, form: Form) -> list[str]:
    """Returns the tensors that represent a value."""
    if (form != Form()) != (value in sequences):
        raise MegccError("gives a sequence in one case and a tensor in another")
    if form.element is None:
        return [value] if form.parts is None else list(sequences.elements[value])
    if value not in sequences.stacked:
        return [stack_of(node, sequences.elements[value], form.element)]
    stack = node.type_of(sequences.stacked[value])
    if stack.with_shape(stack.shape[1:]) != form.element:
        raise MegccError(f"is a sequence whose length a run finds, of tensors that are {form.element} and "
                         f"{stack.with_shape(stack.shape[1:])}; those of one type are supported")
    return [sequences.stacked[value]]


def restored(sequences: Sequences, tensors: Sequence[str], form: Form) -> str:
    """Returns the value that tensors represent."""
    if form.element is not None:
        return sequences.of_stack(tensors[0])
    return tensors[0] if form.parts is None else sequences.of(tensors)


def carried_forms(importer: Importer, node: Node, starts: Sequence[str], given: Sequence[str],
                  iteration: Callable[[dict[str, str]], list[str | None]], positions: Sequence[int]) -> list[Form]:
    """Returns the forms of the loop-carried values. Sequences are stacked. The element type of a sequence that is empty
    at first is found by importing one iteration.

    given: the names in the body of the iteration number, of the condition and of the carried values. positions: the
    positions of the carried values among the results of `iteration`, not counting the condition.

    Raises:
        MegccError: if the element type is not found, or a sequence has elements of several types.
    """
    sequences, builder = importer.sequences, importer.builder
    first = [found(sequences, node, value) for value in starts]
    elements = [start.types for start in first]
    if any(start.is_sequence and not start.types for start in first):
        mark, findings, expanded = builder.mark(), len(importer.findings), importer.expanded
        inputs = [loop_input(builder, name, TensorType(dtype, ())) for name, dtype in zip(given, ("int64", "bool"),
                                                                                       strict=False)]
        results = iteration(dict(zip(given, [*inputs, *starts], strict=True)))
        why = "; ".join(importer.findings[findings:])
        found_types = [] if None in results else [found(sequences, node, str(results[1 + position])).types
                                                  for position in positions]
        outside = mark.taken
        builder.back_to(mark)
        importer.expanded = expanded
        del importer.findings[findings:]
        if not found_types:
            raise MegccError(f"carries a sequence that is empty at first, and an iteration does not tell its type: "
                             f"{why}")
        elements = [start.types or types for start, types in zip(first, found_types, strict=True)]
        if inner := {name for types in elements for type_ in types for dim in type_.shape for name in symbols(dim)} - \
                outside:
            raise MegccError(f"carries a sequence of tensors of {', '.join(sorted(inner))} elements, which "
                             "differ from iteration to iteration; not supported")
    forms = []
    for start, types in zip(first, elements, strict=True):
        if start.is_sequence and len({str(type_) for type_ in types}) != 1:
            raise MegccError("carries a sequence of tensors that are " + (" and ".join(sorted(
                {str(type_) for type_ in types})) or "not known") + "; those of one type are supported")
        forms.append(Form(element=types[0]) if start.is_sequence else Form())
    return forms


def is_appended(body: onnx.GraphProto, given: str, result: str) -> bool:
    """Whether a loop body only appends tensors to a sequence. Then the sequence is a scan output of the loop."""
    producer = next((proto for proto in body.node if result in proto.output), None)
    return producer is not None and producer.op_type == "SequenceInsert" and not producer.domain \
        and producer.input[0] == given and not any(producer.input[2:]) and _reads(body, given) == 1 \
        and _reads(body, result) == 1


def _reads(graph: onnx.GraphProto, name: str) -> int:
    """Returns how often a graph and its subgraphs read a value. An output counts as a read."""
    as_output = sum(value.name == name for value in graph.output)
    return as_output + sum(list(proto.input).count(name) + sum(_reads(attribute.g, name)
                                                               for attribute in proto.attribute
                                                               if attribute.HasField("g")) for proto in graph.node)
