# SPDX-License-Identifier: Apache-2.0
"""The compiler on one page: a graph in, an artifact out, a line a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .codegen.artifact import Artifact
from .codegen.device_model import assemble, container_text
from .codegen.facts import manifest
from .codegen.memory_report import plan_picture, plans_text
from .codegen.plan import KernelPlan, PlannedMemory, plan_kernels, plan_memory, plan_text
from .codegen.quantised import quantised_ports
from .codegen.table import Code, render_sources
from .context import Context
from .errors import MegccError, ShapeError
from .foreign import identifier
from .ir.graph import Graph, network_bytes
from .ir.limits import MAX_WORKERS
from .ir.shapes import EVERYTHING, Bucket, graph_symbols, limitless
from .ir.text import graph_text
from .ir.verify import verify
from .passes import PIPELINE, before_layouts
from .passes.accept import checked
from .passes.layout import choose_layouts
from .passes.schedule import peak_bytes, reorder
from .passes.views import with_copies
from .target import Target
from .tuning_log import TuningLog

logger = logging.getLogger(__name__)

Dump = Callable[[str, str], None]
"""Receives the name of a stage and its text."""

#: Number of the first stage after the import, the passes, layouts and the order, in the names of dumps.
PLAN_STAGE = len(PIPELINE) + 3


def compile_graph(graph: Graph, targets: Sequence[Target], *, optimize: str = "speed", threads: int = 1,
                  keep_inputs: bool = False, name: str = "", model: Mapping | None = None,
                  buckets: Sequence[Bucket] = (EVERYTHING,), states: Mapping[str, str] | None = None,
                  log: TuningLog | None = None,
                  dump: Dump = lambda stage, text: None) -> Artifact:
    """Compiles an imported graph for some CPUs.

    Args:
        graph: from a front end.
        targets: distinct, the best ISA level of a machine first, as `target.parse_targets` gives them.
        optimize: "speed" prints known extents as constants, "size" shares kernels between layers.
        threads: workspace is planned for so many workers.
        keep_inputs: inputs in the arena keep their values during a run.
        model: what was compiled (file name, digest), for the manifest.
        buckets: ranges of input shapes, with bounds for every symbol of the graph; at run time the first that holds
            the inputs is taken.
        states: output -> the input that it becomes after a run.
        log: times of kernels on these CPUs; without, the cost model chooses.

    Raises:
        MegccError: for an unknown `optimize` or a number of threads that the runtime refuses; ShapeError: for shapes
            that are not known; ModelError: for operators that no kernel realises, and for states that do not fit the
            model.
    """
    if not 1 <= threads <= MAX_WORKERS:
        raise MegccError(f"threads: {threads} is not between 1 and {MAX_WORKERS}")
    graph = checked(graph, buckets, states)
    contexts = [context_of(graph, target, optimize, log) for target in targets]
    name = identifier(name or graph.name)
    logger.info("compiling %s for %s", name, ", ".join(target.name for target in targets))
    dump("00_import", graph_text(graph))
    buckets = [bucket.ordered(graph_symbols(graph)) for bucket in buckets]
    plans: list[tuple[KernelPlan, list[PlannedMemory]]] = []
    texts: list[str] = []
    for context in contexts:
        lowering = lower(graph, context, threads)
        for number, (stage, value) in enumerate(lowering.stages.items(), start=1):
            dump(f"{number:02}_{stage}.{context.target}", graph_text(value))
        plan, ranges = lowering.plan, lowering.plan.buckets(buckets)
        unbounded = plan.unbounded(ranges)
        if context.target.bare_metal and unbounded:
            raise ShapeError(f"{name}: {context.target} has no memory to ask for, and nothing limits "
                             f"{', '.join(limitless(ranges))}; give bounds with --bound NAME=1000, or ranges of inputs "
                             "that end")
        memories = [plan_memory(plan, keep_inputs, bucket, unbounded) for bucket in ranges]
        plans.append((plan, memories))
        texts.append(plans_text(plan, memories, peak_bytes(lowering.stages["choose_layouts"])))
        dump(f"{PLAN_STAGE:02}_plan.{context.target}", plan_text(plan, memories[-1]))
        dump(f"{PLAN_STAGE + 1:02}_memory.{context.target}", texts[-1])
    codes = [Code.of(plan, plan.buckets(buckets)) for plan, _ in plans]
    quantised = quantised_ports(graph)
    container = assemble(name, plans, codes, quantised)
    dump(f"{PLAN_STAGE + 2:02}_container", container_text(container))
    picture = plan_picture(name, plans[0][0], plans[0][1][-1])
    dump("memory.svg", picture)
    return Artifact(
        name=name, targets=tuple(targets), container=container,
        sources=render_sources(name, [plan for plan, _ in plans], codes),
        manifest=manifest(graph, plans, model or {}, optimize, threads, quantised),
        report="\n".join(texts), memory=picture)


@dataclass(frozen=True)
class Lowering:
    """A graph as calls of kernels. stages: the graph after each pass, by the pass's name."""

    stages: Mapping[str, Graph]
    plan: KernelPlan

    @property
    def graph(self) -> Graph:
        """With its final operators, layouts and order."""
        return self.stages["schedule"]


def lower(graph: Graph, context: Context, workers: int = 1) -> Lowering:
    """Brings a graph that `checked` gave to kernels; the graph is verified after every pass.

    Raises:
        ModelError: naming the operators that no kernel realises.
    """
    stages: dict[str, Graph] = {}

    def seen(name: str, graph: Graph) -> None:
        verify(graph)
        stages[name] = graph

    verify(graph)
    graph = before_layouts(graph, context, seen)
    placed = choose_layouts(graph, context)
    seen("choose_layouts", placed.graph)
    placed = replace(placed, graph=reorder(placed.graph))
    seen("schedule", placed.graph)
    return Lowering(stages, plan_kernels(with_copies(placed, context), context, workers))


def context_of(graph: Graph, target: Target, optimize: str = "speed", log: TuningLog | None = None) -> Context:
    """What the kernels of a graph are chosen for.

    Raises:
        MegccError: for an unknown `optimize`.
    """
    return Context(target, optimize, network_bytes(graph), log.times(target.name, optimize) if log else None)
