# SPDX-License-Identifier: Apache-2.0
"""The compiler on one page: a graph in, an artifact out, one line for each stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen.artifact import Artifact
from .codegen.device_model import assemble, container_text
from .codegen.facts import manifest
from .codegen.fit import Memories, Rows, fit, require_memory, rows_text
from .codegen.memory_report import plan_picture, plans_text
from .codegen.plan import KernelPlan, PlannedMemory, Weight, plan_memories, plan_text
from .codegen.quantised import quantised_ports
from .codegen.table import Code, render_sources
from .context import Context
from .errors import MegccError, ShapeError
from .foreign import identifier
from .ir.graph import Graph, bodies_of, network_bytes
from .ir.shapes import EVERYTHING, Bucket, graph_symbols, limitless
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
        targets: distinct, the best ISA level of a machine first, as `target.parse_targets` gives them.
        options, changes: those of `CompileOptions` that do not concern how a model is imported.
        name: prefix of everything that is generated; default is the graph's.
        model: what was compiled (file name, digest), for the manifest.
        buckets: ranges of input shapes, with bounds for every symbol of the graph; at run time the first that holds
            the inputs is taken.

    Raises:
        MegccError: for what does not fit into the memory there is; ShapeError: for shapes that are not known;
            ModelError: for operators that no kernel realises, and for states that do not fit the model.
    """
    options = CompileOptions.of(options, changes, "compile_graph")
    graph = store_caches(checked(graph, buckets, options.states), options.cache)
    if options.caller_inputs and not all(graph.types[name].is_static for name in graph.inputs):
        raise ShapeError(f"{graph.name}: inputs in memory of the caller's need known shapes; give --input-shapes, or "
                         "leave out --caller-inputs")
    if options.regions is not None:
        _require_regions(graph, targets, options)
        options = replace(options, flash=options.regions.flash)
    contexts = [context_of(graph, target, options) for target in targets]
    name = identifier(name or graph.name)
    logger.info("compiling %s for %s", name, ", ".join(target.name for target in targets))
    dump("00_import", graph_text(graph))
    buckets = [bucket.ordered(graph_symbols(graph)) for bucket in buckets]
    plans: list[tuple[KernelPlan, list[PlannedMemory]]] = []
    strings: list[str] = []
    rows: list[tuple[Rows, ...]] = []
    memories_of = partial(plan_memories, keep_inputs=options.keep_inputs, buckets=buckets)
    unique: dict[tuple[bytes, np.dtype], np.ndarray] = {}
    for context in contexts:
        numbers = count(1)
        # Results for graphs are not cached: each may have its own weights.
        lowering = lower(graph, context, options.threads, memories_of, lambda stage, value: dump(
            f"{next(numbers):02}_{stage}.{context.target}", graph_text(value)))  # noqa: B023  (called within)
        plan, stage = replace(lowering.plan, weights=_deduplicated(lowering.plan.weights, unique)), next(numbers)
        ranges = plan.buckets(buckets)
        if context.target.bare_metal and plan.unbounded(ranges):
            raise ShapeError(f"{name}: {context.target} has no memory to ask for, and nothing limits "
                             f"{', '.join(limitless(ranges))}; give bounds with --bound NAME=1000, or ranges of inputs "
                             "that end")
        memories = memories_of(plan)
        plans.append((plan, memories))
        rows.append(lowering.rows)
        strings.append(plans_text(plan, memories, lowering.peak) + rows_text(rows[-1])
                     + (graph.stream.text() if graph.stream else ""))
        dump(f"{stage:02}_plan.{context.target}", plan_text(plan, memories[-1]))
        dump(f"{stage + 1:02}_memory.{context.target}", strings[-1])
    codes = [Code.of(plan, plan.buckets(buckets)) for plan, _ in plans]
    quantised = quantised_ports(graph)
    image = assemble(name, plans, codes, quantised)
    require_memory(name, image, targets, options.ram, options.flash)
    dump(f"{stage + 2:02}_container", container_text(image))
    picture = plan_picture(name, plans[0][0], plans[0][1][-1])
    dump("memory.svg", picture)
    return Artifact(
        name=name, targets=tuple(targets), image=image,
        sources=render_sources(name, [plan for plan, _ in plans], codes),
        manifest=manifest(graph, plans, model or {}, options, quantised, rows),
        report="\n".join(strings), memory=picture)


def _deduplicated(weights: Mapping[str, Weight], unique: dict[tuple[bytes, np.dtype], np.ndarray]) -> dict[str, Weight]:
    """Returns the weights of a plan; weights that other plans pack equally share their memory."""
    return {name: replace(weight, data=unique.setdefault((weight.digest, weight.data.dtype), weight.data))
            for name, weight in weights.items()}


def _require_regions(graph: Graph, targets: Sequence[Target], options: CompileOptions) -> None:
    """Raises MegccError if memory cannot be planned for regions."""
    if options.ram is not None or options.flash is not None:
        raise MegccError("--region says how large each memory is: leave out --ram and --flash")
    if other := next((target for target in targets if not target.bare_metal), None):
        raise MegccError(f"--region is for microcontrollers, and {other} is none: leave it out")
    if graph_symbols(graph) or any(bodies_of(op) for op in graph.ops):
        raise ShapeError(f"{graph.name}: memory is planned for regions where all shapes are known; give "
                         "--input-shapes, or leave out --region")


@dataclass(frozen=True)
class Lowering:
    """A graph as kernel calls. rows: the operators that are computed by rows. peak: most bytes that are alive at once,
    in the order of the model."""

    plan: KernelPlan
    rows: tuple[Rows, ...]
    peak: int


def lower(graph: Graph, context: Context, workers: int = 1, memories: Memories = plan_memories,
          passed: Callable[[str, Graph], None] = lambda name, graph: None) -> Lowering:
    """Brings a graph that `checked` gave to kernels; the graph is verified after every pass.

    Args:
        memories: where the values of a plan lie, by bucket, for the context's limit of RAM.
        passed: receives the graph after each pass, with the pass's name.

    Raises:
        ModelError: naming the operators that no kernel realises; MegccError: if it does not fit into the RAM there is.
    """
    def seen(name: str, graph: Graph) -> None:
        verify(graph)
        passed(name, graph)

    verify(graph)
    graph = before_layouts(graph, context, seen)
    placed = choose_layouts(graph, context)
    seen("choose_layouts", placed.graph)
    peak = peak_bytes(placed.graph)
    placed = replace(placed, graph=reorder(placed.graph))
    seen("schedule", placed.graph)
    bodies = {op.outputs[0]: [lower(body.graph, replace(context, ram=None, regions=None), workers).plan
                               for body in bodies_of(op)]
              for op in graph.ops if bodies_of(op)}
    fitted = fit(placed, context, workers, memories, bodies)
    if fitted.rows:
        seen("compute_by_rows", fitted.placed.graph)
    return Lowering(fitted.plan, fitted.rows, peak)


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
