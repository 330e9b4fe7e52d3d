# SPDX-License-Identifier: Apache-2.0
"""Computes consecutive operators strip by strip, in rows of the last result, to save memory.

Intermediate values have only the rows that one strip needs. If windows overlap, neighbouring strips need some of the
same rows (halo): these are computed twice, or copied to a buffer for the next strip. Every element is computed by the
same kernel from the same numbers in the same order, so results have the same bits. This is the last pass, on a graph
with layouts and order: slices of operands are views, and strips of the result are computed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...context import Context
from ...ir.dims import number
from ...ir.graph import Attrs, Graph, Op, prune, unused
from ...ir.types import TensorType
from ...kernels.base import View
from ...kernels.choice import Choice, choose, options
from ...kernels.site import Site
from ...kernels.support import refusal
from ...ops.base import operator
from ..layout.choose import Placed
from .rows import HEIGHT, Reads, Strip, has_rows, rows_read, strips_of
from .views import concat_offsets, view_offset


@dataclass(frozen=True)
class Region:
    """Operators `first` to `last` of a graph, both included, computed in `count` strips.

    reuses_rows: rows that two strips need are copied to a buffer for the next strip, not computed twice.
    """

    first: int
    last: int
    count: int
    reuses_rows: bool = False


@dataclass(frozen=True)
class Part:
    """An operator of a region in one strip.

    rows: the rows of its result that the strip needs.
    new: the rows that are computed: the last of `rows`, possibly none. The others are kept from the previous strip.
    reads: the rows of operands from which the new rows are computed; None if there are no new rows.
    """

    op: Op
    rows: Strip
    new: Strip
    reads: Reads | None

    @property
    def retained(self) -> Strip:
        """The rows that the previous strip has computed."""
        return Strip(self.rows.first, self.new.first)


def is_region(graph: Graph, first: int, last: int, readers: Mapping[str, Sequence[Op]]) -> bool:
    """Returns whether operators `first` to `last` can be computed by strips: they work on rows, and no other operator
    reads their results, except the result of `last`."""
    ops = graph.ops[first:last + 1]
    inner_values = {op.outputs[0] for op in ops[:-1]}
    return (all(has_rows(graph, op) for op in ops) and number(graph.types[ops[-1].outputs[0]].shape[HEIGHT]) > 1
            and inner_values.isdisjoint(graph.outputs)
            and all(op in ops for name in inner_values for op in readers.get(name, ())))


def parts_of(graph: Graph, region: Region) -> list[list[Part]] | None:
    """Returns the parts of operators that each strip computes. Returns None if a strip would read only padding, or
    would have to keep rows that it does not need itself."""
    height = graph.types[graph.ops[region.last].outputs[0]].shape[HEIGHT]
    strips: list[list[Part]] = []
    for strip in strips_of(height, region.count):
        previous_rows = {part.op.outputs[0]: part.rows for part in strips[-1]} if strips and region.reuses_rows else {}
        parts = _parts_of_strip(graph, graph.ops[region.first:region.last + 1], strip, previous_rows,
                                strip.end == height)
        if parts is None:
            return None
        strips.append(parts)
    return strips


def _parts_of_strip(graph: Graph, ops: Sequence[Op], strip: Strip, previous_rows: Mapping[str, Strip],
                    final: bool) -> list[Part] | None:
    """Returns the parts of one strip; None as `parts_of`.

    Args:
        strip: the rows of the last operator's result.
        previous_rows: value -> its rows in the previous strip, which can be kept.
        final: this is the last strip.
    """
    inner_values = {op.outputs[0] for op in ops}
    needed = {ops[-1].outputs[0]: strip}
    parts: list[Part] = []
    for op in reversed(ops):
        # The rows of a value are the union of those that its readers need.
        (result,) = op.outputs
        if result not in needed:
            # The previous strip has all rows that its readers need. No strip after the last one needs rows of it.
            if previous_rows and final:
                continue
            return None
        rows = needed[result]
        kept = previous_rows.get(result, Strip(rows.first, rows.first))
        if kept.first > rows.first:  # the first rows are of an earlier strip, and the previous one did not keep them
            return None
        first_new = min(max(kept.end, rows.first), rows.end)
        new = Strip(first_new, rows.end)
        reads = rows_read(graph, op, new) if new.count else None
        if reads is None and new.count:
            return None
        for name, read in zip(op.inputs, reads.operands, strict=True) if reads else ():
            if read is not None:
                needed[name] = needed[name].with_(read) if name in needed else read
            elif name in inner_values:
                return None
        parts.append(Part(op, rows, new, reads))
    return parts[::-1]


def macs_of(graph: Graph, op: Op, count: int | None = None) -> int:
    """Returns the multiply-accumulates of an operator, or of `count` rows of its result."""
    types = graph.input_types(op)[:len(op.own_inputs)]
    y = graph.types[op.outputs[0]]
    total = operator(op.kind).macs(op.attrs, types, (y,))
    return total if count is None else total * count // y.shape[HEIGHT]


def cut(placed: Placed, regions: Sequence[Region], context: Context) -> Placed | None:
    """Returns the graph with these regions computed by strips; None if an operator has no kernel for a part."""
    for region in sorted(regions, key=lambda region: -region.first):
        rewritten = _Cutter(placed, region, context).run()
        if rewritten is None:
            return None
        placed = rewritten
    return replace(placed, graph=prune(placed.graph))


class _Cutter:
    """Rewrites a region of a graph into strips.

    ops: the operators that replace those of the region.
    choices, part_of, whole: as in `Placed`.
    buffers: value -> the buffer with its rows for the next strip.
    """

    def __init__(self, placed: Placed, region: Region, context: Context):
        self.placed, self.region, self.context, self.graph = placed, region, context, placed.graph
        self.types, self.constants = dict(self.graph.types), dict(self.graph.constants)
        self.choices, self.part_of, self.whole = dict(placed.choices), dict(placed.part_of), set(placed.whole)
        self.ops: list[Op] = []
        self.buffers: dict[str, str] = {}

    def run(self) -> Placed | None:
        """Returns the graph with the region in strips; None if that is impossible."""
        final = self.graph.ops[self.region.last]
        (result,) = final.outputs
        strips = parts_of(self.graph, self.region)
        if strips is None:
            return None
        pieces = []
        for index, parts in enumerate(strips):
            following = {part.op.outputs[0]: part.retained for strip in strips[index + 1:index + 2] for part in strip}
            piece = self._strip(parts, following, index)
            if not piece:
                return None
            pieces.append(piece)
        if not self._concat(tuple(pieces), result, final.origin):
            return None
        ops = (*self.graph.ops[:self.region.first], *self.ops, *self.graph.ops[self.region.last + 1:])
        graph = self.graph.with_(ops=ops, types=self.types, constants=self.constants)
        return replace(self.placed, graph=graph, choices=self.choices, part_of=self.part_of,
                       whole=frozenset(self.whole))

    def _strip(self, parts: Sequence[Part], following: Mapping[str, Strip], index: int) -> str:
        """Adds the operators of a strip. Returns its result; "" if a part cannot be computed by rows.

        Args:
            following: value -> the rows that the next strip keeps from this one.
            index: that of the strip.
        """
        computed: dict[str, tuple[str, Strip]] = {}
        slices: dict[tuple[str, Strip], str] = {}
        target = ""
        for part in parts:
            (result,) = part.op.outputs
            target = self.buffers.get(result, "")
            if part.new.count:
                target = self._new(part, computed, slices, index)
                if target and part.retained.count:
                    target = self._appended(self.buffers[result], target, part)
            if not target:
                return ""
            computed[result] = target, part.rows
            rows = following.get(result, Strip(0, 0))
            if rows.count:
                source = self._slice(target, rows, part.rows.first, part.op.origin)
                if not source:
                    return ""
                self.buffers[result] = self._copy(source, f"{result}:{rows.first}:kept", part.op)
        return target

    def _new(self, part: Part, computed: Mapping[str, tuple[str, Strip]], slices: dict[tuple[str, Strip], str],
             index: int) -> str:
        """Adds the operator that computes the new rows, and returns them; "" if that is impossible. index: that of
        the strip."""
        inputs = []
        assert part.reads is not None
        for name, rows in zip(part.op.inputs, part.reads.operands, strict=True):
            source, present = computed.get(name, (name, None))
            if rows is not None and present != rows:
                if (name, rows) not in slices:
                    slices[name, rows] = self._slice(source, rows, present.first if present else 0, part.op.origin)
                source = slices[name, rows]
                if not source:
                    return ""
            inputs.append(source)
        (result,) = part.op.outputs
        new_rows = self._value(f"{result}:{index}", _rows(self.types[result], part.new.count))
        op = part.op.with_(attrs=part.reads.attrs, inputs=tuple(inputs), outputs=(new_rows,))
        if not self._choose(part.op, op):
            return ""
        self.ops.append(op)
        return new_rows

    def _appended(self, buffer: str, new: str, part: Part) -> str:
        """Adds a concat of the kept rows in `buffer` and the new ones. Returns its result; "" if it is not in place."""
        (result,) = part.op.outputs
        begin = self._copy(buffer, f"{result}:{part.rows.first}:begin", part.op)
        both = self._value(f"{result}:{part.rows.first}:both", _rows(self.types[result], part.rows.count))
        return both if self._concat((begin, new), both, part.op.origin) else ""

    def _concat(self, pieces: tuple[str, ...], result: str, origin: str) -> bool:
        """Adds a concat whose operands are computed in place. Returns whether they can be."""
        op = Op("concat", Attrs(axis=HEIGHT), pieces, (result,), origin=origin)
        self.ops.append(op)
        self.choices[result] = Choice(View())
        self.whole.add(result)
        return concat_offsets(self.graph.with_(types=self.types), op) is not None

    def _copy(self, name: str, to: str, op: Op) -> str:
        """Adds a copy of a value, named `to`, and returns it. op: the operator that computes the value."""
        type_ = self.types[name]
        copied = self._value(to, type_)
        copy = Op("copy", Attrs(), (name,), (copied,), origin=op.origin)
        self.choices[copied] = choose(Site(copy, (type_,), (type_,), self.context))
        self.part_of[copied] = f"{op.outputs[0]}:copy"
        self.ops.append(copy)
        return copied

    def _choose(self, op: Op, part: Op) -> bool:
        """Chooses the kernel of an operator's part: the operator's or, if that one refuses an integer convolution,
        another one, which computes the same bits, because integer sums are exact. Returns whether there is one."""
        choice = self.placed.choices[op.outputs[0]]
        if choice.kernel.position_dependent:
            return False
        types = [self.types[name] if name else None for name in part.inputs]
        constants = {i: self.constants[name] for i, name in enumerate(part.inputs) if name in self.constants}
        (y,) = (self.types[name] for name in part.outputs)
        site = Site(part, tuple(types), (y,), self.context, frozenset(constants), constants)
        if refusal(site, choice.kernel) is not None:
            # here=True: only kernels for the layouts that the operands have already.
            others, refused = options(site, here=True) if op.kind == "conv2d_integer" else ([], {})
            if not others:
                return False
            choice = min(others, key=lambda option: option.cost).to_choice(others, refused)
        self.choices[part.outputs[0]] = Choice(choice.kernel, choice.cost, choice.refused)
        self.part_of[part.outputs[0]] = op.outputs[0]
        return True

    def _slice(self, name: str, rows: Strip, begin: int, origin: str) -> str:
        """Returns some rows of a value or constant; "" if they are not a view. begin: the first row of the value."""
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
        """Adds a value and returns its name: the given one or, if that is in use, a similar one."""
        name = unused(name, self.types)
        self.types[name] = type_
        return name


def _rows(type_: TensorType, count: int) -> TensorType:
    """Returns the type with `count` rows."""
    axis = type_.rank - 2
    return type_.with_shape((*type_.shape[:axis], count, *type_.shape[axis + 1:]))
