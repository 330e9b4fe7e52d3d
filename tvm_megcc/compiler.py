# SPDX-License-Identifier: Apache-2.0
"""The compiler on one page: a graph in, an artifact out, one line for each stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen.artifact import Artifact
from .codegen.device_model import assemble, container_text
from .codegen.facts import manifest
from .codegen.fit import Memories, SplitRegion, fit, require_memory, split_regions_text
from .codegen.memory.planner import PlannedMemory, plan_memories, plan_text
from .codegen.memory_report import plan_picture, plans_text
from .codegen.plan import KernelPlan, Weight
from .codegen.quantised import quantised_ports
from .codegen.safety import require_safe
from .codegen.table import KernelTable, render_sources
from .codegen.trace import Trace
from .context import SAFETY, Context
from .errors import MegccError, ShapeError
from .foreign import identifier
from .ir.graph import Graph, bodies_of, network_bytes
from .ir.shapes import EVERYTHING, Bucket, graph_symbols, unbounded_symbols
from .ir.text import graph_text
from .ir.verify import verify
from .options import CompileOptions
from .passes import before_layouts
from .passes.canonicalize.check import checked
from .passes.layout.choose import choose_layouts
from .passes.schedule import peak_bytes, reorder
from .passes.streaming.cache_types import store_caches
from .target import Target

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import CompileKeywords

logger = logging.getLogger(__name__)

Dump = Callable[[str, str], None]
"""Receives the name of a stage and its text."""


def compile_graph(graph: Graph, targets: Sequence[Target], options: CompileOptions | None = None, *, name: str = "",
                  model: Mapping[str, Any] | None = None, buckets: Sequence[Bucket] = (EVERYTHING,),
                  dump: Dump = lambda stage, text: None, **changes: Unpack[CompileKeywords]) -> Artifact:
    """Compiles an imported graph for some CPUs.

    Args:
        graph: from a front end.
        targets: distinct, the best ISA level of a machine first, as `target.parse_targets` returns them.
        options, changes: options of compilation; those that concern the import of a model have no effect.
        name: prefix of the generated names; default is the graph's name.
        model: facts about the source file (name, digest), for the manifest.
        buckets: ranges of input shapes, with bounds for every symbol of the graph; at run time the first bucket that
            contains the shapes is used.
        dump: receives the text of every stage.

    Raises:
        MegccError: for a model that does not fit into the memory; ShapeError: for shapes that are not known;
        ModelError: for operators that no kernel realises, and for states that do not fit the model.
    """
    options = CompileOptions.of(options, changes, "compile_graph")
    graph = store_caches(checked(graph, buckets, options.states), options.cache)
    _require_possible(graph, targets, options)  # before `flash` is set: --region with --flash is an error
    if options.regions is not None:
        options = replace(options, flash=options.regions.flash)
    contexts = [context_of(graph, target, options) for target in targets]
    name = identifier(name or graph.name)
    logger.info("compiling %s for %s", name, ", ".join(target.name for target in targets))
    dump("00_import", graph_text(graph))
    buckets = [bucket.ordered(graph_symbols(graph)) for bucket in buckets]
    memories_of = partial(plan_memories, keep_inputs=options.keep_inputs, buckets=buckets)
    unique: dict[tuple[bytes, np.dtype], np.ndarray] = {}
    programs: list[_Program] = []
    for context in contexts:
        stages = count(1)  # for each target, dumps are numbered from 01 on

        def dump_stage(stage: str, text: str, target: Target = context.target, stages: Iterator[int] = stages) -> None:
            dump(f"{next(stages):02}_{stage}.{target}", text)

        programs.append(_program(name, graph, context, options, buckets, memories_of, unique, dump_stage))
    plans = [(program.plan, program.memories) for program in programs]
    tables = [KernelTable.of(plan, plan.buckets(buckets)) for plan, _ in plans]
    quantised = quantised_ports(graph)
    image = assemble(name, plans, tables, quantised)
    require_memory(name, image, targets, options.ram, options.flash)
    # The container has the programs of all targets; its number follows those of the last one's stages.
    dump(f"{next(stages):02}_container", container_text(image))
    first_plan, its_memories = plans[0]
    picture = plan_picture(name, first_plan, its_memories[-1])  # of the last bucket
    dump("memory.svg", picture)
    return Artifact(
        name=name, targets=tuple(targets), image=image,
        sources=render_sources(name, [plan for plan, _ in plans], tables),
        manifest=manifest(graph, plans, model or {}, options, quantised,
                          [program.split_regions for program in programs], [program.trace for program in programs]),
        report="\n".join(program.memory_report for program in programs), memory=picture)


@dataclass(frozen=True)
class _Program:
    """The kernel calls of a model for one target.

    memories: the memory plan of each bucket.
    split_regions: the operators that are computed in strips of rows.
    memory_report: the text of the memory plans.
    trace: the trace of the safety profile, as the manifest has it.
    """

    plan: KernelPlan
    memories: list[PlannedMemory]
    split_regions: tuple[SplitRegion, ...]
    memory_report: str
    trace: dict[str, Any] | None = None


def _program(name: str, graph: Graph, context: Context, options: CompileOptions, buckets: Sequence[Bucket],
             memories_of: Memories, unique: dict[tuple[bytes, np.dtype], np.ndarray], dump: Dump) -> _Program:
    """Compiles a checked graph for one target.

    Args:
        memories_of: plans the memory of a kernel plan for every bucket.
        unique: the weights of the targets before, by digest and dtype; new ones are added.

    Raises:
        ShapeError: for a microcontroller and an extent without a bound.
    """
    trace = Trace(graph) if context.safe else None

    def on_pass(stage: str, lowered: Graph) -> None:
        dump(stage, graph_text(lowered))
        if trace is not None:
            trace.after(stage, lowered)

    lowering = lower(graph, context, options.threads, memories_of, on_pass)
    plan = replace(lowering.plan, weights=_deduplicated(lowering.plan.weights, unique))
    ranges = plan.buckets(buckets)
    if context.target.bare_metal and plan.unbounded(ranges):
        raise ShapeError(f"{name}: {context.target} cannot allocate memory during a run, but these extents have no "
                         f"bound: {', '.join(unbounded_symbols(ranges))}; give bounds with --bound NAME=1000, or "
                         "ranges of inputs that have an end")
    memories = memories_of(plan)
    memory_report = plans_text(plan, memories, lowering.peak) + split_regions_text(lowering.split_regions) \
        + (graph.stream.text() if graph.stream else "")
    dump("plan", plan_text(plan, memories[-1]))
    dump("memory", memory_report)
    return _Program(plan, memories, lowering.split_regions, memory_report,
                    trace.facts(plan) if trace is not None else None)


def _deduplicated(weights: Mapping[str, Weight], unique: dict[tuple[bytes, np.dtype], np.ndarray]) -> dict[str, Weight]:
    """Returns the weights of a plan; weights that other plans pack equally share their memory."""
    return {name: replace(weight, data=unique.setdefault((weight.digest, weight.data.dtype), weight.data))
            for name, weight in weights.items()}


def _require_possible(graph: Graph, targets: Sequence[Target], options: CompileOptions) -> None:
    """Raises MegccError for options that this graph or these targets do not allow."""
    if options.caller_inputs and not all(graph.types[name].is_static for name in graph.inputs):
        raise ShapeError(f"{graph.name}: inputs in memory of the caller's need known shapes; give --input-shapes, or "
                         "leave out --caller-inputs")
    if options.profile == SAFETY:
        require_safe(graph, targets, options)
    if options.regions is not None:
        _require_regions(graph, targets, options)


def _require_regions(graph: Graph, targets: Sequence[Target], options: CompileOptions) -> None:
    """Raises MegccError if memory cannot be planned for regions."""
    if options.ram is not None or options.flash is not None:
        raise MegccError("--region gives the size of each memory: leave out --ram and --flash")
    if other := next((target for target in targets if not target.bare_metal), None):
        raise MegccError(f"--region is for microcontrollers only, and {other} is not one: leave out --region")
    if graph_symbols(graph) or any(bodies_of(op) for op in graph.ops):
        raise ShapeError(f"{graph.name}: --region requires that all shapes are known at compile time and that there "
                         "is no control flow; give --input-shapes, or leave out --region")


@dataclass(frozen=True)
class Lowering:
    """A graph lowered to kernel calls.

    split_regions: the operators that are computed in strips of rows.
    peak: the largest number of live bytes in the order of the model, before operators are scheduled.
    """

    plan: KernelPlan
    split_regions: tuple[SplitRegion, ...]
    peak: int


def lower(graph: Graph, context: Context, workers: int = 1, memories: Memories = plan_memories,
          on_pass: Callable[[str, Graph], None] = lambda name, graph: None) -> Lowering:
    """Lowers a graph to kernel calls; the graph is verified after every pass.

    Args:
        graph: a graph that `checked` returned.
        workers: the number of threads that workspace is planned for.
        memories: plans the memory of a kernel plan for every bucket; it is used where the context limits the RAM.
        on_pass: receives the name of each pass and the graph after it.

    Raises:
        ModelError: naming the operators that no kernel realises; MegccError: if the plan does not fit into the RAM.
    """
    def verified(name: str, graph: Graph) -> None:
        verify(graph)
        on_pass(name, graph)

    verify(graph)
    graph = before_layouts(graph, context, verified)
    placed = choose_layouts(graph, context)
    verified("choose_layouts", placed.graph)
    peak = peak_bytes(placed.graph)
    placed = replace(placed, graph=reorder(placed.graph))
    verified("schedule", placed.graph)
    # Limits of memory concern the whole plan, so `fit` checks them after it has inlined the bodies.
    bodies = {op.outputs[0]: [lower(body.graph, replace(context, ram=None, regions=None), workers).plan
                               for body in bodies_of(op)]
              for op in graph.ops if bodies_of(op)}
    fitted = fit(placed, context, workers, memories, bodies)
    if fitted.split_regions:
        verified("compute_by_rows", fitted.placed.graph)
    return Lowering(fitted.plan, fitted.split_regions, peak)


def context_of(graph: Graph, target: Target, options: CompileOptions | None = None,
               **changes: Unpack[CompileKeywords]) -> Context:
    """Returns the context that the kernels of a graph are chosen for.

    Raises:
        MegccError: for a tuning log that cannot be read.
    """
    options = CompileOptions.of(options, changes, "context_of")
    log = options.tuning_log()
    return Context(target, weight_bytes=network_bytes(graph),
                   times=log.times(target.name, options.optimize) if log else None, **options.for_context())
