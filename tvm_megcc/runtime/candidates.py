# SPDX-License-Identifier: Apache-2.0
"""What there is to measure in a model: its distinct calls, and for each every kernel, tile and layout it could have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ..codegen.select import Choice, bind
from ..codegen.tuning_log import RELAYOUT, call_text, layouts_text
from ..ir.graph import Graph, Op, network_bytes
from ..ir.types import PLAIN, Layout, TensorType
from ..ops.base import Kernel, View
from ..ops.support import candidates, placements, refusal
from ..passes import PIPELINE
from ..target import Target
from .timing import Measurement


@dataclass(frozen=True)
class Candidate:
    """A kernel for a call, with the types of its operands and results in the layouts that it works on."""

    kernel: Kernel
    choice: Choice
    types: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]
    cost: float

    @property
    def layouts(self) -> str:
        return layouts_text(self.types, self.results)


@dataclass
class Call:
    """A call of a model. op: the first operator that makes it, `graph`'s values are its operands and results."""

    text: str
    op: Op
    graph: Graph
    candidates: list[Candidate] = field(default_factory=list)

    def measurement(self, candidate: Candidate, values: Mapping[str, np.ndarray], network_bytes: int) -> Measurement:
        """values: computed operands and results, by name. network_bytes: of the network's weights."""
        known = {**self.graph.constants, **values}
        operands = [known[name] if name else None for name in self.op.inputs]
        expected = operands if self.op.kind == "relayout" else [known[name] for name in self.op.outputs]
        constant = {index for index, name in enumerate(self.op.inputs) if name in self.graph.constants}
        return Measurement(candidate.choice, operands, candidate.types, candidate.results, expected, constant,
                           network_bytes)


def before_layouts(graph: Graph, target: Target) -> Graph:
    """The graph as the choice of layouts finds it."""
    for name, run, _reason in PIPELINE:
        if name == "choose_layouts":
            break
        graph = run(graph, target)
    return graph


def calls_of(graph: Graph, target: Target, optimize: str) -> list[Call]:
    """The distinct calls of a graph that `before_layouts` gave, with their candidates; those with a choice only."""
    target = target.within(network_bytes(graph))
    calls: dict[str, Call] = {}
    made: dict[str, set[Layout]] = {name: {PLAIN} for name in graph.inputs}
    read: dict[str, set[Layout]] = {name: {PLAIN} for name in graph.outputs}
    for op in graph.ops:
        text = call_text(op, graph.input_types(op), graph.output_types(op), graph.constants)
        known = text in calls
        found = list(candidates_of(graph, op, target, optimize))
        for candidate in found:
            for name, type_ in zip(op.outputs, candidate.results, strict=True):
                made.setdefault(name, set()).add(type_.layout)
            for name, type_ in zip(op.inputs, candidate.types, strict=True):
                if name and name not in graph.constants:
                    read.setdefault(name, set()).add(type_.layout)
        if not known:
            calls[text] = Call(text, op, graph, found if len(found) > 1 else [])
    for name, sources in made.items():
        for source, wanted in product(sorted(sources, key=str), sorted(read.get(name, ()), key=str)):
            if source != wanted:
                _add_relayout(calls, graph, name, source, wanted, target, optimize)
    for call in calls.values():
        call.candidates = [c for c in call.candidates if not isinstance(c.kernel, View)]
    return [call for call in calls.values() if call.candidates]


def _add_relayout(calls: dict[str, Call], graph: Graph, name: str, source: Layout, wanted: Layout, target: Target,
                  optimize: str) -> None:
    type_ = graph.types[name]
    op = RELAYOUT.with_(inputs=(name,), outputs=(name + "'",))
    types, results = (type_.with_layout(source),), (type_.with_layout(wanted),)
    text = call_text(op, types, results, ())
    call = calls.setdefault(text, Call(text, op, graph))
    if any(c.types == types and c.results == results for c in call.candidates):
        return
    for kernel in candidates("relayout"):
        if refusal(op, kernel, types, results, target) is None:
            call.candidates.append(_candidate(op, kernel, types, results, {}, target, optimize))


def candidates_of(graph: Graph, op: Op, target: Target, optimize: str) -> Iterator[Candidate]:
    """Every kernel, tile and combination of layouts that realises an operator of the graph; views too."""
    inputs, outputs = graph.input_types(op), graph.output_types(op)
    for kernel in candidates(op.kind):
        for types, results in placements(op, kernel, inputs, outputs, target):
            if refusal(op, kernel, types, results, target, graph.constants) is not None:
                continue
            # At -O size extents are arguments, and tiles do not depend on them.
            others = kernel.tiled(op, types, results, target) if optimize == "speed" else ()
            for variant in (kernel, *others):
                yield _candidate(op, variant, types, results, graph.constants, target, optimize)


def _candidate(op: Op, kernel: Kernel, types, results, constants: Mapping[str, np.ndarray], target: Target,
               optimize: str) -> Candidate:
    cost = kernel.cost(op, types, results, target)
    choice = None
    if not isinstance(kernel, View):
        # Operands under names of their own: a value may be an operand twice.
        names = [f"i{index}" if name else "" for index, name in enumerate(op.inputs)]
        single = op.with_(inputs=tuple(names), outputs=tuple(f"o{index}" for index in range(len(results))))
        known = {name: constants[old] for name, old in zip(names, op.inputs, strict=True) if name and old in constants}
        placed = {name: type_ for name, type_ in zip(names, types, strict=True) if name}
        placed.update(zip(single.outputs, results, strict=True))
        graph = Graph("call", tuple(n for n in names if n and n not in known), single.outputs, (single,), placed, known)
        choice = bind(graph, single, kernel, target, optimize, cost)
    return Candidate(kernel, choice, tuple(types), tuple(results), cost)
