# SPDX-License-Identifier: Apache-2.0
"""Enumerates the distinct calls of a model, with all candidate kernels, tiles and layouts of each. The tuner measures
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ..codegen.c_source.bind import Bound, bind
from ..context import Context
from ..ir.graph import Graph, Op
from ..ir.types import PLAIN, Layout, TensorType
from ..kernels.base import Kernel, View
from ..kernels.choice import RELAYOUT, Choice
from ..kernels.site import Site
from ..kernels.support import candidates, placements, refusal
from ..tuning_log import call_text, layouts_text
from .timing import Measurement


@dataclass(frozen=True)
class Candidate:
    """A kernel that can compute a call.

    bound: the call of the kernel; None for a view.
    site: the operator with the types and layouts of its operands.
    cost: the estimate of the cost model.
    """

    kernel: Kernel
    bound: Bound | None
    site: Site
    cost: float

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        return self.site.types

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.site.outputs

    @property
    def layouts(self) -> str:
        return layouts_text(self.types, self.results)


@dataclass
class Call:
    """A distinct call of a model.

    text: the call as the tuning log identifies it.
    op: the first operator with this call.
    graph: the graph of the operator.
    """

    text: str
    op: Op
    graph: Graph
    candidates: list[Candidate] = field(default_factory=list)

    def measurement(self, candidate: Candidate, values: Mapping[str, np.ndarray], network_bytes: int) -> Measurement:
        """Returns the measurement of a candidate. values: operands and reference results, by name. network_bytes: the
        size of the network's weights."""
        values_of = {**self.graph.constants, **values}
        operands = [values_of[name] if name else None for name in self.op.inputs]
        expected = operands if self.op.kind == "relayout" else [values_of[name] for name in self.op.outputs]
        constant = {index for index, name in enumerate(self.op.inputs) if name in self.graph.constants}
        return Measurement(candidate.bound, operands, candidate.types, candidate.results, expected, constant,
                           network_bytes)


def calls_of(graph: Graph, context: Context) -> list[Call]:
    """Returns the distinct calls with several candidates, for a graph from `before_layouts`."""
    calls: dict[str, Call] = {}
    written: dict[str, set[Layout]] = {name: {PLAIN} for name in graph.inputs}
    read: dict[str, set[Layout]] = {name: {PLAIN} for name in graph.outputs}
    for op in graph.ops:
        site = Site.of(graph, op, context)
        text = call_text(op, site.types, site.outputs, site.constants)
        is_known = text in calls
        found = list(candidates_of(site))
        for candidate in found:
            for name, type_ in zip(op.outputs, candidate.results, strict=True):
                written.setdefault(name, set()).add(type_.layout)
            for name, type_ in zip(op.inputs, candidate.types, strict=True):
                if name and name not in graph.constants:
                    read.setdefault(name, set()).add(type_.layout)
        if not is_known:
            calls[text] = Call(text, op, graph, found if len(found) > 1 else [])
    # A value may need a relayout from each layout that an operator writes to each other one that an operator reads.
    for name, sources in written.items():
        for source, target in product(sorted(sources, key=str), sorted(read.get(name, ()), key=str)):
            if source != target:
                _add_relayout(calls, graph, name, source, target, context)
    for call in calls.values():
        call.candidates = [c for c in call.candidates if not isinstance(c.kernel, View)]
    return [call for call in calls.values() if call.candidates]


def _add_relayout(calls: dict[str, Call], graph: Graph, name: str, source: Layout, target: Layout,
                  context: Context) -> None:
    type_ = graph.types[name]
    op = RELAYOUT.with_(inputs=(name,), outputs=(name + "'",))
    site = Site(op, (type_.with_layout(source),), (type_.with_layout(target),), context)
    text = call_text(op, site.types, site.outputs)
    call = calls.setdefault(text, Call(text, op, graph))
    if any(c.site.layouts == site.layouts for c in call.candidates):
        return
    call.candidates += [_candidate(site, kernel) for kernel in candidates("relayout") if refusal(site, kernel) is None]


def candidates_of(site: Site) -> Iterator[Candidate]:
    """Yields every kernel, tile and combination of layouts that realises an operator, including views."""
    for kernel in candidates(site.kind):
        for placed in placements(site, kernel):
            if refusal(placed, kernel) is None:
                # At -O size extents are arguments, and tiles do not depend on them.
                for variant in (kernel, *(() if site.compact else kernel.other_tiles(placed))):
                    yield _candidate(placed, variant)


def _candidate(site: Site, kernel: Kernel) -> Candidate:
    cost = kernel.cost(site.likely)
    return Candidate(kernel, None if isinstance(kernel, View) else bind(site, Choice(kernel, cost)), site, cost)
