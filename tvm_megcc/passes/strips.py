# SPDX-License-Identifier: Apache-2.0
"""Layers by rows: some operators in a row computed strip by strip of the last one's result, for less memory.

Of the values between them only the rows that a strip needs are there at a time. Where windows overlap, rows between
two strips are computed twice. Every element is computed by the same kernel from the same numbers in the same order, so
results have the same bits. This is done last, on a graph with its layouts and order: slices of the operands are views,
and the strips of the result are computed into their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..context import Context
from ..ir.graph import Attrs, Graph, Op, prune, unused
from ..ir.types import TensorType
from ..kernels.base import View
from ..kernels.choice import Choice, choose
from ..kernels.site import Site
from ..kernels.support import refusal
from ..ops.base import operator
from .layout import Placed
from .rows import HEIGHT, Reads, Strip, has_rows, rows_read, strips_of
from .views import concat_offsets, view_offset


@dataclass(frozen=True)
class Region:
    """Operators `first` to `last` of a graph, both included, computed in `count` strips."""

    first: int
    last: int
    count: int


@dataclass(frozen=True)
class Part:
    """An operator of a region in one strip: the rows it gives, and what it reads for them."""

    op: Op
    rows: Strip
    reads: Reads


def is_region(graph: Graph, first: int, last: int, readers: Mapping[str, Sequence[Op]]) -> bool:
    """Whether these operators can be computed by strips: only they read what they give, but for the last one's result.
    """
    ops = graph.ops[first:last + 1]
    inside = {op.outputs[0] for op in ops[:-1]}
    return (all(has_rows(graph, op) for op in ops) and graph.types[ops[-1].outputs[0]].shape[HEIGHT] > 1
            and inside.isdisjoint(graph.outputs) and all(op in ops for name in inside for op in readers.get(name, ())))


def parts_of(graph: Graph, first: int, last: int, strip: Strip) -> list[Part] | None:
    """What of the operators is computed for a strip of the last one's result; None where that is nothing but pads."""
    ops = graph.ops[first:last + 1]
    wanted = {ops[-1].outputs[0]: strip}
    parts: list[Part] = []
    for op in reversed(ops):
        (result,) = op.outputs
        if result not in wanted:
            return None
        reads = rows_read(graph, op, wanted[result])
        if reads is None:
            return None
        for name, rows in zip(op.inputs, reads.operands, strict=True):
            if rows is not None:
                wanted[name] = wanted[name].with_(rows) if name in wanted else rows
            elif any(name in other.outputs for other in ops):
                return None
        parts.append(Part(op, wanted[result], reads))
    # What several operators read is there in the rows that any of them wants.
    return [replace(part, rows=wanted[part.op.outputs[0]]) for part in reversed(parts)]


def macs_of(graph: Graph, op: Op, count: int | None = None) -> int:
    """Multiply-accumulates of an operator, or of so many rows of its result."""
    types = graph.input_types(op)[:len(op.own_inputs)]
    y = graph.types[op.outputs[0]]
    whole = operator(op.kind).macs(op.attrs, types, (y,))
    return whole if count is None else whole * count // y.shape[HEIGHT]


def cut(placed: Placed, regions: Sequence[Region], context: Context) -> Placed | None:
    """The graph with these regions computed by strips; None where an operator has no kernel for that."""
    for region in sorted(regions, key=lambda region: -region.first):
        done = _Cutter(placed, region, context).run()
        if done is None:
            return None
        placed = done
    return replace(placed, graph=prune(placed.graph))


class _Cutter:
    """Writes one region anew."""

    def __init__(self, placed: Placed, region: Region, context: Context):
        self.placed, self.region, self.context, self.graph = placed, region, context, placed.graph
        self.types, self.constants = dict(self.graph.types), dict(self.graph.constants)
        self.choices, self.alike = dict(placed.choices), dict(placed.alike)
        self.ops: list[Op] = []

    def run(self) -> Placed | None:
        first, last = self.region.first, self.region.last
        final = self.graph.ops[last]
        (result,) = final.outputs
        pieces = []
        for number, strip in enumerate(strips_of(self.types[result].shape[HEIGHT], self.region.count)):
            parts = parts_of(self.graph, first, last, strip)
            piece = self._strip(parts, number) if parts else None
            if piece is None:
                return None
            pieces.append(piece)
        whole = Op("concat", Attrs(axis=HEIGHT), tuple(pieces), (result,), origin=final.origin)
        ops = (*self.graph.ops[:first], *self.ops, whole, *self.graph.ops[last + 1:])
        graph = self.graph.with_(ops=ops, types=self.types, constants=self.constants)
        self.choices[result] = Choice(View())
        if concat_offsets(graph, whole) is None:
            return None
        return replace(self.placed, graph=graph, choices=self.choices, alike=self.alike,
                       whole=self.placed.whole | {result})

    def _strip(self, parts: Sequence[Part], number: int) -> str | None:
        """The result of a strip; None where something of it cannot be computed so."""
        there: dict[str, tuple[str, Strip]] = {}
        slices: dict[tuple[str, Strip], str] = {}
        for part in parts:
            (result,) = part.op.outputs
            inputs = []
            for name, rows in zip(part.op.inputs, part.reads.operands, strict=True):
                source, has = there.get(name, (name, None))
                if rows is not None and has != rows:
                    if (name, rows) not in slices:
                        slices[name, rows] = self._slice(source, rows, has.first if has else 0, part.op.origin)
                    source = slices[name, rows]
                    if not source:
                        return None
                inputs.append(source)
            type_ = self.types[result]
            own = self._value(f"{result}:{number}", _rows(type_, part.rows.count))
            op = part.op.with_(attrs=part.reads.attrs, inputs=tuple(inputs), outputs=(own,))
            if not self._choose(part.op, op):
                return None
            self.ops.append(op)
            there[result] = own, part.rows
        return own

    def _choose(self, op: Op, part: Op) -> bool:
        """The kernel of the operator for a part of it; of integers another one where it is none."""
        choice = self.placed.choices[op.outputs[0]]
        if choice.kernel.by_place:
            return False
        types = [self.types[name] if name else None for name in part.inputs]
        known = {i: self.constants[name] for i, name in enumerate(part.inputs) if name in self.constants}
        (y,) = (self.types[name] for name in part.outputs)
        site = Site(part, tuple(types), (y,), self.context, frozenset(known), known)
        if refusal(site, choice.kernel) is not None:
            if op.kind != "conv2d_integer":
                return False
            choice = choose(site)
        self.choices[part.outputs[0]] = Choice(choice.kernel, choice.cost, choice.refused)
        self.alike[part.outputs[0]] = op.outputs[0]
        return True

    def _slice(self, name: str, rows: Strip, begin: int, origin: str) -> str:
        """Rows of a value or constant of which `begin` is the first one that is there; "" where that is no view."""
        type_ = self.types[name]
        axis = type_.rank - 2
        first, end = rows.first - begin, rows.end - begin
        if end - first == type_.shape[axis]:
            return name
        part = self._value(f"{name}:{rows.first}", _rows(type_, end - first))
        if name in self.constants:
            self.constants[part] = np.ascontiguousarray(self.constants[name].take(range(first, end), axis))
            return part
        op = Op("slice", Attrs(axes=(axis,), starts=(first,), ends=(end,), steps=(1,)), (name,), (part,), origin=origin)
        graph = self.graph.with_(types=self.types)
        if view_offset(graph, op) is None:
            return ""
        self.choices[part] = Choice(View())
        self.ops.append(op)
        return part

    def _value(self, name: str, type_: TensorType) -> str:
        name = unused(name, self.types)
        self.types[name] = type_
        return name


def _rows(type_: TensorType, count: int) -> TensorType:
    axis = type_.rank - 2
    return type_.with_shape((*type_.shape[:axis], count, *type_.shape[axis + 1:]))
