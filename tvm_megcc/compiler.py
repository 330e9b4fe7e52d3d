# SPDX-License-Identifier: Apache-2.0
"""The compiler on one page: a graph in, an artifact out, a line a stage."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .codegen import memory_report
from .codegen.artifact import Artifact
from .codegen.device_model import assemble, container_text
from .codegen.plan import KernelPlan, PlannedMemory, plan_kernels, plan_memory, plan_text
from .codegen.quantised import Quantisation, quantised_ports
from .codegen.render import render_kernel
from .codegen.table import Code, render_table
from .codegen.weight_report import shared_weights
from .context import Context
from .errors import InternalError, MegccError, ModelError, ShapeError
from .foreign import identifier, printable
from .ir.dims import Dim, Symbol, evaluate, likely, product, symbols
from .ir.graph import Graph, network_bytes
from .ir.limits import MAX_NAMES, MAX_WORKERS
from .ir.shapes import EVERYTHING, Bucket, graph_symbols, with_likely
from .ir.text import graph_text
from .ir.verify import verify
from .kernels.support import limit_exceeded
from .ops.base import operator
from .ops.ranges import input_ranges
from .passes import PIPELINE, before_layouts
from .passes.layout import choose_layouts
from .passes.schedule import peak_bytes, reorder
from .passes.states import keep_states
from .passes.views import with_copies
from .target import Target
from .tuning_log import TuningLog
from .version import VERSION

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
    unordered: list[int] = []
    for context in contexts:
        lowering = lower(graph, context, threads)
        for number, (stage, value) in enumerate(lowering.stages.items(), start=1):
            dump(f"{number:02}_{stage}.{context.target}", graph_text(value))
        plan = lowering.plan
        unbounded = plan.unbounded(buckets)
        memories = [plan_memory(plan, keep_inputs, bucket, unbounded) for bucket in buckets]
        dump(f"{PLAN_STAGE:02}_plan.{context.target}", plan_text(plan, memories[-1]))
        plans.append((plan, memories))
        unordered.append(peak_bytes(lowering.stages["choose_layouts"]))
    codes = [Code.of(plan, buckets) for plan, _ in plans]
    quantised = quantised_ports(graph)
    container = assemble(name, plans, codes, quantised)
    texts = [memory_text(plan, memories, peak) for (plan, memories), peak in zip(plans, unordered, strict=True)]
    for (plan, _), text in zip(plans, texts, strict=True):
        dump(f"{PLAN_STAGE + 1:02}_memory.{plan.target}", text)
    dump(f"{PLAN_STAGE + 2:02}_container", container_text(container))
    picture = memory_picture(name, plans[0][0], plans[0][1][-1])
    dump("memory.svg", picture)
    return Artifact(
        name=name, targets=tuple(targets), container=container,
        sources={**kernel_sources([plan for plan, _ in plans]), "kernels.c": render_table(name, codes)},
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


def checked(graph: Graph, buckets: Sequence[Bucket] = (EVERYTHING,), states: Mapping[str, str] | None = None) -> Graph:
    """The imported graph, if a program can be made of it: with its states, and with the shapes of the largest bucket as
    the likely ones.

    Raises:
        ShapeError: for shapes that are not known; ModelError: for what the runtime would refuse, and for states that
            do not fit the model.
    """
    require_bounds(graph, buckets)
    require_given(graph)
    require_computed(graph)
    require_limits(graph)
    return at_largest(keep_states(graph, states or {}), buckets)


def context_of(graph: Graph, target: Target, optimize: str = "speed", log: TuningLog | None = None) -> Context:
    """What the kernels of a graph are chosen for.

    Raises:
        MegccError: for an unknown `optimize`.
    """
    return Context(target, optimize, network_bytes(graph), log.times(target.name, optimize) if log else None)


def at_largest(graph: Graph, buckets: Sequence[Bucket]) -> Graph:
    """The graph with the shapes that choices of speed are made for as its likely ones: those of the largest bucket."""
    return with_likely(graph, max((bucket.representative for bucket in buckets), key=lambda at: product(at.values())))


def require_bounds(graph: Graph, buckets: Sequence[Bucket]) -> None:
    """Raises ShapeError, with a command line to copy, if an input has a dimension that no bucket gives bounds for."""
    if all(set(graph_symbols(graph)) <= set(bucket.limits) for bucket in buckets):
        return
    open_inputs = {name: graph.types[name].shape for name in graph.inputs if not graph.types[name].is_static}
    names = sorted(set().union(*(symbols(dim) for shape in open_inputs.values() for dim in shape)))
    shapes = "; ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in open_inputs.items())
    example = ";".join(f"{name}=({','.join(str(d) if isinstance(d, int) else '1' for d in shape)})"
                       for name, shape in open_inputs.items())
    raise ShapeError(f"{graph.name}: the dimensions {', '.join(names)} are not known: {shapes}\n"
                     f"  Give the shapes, for example: --input-shapes \"{example}\"\n"
                     f"  or ranges of them, for example: --dispatch \"{_dispatch_example(open_inputs)}\"")


def require_given(graph: Graph) -> None:
    """Raises ShapeError for symbols that shapes of inputs do not tell: the runtime solves no equations."""
    dims = [(name, dim) for name in graph.inputs for dim in graph.types[name].shape]
    unknown = [name for name in graph_symbols(graph) if Symbol(name) not in (dim for _, dim in dims)]
    if unknown:
        where = ", ".join(f"{dim} of {name}" for name, dim in dims if symbols(dim) & set(unknown))
        raise ShapeError(f"{graph.name}: no input has a dimension that is {' or '.join(unknown)}, only {where}\n"
                         "  Give these inputs fixed shapes, or dimensions of their own.")


def _dispatch_example(open_inputs: Mapping[str, Sequence[Dim]]) -> str:
    return ";".join(f"{name}[{','.join(str(axis) for axis, dim in enumerate(shape) if not isinstance(dim, int))}]"
                    "=log(1,64)" for name, shape in open_inputs.items())


def require_computed(graph: Graph) -> None:
    """Raises ModelError for outputs that are inputs: the caller has them already, and a name stands for one tensor."""
    passed = [f"output '{name}' is an input, nothing computes it" for name in graph.outputs if name in graph.inputs]
    if passed:
        raise ModelError(graph.name, passed, "Remove it from the model's outputs, or select others with output_names.")


def require_limits(graph: Graph) -> None:
    """Raises ModelError for what the runtime would refuse to open, and operators that no kernel of it can be."""
    ports = len(graph.inputs) + len(graph.outputs)
    found = [f"it has {ports:,} inputs and outputs, the runtime takes {MAX_NAMES:,}"] if ports > MAX_NAMES else []
    found += [f"{op.kind} '{op.origin or op.outputs[0]}' {reason}" for op in graph.ops
              if (reason := limit_exceeded(op, graph.input_types(op), graph.output_types(op))) is not None]
    if found:
        raise ModelError(graph.name, found, "Split the operator or reshape to fewer axes before the model is exported.")


def kernel_sources(plans: Sequence[KernelPlan]) -> dict[str, str]:
    """`kernels/<symbol>.c` for every distinct kernel, and the files that some bring along."""
    origins: dict = {}
    for plan in plans:
        for step in plan.steps:
            origins.setdefault(step.spec, []).append(step.op.origin)
    texts: dict[str, str] = {name: text for spec in origins for name, text in spec.params.files}
    for spec, names in origins.items():
        path = f"kernels/{spec.symbol}.c"
        if path in texts:
            raise InternalError(f"two kernels are called {spec.symbol}")
        texts[path] = render_kernel(spec, tuple(dict.fromkeys(filter(None, names))))
    return texts


def manifest(graph: Graph, plans, model: Mapping, optimize: str, threads: int,
             quantised: Mapping[str, Quantisation]) -> dict:
    """Facts about the compiled model that are no code."""
    least = {symbol: low for symbol, low, _ in plans[0][1][0].bucket.bounds}

    ranges = input_ranges(graph)

    def describe(names):
        return [{"name": n, "dtype": graph.types[n].dtype,
                 "shape": [dim if isinstance(dim, int) else _short(dim) for dim in graph.types[n].shape],
                 **({"quant": quantised[n]._asdict()} if n in quantised else {}),
                 **({} if graph.types[n].is_static or n not in graph.inputs else
                    {"least": [evaluate(dim, least) for dim in graph.types[n].shape]}),
                 **({"range": list(ranges[n])} if n in ranges else {})}
                for n in names]

    measured = {plan.target.name: plan.context.times.digest for plan, _ in plans if plan.context.times is not None}
    return {
        "megcc": VERSION,
        "model": dict(model),
        "options": {"optimize": optimize, "threads": threads, **({"log": measured} if measured else {})},
        "inputs": describe(graph.inputs),
        "outputs": describe(graph.outputs),
        "states": [{"output": source, "input": target} for source, target in graph.states],
        "alignment": max([64, *(plan.target.isa.alignment for plan, _ in plans)]),
        "buckets": [{symbol: [low, high] for symbol, low, high in memory.bucket.bounds} for memory in plans[0][1]],
        "programs": [program_facts(plan, memories) for plan, memories in plans],
        "weights": shared_weights([plan for plan, _ in plans]),
    }


def _short(dim: Dim) -> str:
    """An extent as text; "?" where that would be long."""
    return text if len(text := str(dim)) <= 24 else "?"


def program_facts(plan: KernelPlan, memories: Sequence[PlannedMemory]) -> dict:
    """Sizes are those of the largest bucket; multiply-accumulates those of likely shapes."""
    calls, instruction = [], 0
    releases = plan.releases(plan.unbounded([planned.bucket for planned in memories]))
    for index, step in enumerate(plan.steps):
        op = step.op
        own = plan.graph.input_types(op)[:op.epilogue_start] if op.epilogue is not None \
            else plan.graph.input_types(op)
        calls.append({
            "kernel": step.spec.symbol, "kind": op.kind, "origin": op.origin, "output": op.outputs[0],
            "type": str(plan.graph.types[op.outputs[0]]), "instruction": instruction,
            "macs": likely(operator(op.kind).macs(op.attrs, own, plan.graph.output_types(op)))})
        instruction += 1 + len(releases.get(index, ()))
    largest = max((planned.plan for planned in memories), key=lambda memory: memory.arena_bytes)
    return {
        "target": plan.target.name, "tensors": len(plan.places) + len(plan.weights),
        "instructions": instruction, "workers": plan.workers,
        "arena_bytes": largest.arena_bytes, "lower_bound": largest.lower_bound,
        "weight_bytes": sum(weight.data.nbytes for weight in plan.weights.values()),
        "unpacked_bytes": sum(plan.graph.constants[name].nbytes
                              for name in {weight.source for weight in plan.weights.values()}), "calls": calls}


def memory_text(plan: KernelPlan, memories: Sequence[PlannedMemory], unordered: int) -> str:
    """The memory plans as text. unordered: bytes of activations alive at once in the model's own order."""
    steps = [step.spec.symbol for step in plan.steps]
    text = "".join((f"bucket: {printable(planned.bucket)}\n" if planned.bucket.bounds else "")
                   + memory_report.text(planned.buffers, planned.plan, steps) for planned in memories)
    return f"{plan.target}\n{text}in the model's own order activations peak at {unordered:,} bytes\n"


def memory_picture(name: str, plan: KernelPlan, planned: PlannedMemory) -> str:
    return memory_report.svg(planned.buffers, planned.plan, f"{name}, {plan.target}",
                             [s.op.origin for s in plan.steps])


def model_facts(path: Path) -> dict:
    """File name and digest of a model file, for the manifest."""
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
