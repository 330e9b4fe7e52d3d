# SPDX-License-Identifier: Apache-2.0
"""Finds the trip count of a Loop whose condition depends on constants only, as exporters write `while i < n`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from .builder import Builder, Node

if TYPE_CHECKING:
    from .nodes import Importer, Scope


def known_trip_count(importer: Importer, node: Node, body: onnx.GraphProto, scope: Scope,
                  opsets: Mapping[str, int]) -> int | None:
    """Returns the trip count that follows from the condition of a Loop. Returns None if the condition depends on
    run-time values or never becomes false, or if finding the count would import more nodes than the node budget
    (`Importer.node_budget`).

    The operators that the condition depends on are imported, and thereby folded, once for each iteration. They are
    dropped afterwards.
    """
    carried = len(node.inputs) - 2
    condition_graph, carried_indices = _condition(body, carried)
    if condition_graph is None or not all(node.is_const(2 + index) for index in carried_indices):
        return None
    if node.has(1) and not node.is_const(1):
        return None
    builder, checkpoint = importer.builder, importer.checkpoint()
    values = [node.inputs[2 + index] for index in carried_indices]
    names = [body.input[0].name, body.input[1].name, *(body.input[2 + index].name for index in carried_indices)]
    holds, iterations = not node.has(1) or bool(node.const(1).reshape(-1)[0]), 0
    reads_number = any(body.input[0].name in proto.input for proto in condition_graph.node)
    try:
        while holds:
            if importer.imported_nodes + len(condition_graph.node) > importer.node_budget:
                return None
            # Nodes of earlier iterations do not count as expanded, since all are dropped in the end.
            importer.expanded_nodes = checkpoint.expanded_nodes
            start = [node.constant(np.array(iterations, np.int64)), node.constant(np.array(True)), *values]
            condition, *values = importer.inline(condition_graph, scope, opsets, dict(zip(names, start, strict=True)))
            if condition is None or not all(value in builder.constants for value in (condition, *values)):
                return None
            holds, iterations = bool(builder.constants[condition].reshape(-1)[0]), iterations + 1
            if holds and not reads_number and _are_identical(builder, start[2:], values):
                return None  # every further iteration is the same: only the operand M ends the loop
        return iterations
    finally:
        importer.restore(checkpoint)


def _are_identical(builder: Builder, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether an iteration left all loop-carried constants as they were, bit for bit."""
    pairs = [(builder.constants[old], builder.constants[new]) for old, new in zip(before, after, strict=True)]
    return all(old.dtype == new.dtype and old.shape == new.shape and old.tobytes() == new.tobytes()
               for old, new in pairs)


def _condition(body: onnx.GraphProto, carried: int) -> tuple[onnx.GraphProto | None, list[int]]:
    """Returns the part of a loop body that its condition depends on, and the indices of the loop-carried values that it
    reads; None for the part if it has subgraphs.

    carried: the number of loop-carried values. The part's inputs are those of the body; its outputs are the condition
    and the carried values it reads, in the order of the indices.
    """
    if len(body.input) != carried + 2 or len(body.output) < carried + 1:
        return None, []
    position_of = {value.name: index for index, value in enumerate(body.input[2:])}
    wanted, carried_indices = {body.output[0].name}, set()
    while True:
        nodes = []
        for proto in reversed(body.node):
            if not wanted.isdisjoint(proto.output):
                nodes.append(proto)
                wanted.update(proto.input)
        newly_read = {position_of[name] for name in wanted & position_of.keys()} - carried_indices
        if not newly_read:
            break
        carried_indices |= newly_read
        wanted.update(body.output[1 + index].name for index in newly_read)
    if any(attribute.HasField("g") for proto in nodes for attribute in proto.attribute):
        return None, []
    order = sorted(carried_indices)
    condition_graph = onnx.GraphProto(name=body.name, node=reversed(nodes), output=[
        body.output[0], *(body.output[1 + index] for index in order)])
    condition_graph.initializer.extend(tensor for tensor in body.initializer if tensor.name in wanted)
    return condition_graph, order
