# SPDX-License-Identifier: Apache-2.0
"""Finds values that can be views of another value's memory, so that no copy is needed.

A view (reshape, contiguous slice) is a part of its operand. A concat whose operands are contiguous in its result needs
no code: its operands are computed in place. `codegen/plan.py` plans memory for the remaining values.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...kernels.choice import choose
from ...kernels.site import Site
from ...ops.base import operator
from ...ops.memory import split_at
from ..edit import Editor
from ..layout.choose import Placed


@dataclass(frozen=True)
class Location:
    """A value's memory: `offset` bytes into the value `root`, which has memory of its own."""

    root: str
    offset: int


@dataclass(frozen=True)
class Forwarding:
    """The views of a graph. locations: value -> its memory, for all but constants. elided: the indices of operators
    that need no code."""

    locations: dict[str, Location]
    elided: frozenset[int]


def view_offset(graph: Graph, op: Op) -> int | None:
    """Returns the byte offset of the operator's result in its operand; None if it is no view, or the offset depends on
    symbols."""
    if op.epilogue is not None or not op.inputs or op.inputs[0] in graph.constants:
        return None
    offset = operator(op.kind).view_offset(op.attrs, graph.input_types(op), graph.output_types(op))
    return offset if isinstance(offset, int) else None


def concat_offsets(graph: Graph, op: Op) -> list[int] | None:
    """Returns the byte offsets of a concat's operands in its result; None if they are not contiguous there."""
    if op.kind != "concat" or op.epilogue is not None:
        return None
    output = graph.types[op.outputs[0]]
    axis = op.attrs.axis % output.rank
    if split_at(output, axis)[0] != 1:
        return None
    offsets, position = [], 0
    for name in op.inputs:
        type_ = graph.types[name]
        if type_.layout != output.layout or type_.dtype != output.dtype:
            return None
        offsets.append(position)
        position += type_.bytes
    fixed = all(isinstance(offset, int) for offset in offsets)
    return offsets if fixed and position == output.bytes else None


class _Groups:
    """Groups of values that share memory. The root of a group is a value that spans all its members.

    locations: value -> its place in its group's root.
    members: root -> the values of its group.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        names = [*graph.inputs, *(name for op in graph.ops for name in op.outputs)]
        self.locations = {name: Location(name, 0) for name in names}
        self.members = {name: [name] for name in names}

    def root(self, name: str) -> str:
        """Returns the root of a value's group."""
        return self.locations[name].root

    def holds(self, root: str, names: tuple[str, ...]) -> bool:
        """Returns whether one of these values is in the group."""
        return any(member in names for member in self.members[root])

    def join(self, child: str, parent: str, offset: int) -> None:
        """Merges the group with the root `child` into the group of the value `parent`, at a byte offset in `parent`."""
        target = self.locations[parent]
        for name in self.members.pop(child):
            self.locations[name] = Location(target.root, target.offset + offset + self.locations[name].offset)
            self.members[target.root].append(name)

    def reroot(self, name: str) -> None:
        """Makes a member of the same size the root of its group."""
        old = self.root(name)
        group = self.members.pop(old)
        self.members[name] = group
        for member in group:
            self.locations[member] = Location(name, self.locations[member].offset)


def forward(graph: Graph, peak: Callable[[Forwarding], int], always: Container[str] = ()) -> Forwarding:
    """Decides which values are views, and which concats are computed in place.

    Args:
        peak: returns the largest number of live bytes with these views. A concat is computed in place only if the
            longer live range of its result does not raise the peak.
        always: results of concats that are computed in place in any case.
    """
    concats = [i for i, op in enumerate(graph.ops) if concat_offsets(graph, op) is not None]
    chosen = set(concats)
    best = _forward(graph, chosen)
    best_peak = peak(best)
    free = [i for i in concats if graph.ops[i].outputs[0] not in always]
    for position in free:
        attempt = _forward(graph, chosen - {position})
        if (value := peak(attempt)) < best_peak:
            chosen.discard(position)
            best, best_peak = attempt, value
    # A concat that raised the peak only together with one that was excluded later is computed in place again.
    for position in [i for i in free if i not in chosen]:
        attempt = _forward(graph, chosen | {position})
        if peak(attempt) <= best_peak:
            chosen.add(position)
            best = attempt
    return best


def _forward(graph: Graph, concats: set[int]) -> Forwarding:
    """Returns all views, with these concats computed in place. concats: indices of operators."""
    groups = _Groups(graph)
    elided = set()
    for position, op in enumerate(graph.ops):
        offset = view_offset(graph, op)
        if offset is not None and _join_view(graph, groups, op, offset):
            elided.add(position)
    for position in sorted(concats):
        if _join_concat(graph, groups, graph.ops[position]):
            elided.add(position)
    return Forwarding(groups.locations, frozenset(elided))


def _join_view(graph: Graph, groups: _Groups, op: Op, offset: int) -> bool:
    """Makes the result of an operator a view of its operand. Returns whether that is possible."""
    source, result = op.inputs[0], op.outputs[0]
    root = groups.root(source)
    if result in graph.outputs:
        # An output needs memory of its own, so it becomes the root; it can if it is as large as the whole group.
        spans = groups.locations[source].offset + offset == 0 and graph.types[result].bytes == graph.types[root].bytes
        if not spans or groups.holds(root, graph.inputs) or groups.holds(root, graph.outputs):
            return False
        groups.join(result, source, offset)
        groups.reroot(result)
        return True
    groups.join(result, source, offset)
    return True


def _join_concat(graph: Graph, groups: _Groups, op: Op) -> bool:
    """Makes the operands of a concat parts of its result. Returns whether that is possible."""
    result = op.outputs[0]
    roots = []
    for name in op.inputs:
        if name in graph.constants or name not in groups.locations:
            return False
        root, location = groups.root(name), groups.locations[name]
        spans = location.offset == 0 and graph.types[root].bytes == graph.types[name].bytes
        if not spans or root in roots or root == groups.root(result) \
                or groups.holds(root, graph.inputs) or groups.holds(root, graph.outputs):
            return False
        roots.append(root)
    for root, offset in zip(roots, concat_offsets(graph, op), strict=True):
        groups.join(root, result, offset)
    return True


def with_copies(placed: Placed, context: Context) -> Placed:
    """Returns the graph with a `copy` for each output that would be a view of an input, of another output, or of a
    constant."""
    graph, choices, edit = placed.graph, dict(placed.choices), Editor(placed.graph)
    elided = _forward(graph, set()).elided
    for position, op in enumerate(graph.ops):
        if view_offset(graph, op) is None or position in elided:  # a view that is not elided is such an output
            continue
        (result,) = op.outputs
        type_ = graph.types[result]
        inner = edit.value(f"{result}:view", type_)
        copy = Op("copy", Attrs(), (inner,), op.outputs, origin=op.origin)
        edit.replace(op, op.with_(outputs=(inner,)), copy)
        choices[inner] = choices[result]
        choices[result] = choose(Site(copy, (type_,), (type_,), context))
    return replace(placed, graph=edit.finish(), choices=choices)
