# SPDX-License-Identifier: Apache-2.0
"""Chooses the layouts of all values and the kernels of all operators by cost.

Every operator has options: a candidate kernel with the layouts that it reads and writes. The cost of a choice is the
sum of the kernels' costs and of the costs of relayouts where producer and consumer have other layouts. A first choice
in order of execution is improved operator by operator until nothing changes (iterated conditional modes). Graphs have
few edges, so the first choice is nearly always the last.

During a relayout, a tensor is in memory twice. If that makes the peak of memory much higher, the choice is repeated
without the relayouts that cause it. The result is kept if it costs little time for the memory that it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import partial

from ...context import Context
from ...errors import ModelError
from ...ir.graph import Attrs, Graph, Op
from ...ir.shapes import likely_type
from ...ir.types import PLAIN, Layout, TensorType
from ...kernels.base import CALL
from ...kernels.choice import Choice, Option, choose, measured_relayout_cost, options, reasons
from ...kernels.site import Site
from ..edit import Editor
from ..schedule import live_bytes, peak_bytes

#: The largest number of passes over all operators.
_SWEEPS = 8
#: The memory that the fastest layouts may take: this factor of the memory without relayouts, or these additional bytes.
_MEMORY, _MEMORY_BYTES = 1.125, 256 << 10
#: To be accepted, the relative saving of memory must be at least this many times the relative increase of time.
_SLOWER = 2
#: The largest number of choices that are tried in order to save memory.
_ATTEMPTS = 8
#: The cost of an unwanted relayout: more than any kernel's.
_UNWANTED = 1e15


@dataclass(frozen=True)
class Placed:
    """A graph with layouts and kernels. Operators are identified by their first results.

    choices: operator -> its kernel.
    part_of: operator that computes a part of another one's result (a strip of rows) -> that one; parts that differ only
        in extents share a kernel.
    whole: results of concats whose operands are computed in place.
    """

    graph: Graph
    choices: Mapping[str, Choice]
    part_of: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()


def choose_layouts(graph: Graph, context: Context) -> Placed:
    """Chooses the layout of every value and the kernel of every operator, and inserts `relayout` where an operator
    reads a value in another layout.

    Raises:
        ModelError: for operators that no kernel accepts; the message has the reason of each candidate.
    """
    options_of_ops = [options(Site.of(graph, op, context)) for op in graph.ops]
    problems = [f"{op.kind} '{op.origin}': " + ("; ".join(f"{name}: {why}" for name, why in reasons(refused).items())
                                                or "it has no kernels")
                for op, (accepted, refused) in zip(graph.ops, options_of_ops, strict=True) if not accepted]
    if problems:
        raise ModelError(graph.name, problems, "No kernel realises these operators on this target.")
    peak = peak_bytes(graph)
    limit = max(_MEMORY * peak, peak + _MEMORY_BYTES)
    unwanted: set[str] = set()
    best, fastest, least_bytes = None, (0.0, 0), 0  # fastest: its cost and bytes
    for _ in range(_ATTEMPTS):
        chosen = _Chooser(graph, [accepted for accepted, _ in options_of_ops], context, unwanted).run()
        result, owners = _apply(graph, chosen)
        live = live_bytes(result)
        cost, peak_of_choice = _total_cost(result, chosen, context), max(live, default=0)
        if best is None:
            best, fastest, least_bytes = (result, owners, chosen), (cost, peak_of_choice), peak_of_choice
        elif peak_of_choice < least_bytes and _SLOWER * (cost / fastest[0] - 1) <= 1 - peak_of_choice / fastest[1]:
            best, least_bytes = (result, owners, chosen), peak_of_choice
        over_limit = {op.inputs[0] for op, during in zip(result.ops, live, strict=True)
                      if op.kind == "relayout" and during > limit}
        if over_limit <= unwanted:
            break
        unwanted |= over_limit
    placed, owners, chosen = best
    choices = {name: chosen[owner].to_choice(*options_of_ops[owner]) for name, owner in owners.items()}
    choices.update((op.outputs[0], choose(Site.of(placed, op, context)))
                   for op in placed.ops if op.kind == "relayout")
    return Placed(placed, choices)


def relayout_cost(type_: TensorType, source: Layout, target: Layout, context: Context) -> float:
    """Returns the cost of a relayout in cycles: the measured one, or an estimate with measured factors."""
    if source == target:
        return 0.0
    type_ = likely_type(type_, least=1)
    moved = type_.with_layout(source).stored + type_.with_layout(target).stored  # elements read and written
    if "nchwc" in (source.kind, target.kind) and type_.dtype == "float32":
        # Loads and stores that interleave copy whole vectors between plain and blocks; others take three times as long.
        interleaved = context.isa.interleaves and PLAIN in (source, target) and type_.shape[1] % context.isa.lanes == 0
        cycles_per_vector = 1.0 if interleaved else 3.0
        copy = cycles_per_vector * moved / max(context.isa.lanes, 1)
    else:
        # Elements are copied one by one. For float16 that takes longer than converting to a type with vectors.
        copy = (2.0 if type_.dtype == "float16" else 0.5) * moved
    return measured_relayout_cost(type_, source, target, context, CALL + copy)


def _total_cost(graph: Graph, chosen: list[Option], context: Context) -> float:
    """Returns the cost of the chosen kernels and of the relayouts between them."""
    moved = ((graph.types[op.inputs[0]], graph.types[op.outputs[0]]) for op in graph.ops if op.kind == "relayout")
    return (sum(option.cost for option in chosen)
            + sum(relayout_cost(source, source.layout, target.layout, context) for source, target in moved))


class _Chooser:
    """Chooses an option for each operator.

    options: the options of each operator.
    unwanted: values that must not be in memory in two layouts.
    chosen: the option of each operator; None before it is chosen.
    """

    def __init__(self, graph: Graph, options: list[list[Option]], context: Context, unwanted: Container[str] = ()):
        self.graph, self.options, self.context, self.unwanted = graph, options, context, unwanted
        self.position = {name: i for i, op in enumerate(graph.ops) for name in op.outputs}
        self.readers: dict[str, list[tuple[int, int]]] = {}
        for i, op in enumerate(graph.ops):
            for slot, name in enumerate(op.inputs):
                if name in self.position:
                    self.readers.setdefault(name, []).append((i, slot))
        self.chosen: list[Option | None] = [None] * len(graph.ops)

    def run(self) -> list[Option]:
        """Returns the chosen option of each operator, in the graph's order."""
        for _ in range(_SWEEPS):
            changed = False
            for i, offered in enumerate(self.options):
                best = min(offered, key=lambda option, i=i: self._cost_at(i, option))
                changed |= best is not self.chosen[i]
                self.chosen[i] = best
            if not changed:
                break
        return self.chosen

    def _cost_at(self, i: int, option: Option) -> float:
        """Returns the cost of an option of operator i, with the relayouts to and from the operators around it."""
        op, total = self.graph.ops[i], option.cost
        # A dictionary, because one relayout serves all operands that are the same value.
        for name, layout in dict(zip(op.inputs, option.inputs, strict=True)).items():
            if name and name not in self.graph.constants:
                total += self._cost_of_relayout(name, self._layout_of(name), layout)
        for name, layout in zip(op.outputs, option.outputs, strict=True):
            read_layouts = {PLAIN} if name in self.graph.outputs else set()
            for reader, slot in self.readers.get(name, ()):
                if self.chosen[reader] is not None:
                    read_layouts.add(self.chosen[reader].inputs[slot])
            total += sum(self._cost_of_relayout(name, layout, read) for read in sorted(read_layouts, key=str))
        return total

    def _cost_of_relayout(self, name: str, source: Layout, target: Layout) -> float:
        """Returns the cost of a relayout of a value; 0 if both layouts are equal."""
        cost = relayout_cost(self.graph.types[name], source, target, self.context)
        return cost + _UNWANTED if cost and name in self.unwanted else cost

    def _layout_of(self, name: str) -> Layout:
        """Returns the layout in which the chosen option computes a value; plain if none is chosen yet."""
        if name not in self.position:
            return PLAIN
        i = self.position[name]
        option = self.chosen[i]
        return option.outputs[self.graph.ops[i].outputs.index(name)] if option is not None else PLAIN


def _apply(graph: Graph, chosen: list[Option]) -> tuple[Graph, dict[str, int]]:
    """Returns the graph in the chosen layouts, with relayouts. Also returns, for all operators except relayouts, first
    result -> index in the original graph."""
    edit = Editor(graph)
    inner: dict[str, str] = {}  # output of the graph -> the value that its operator computes in another layout
    copies: dict[tuple[str, Layout], str] = {}
    for op, option in zip(graph.ops, chosen, strict=True):
        edit.types.update((name, graph.types[name].with_layout(layout))
                          for name, layout in zip(op.outputs, option.outputs, strict=True))
    for name in graph.outputs:
        if edit.types[name].layout != PLAIN:
            # The output itself is plain: it becomes the result of a relayout.
            inner[name] = edit.value(f"{name}:{edit.types[name].layout}", edit.types[name])
            edit.types[name] = edit.types[name].with_layout(PLAIN)

    def as_layout(name: str, layout: Layout, origin: str, add: Callable[[Op], None]) -> str:
        """Returns a value in a layout; `add` adds the relayout if there is none yet."""
        source = inner.get(name, name)
        type_ = edit.types[source]
        if type_.layout == layout:
            return source
        if (name, layout) not in copies:
            if name in graph.constants:
                copy = edit.constant(f"{name}:{layout}", graph.constants[name], type_.with_layout(layout))
            else:
                is_output = name in inner and layout == PLAIN
                copy = name if is_output else edit.value(f"{name}:{layout}", type_.with_layout(layout))
                add(Op("relayout", Attrs(), (source,), (copy,), origin=origin))
            copies[name, layout] = copy
        return copies[name, layout]

    owners: dict[str, int] = {}
    for owner, (op, option) in enumerate(zip(graph.ops, chosen, strict=True)):
        add = partial(edit.add_before, op)
        inputs = tuple(as_layout(name, layout, op.origin, add) if name else name
                       for name, layout in zip(op.inputs, option.inputs, strict=True))
        outputs = tuple(inner.get(name, name) for name in op.outputs)
        edit.replace(op, op.with_(inputs=inputs, outputs=outputs))
        owners[outputs[0]] = owner
    for name in graph.outputs:
        as_layout(name, PLAIN, name, edit.append)
    return edit.finish(), owners
