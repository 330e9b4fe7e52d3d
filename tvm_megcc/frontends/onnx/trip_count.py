# SPDX-License-Identifier: Apache-2.0
"""Finds the trip count of a Loop whose condition depends on constants only, as exporters write `while i < n`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from .builder import Builder, Node

if TYPE_CHECKING:
    from .importer import Importer, Scope


def known_trip_count(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope,
                  opsets: Mapping[str, int]) -> int | None:
    """Returns the trip count that follows from the condition of a Loop, None if the condition depends on run-time
    values or never becomes false, or if finding the count would take more than a quarter of the nodes that an import
    may expand to.

    The operators that the condition depends on are imported, and thereby folded, once for each iteration, and dropped.
    """
    carried = len(node.inputs) - 2
    part, going_round = _condition(body, carried)
    if part is None or not all(node.is_const(2 + index) for index in going_round) or (node.has(1) and not
                                                                                      node.is_const(1)):
        return None
    builder, mark = importer.builder, importer.builder.mark()
    findings, expanded = len(importer.findings), importer.expanded
    values = [node.inputs[2 + index] for index in going_round]
    names = [body.input[0].name, body.input[1].name, *(body.input[2 + index].name for index in going_round)]
    going, iterations = not node.has(1) or bool(node.const(1).reshape(-1)[0]), 0
    numbered = any(body.input[0].name in proto.input for proto in part.node)  # reads the number of the iteration
    try:
        while going:
            if importer.imported + len(part.node) > importer.most_expanded:
                return None
            importer.expanded = expanded
            start = [node.constant(np.array(iterations, np.int64)), node.constant(np.array(True)), *values]
            condition, *values = importer.inlined(part, scope, opsets, dict(zip(names, start, strict=True)))
            if condition is None or not all(value in builder.constants for value in (condition, *values)):
                return None
            going, iterations = bool(builder.constants[condition].reshape(-1)[0]), iterations + 1
            if going and not numbered and _same_bits(builder, start[2:], values):
                return None  # every further iteration is as this one: only the operand M ends the loop
        return iterations
    finally:
        builder.back_to(mark)
        importer.expanded = expanded
        del importer.findings[findings:]


def _same_bits(builder: Builder, before: Sequence[str], after: Sequence[str]) -> bool:
    """Says whether an iteration left all loop-carried constants as they were."""
    pairs = [(builder.constants[one], builder.constants[two]) for one, two in zip(before, after, strict=True)]
    return all(one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
               for one, two in pairs)


def _condition(body: onnx.GraphProto, carried: int) -> tuple[onnx.GraphProto | None, list[int]]:
    """Returns the part of a body that its condition depends on, and the indices of the loop-carried values in it; None
    if that part has subgraphs."""
    if len(body.input) != carried + 2 or len(body.output) < carried + 1:
        return None, []
    position_of = {value.name: index for index, value in enumerate(body.input[2:])}
    wanted, going_round = {body.output[0].name}, set()
    while True:
        nodes = []
        for proto in reversed(body.node):
            if not wanted.isdisjoint(proto.output):
                nodes.append(proto)
                wanted.update(proto.input)
        newly_read = {position_of[name] for name in wanted & position_of.keys()} - going_round
        if not newly_read:
            break
        going_round |= newly_read
        wanted.update(body.output[1 + index].name for index in newly_read)
    if any(attribute.HasField("g") for proto in nodes for attribute in proto.attribute):
        return None, []
    order = sorted(going_round)
    part = onnx.GraphProto(name=body.name, node=reversed(nodes), output=[
        body.output[0], *(body.output[1 + index] for index in order)])
    part.initializer.extend(tensor for tensor in body.initializer if tensor.name in wanted)
    return part, order
