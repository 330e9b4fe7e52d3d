# SPDX-License-Identifier: Apache-2.0
"""Collects the facts about a compiled model for its manifest, which `manifest.py` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..ir.dims import Dim, evaluate, likely, symbols
from ..ir.extent_bounds import interval
from ..ir.graph import Graph, bodies_of
from ..ir.shapes import Bucket, UnbackedSymbol, hull, unbacked_symbols
from ..ops.base import operator
from ..ops.masks import input_masks
from ..ops.ranges import input_ranges
from ..options import CompileOptions
from ..version import VERSION
from .container import WEIGHTS_ALIGNMENT
from .fit import SplitRegion
from .memory.planner import PlannedMemory
from .plan import KernelPlan
from .quantised import Quantisation
from .states import compact_initial_value
from .weight_report import shared_weights, stored_bytes


def manifest(graph: Graph, plans, model: Mapping, options: CompileOptions, quantised: Mapping[str, Quantisation],
             split_regions: Sequence[Sequence[SplitRegion]], traces: Sequence[Mapping | None]) -> dict:
    """Returns the manifest: facts about the compiled model besides its code, as values of JSON.

    `counters` are the states that count the rows of KV caches, `control` says that calls may be jumped over or
    repeated.

    Args:
        graph: the model's graph before kernels were chosen.
        plans: (KernelPlan, PlannedMemory of each bucket) of each target.
        model: name and hash of the source model.
        quantised: the quantisation of inputs and outputs, by name.
        split_regions: for each target, the regions that are computed by strips of rows.
        traces: for each target, the trace of the safety profile (trace.py); None without the profile.
    """
    memories = plans[0][1]  # all targets have the same buckets
    tuning_logs = {plan.target.name: plan.context.times.digest for plan, _ in plans if plan.context.times is not None}
    return {
        "megcc": VERSION,
        "model": dict(model),
        "options": {"optimize": options.optimize, "threads": options.threads,
                    **({"log": tuning_logs} if tuning_logs else {}), **options.recorded()},
        "inputs": _ports(graph, graph.inputs, quantised, [memory.bucket for memory in memories]),
        "outputs": _ports(graph, graph.outputs, quantised, [memory.bucket for memory in memories]),
        "states": [_state_facts(graph, output, name) for output, name in graph.states],
        **({"counters": list(graph.cache_capacities)} if graph.cache_capacities else {}),
        **({"stream": graph.stream.facts()} if graph.stream else {}),
        **({"texts": list(graph.strings)} if graph.string_ports else {}),
        "alignment": max([WEIGHTS_ALIGNMENT, *(plan.target.isa.alignment for plan, _ in plans)]),
        "buckets": [{symbol: [lower, upper] for symbol, lower, upper in memory.bucket.bounds}
                    for memory in memories],
        **({"control": True} if any(bodies_of(op) for op in graph.ops) else {}),
        "programs": [{**_program_facts(*planned, regions), **({"trace": trace} if trace is not None else {})}
                     for planned, regions, trace in zip(plans, split_regions, traces, strict=True)],
        "weights": shared_weights([plan for plan, _ in plans]),
    }


def _ports(graph: Graph, names: Iterable[str], quantised: Mapping[str, Quantisation], buckets: Sequence[Bucket]
           ) -> list[dict]:
    """Returns the facts of inputs or outputs. Optional keys are fields of `Port` in runtime/session.py: `text` stands
    for its strings, `filled` for `cache_input`, `least` for the extents of the smallest shapes of the first bucket.
    `limits` are the smallest and the largest value of each extent over all buckets; None for no limit."""
    smallest, limits = {symbol: lower for symbol, lower, _ in buckets[0].bounds}, hull(buckets).limits
    ranges = {**input_ranges(graph), **{name: (0, capacity) for name, capacity in graph.cache_capacities.items()}}
    masks, unbacked = input_masks(graph), {count.symbol for count in unbacked_symbols(graph)}

    def facts(name: str) -> dict:
        type_ = graph.types[name]
        is_input = name in graph.inputs
        return {"name": graph.label(name), "dtype": type_.dtype,
                "shape": [_extent(dim, is_input) for dim in type_.shape],
                **({"quant": quantised[name]._asdict()} if name in quantised else {}),
                **({} if type_.is_static or not is_input else
                   {"least": [evaluate(dim, smallest) for dim in type_.shape]}),
                **({} if type_.is_static else {"limits": [_limits(dim, limits) for dim in type_.shape]}),
                **({"text": True} if name in graph.string_ports else {}),
                **({"filled": graph.cache_inputs[name]._asdict()} if name in graph.cache_inputs else {}),
                **({"counted": True} if set().union(*map(symbols, type_.shape)) & unbacked else {}),
                **({"mask": True} if name in masks else {}),
                **({"range": list(ranges[name])} if name in ranges else {})}

    return [facts(name) for name in names]


#: The most characters of an extent in the manifest; longer expressions are replaced by "?". Extents of inputs may be
#: longer, since they are mostly names that a caller uses.
_MAX_EXTENT_CHARACTERS, _MAX_INPUT_EXTENT_CHARACTERS = 24, 96


def _state_facts(graph: Graph, output: str, name: str) -> dict:
    """Returns the facts about a state: the output that the session keeps, and the input that it is in the next run."""
    facts = {"output": graph.label(output), "input": name}
    if name in graph.initial_states:
        facts["begins"] = compact_initial_value(graph.initial_states[name]).tolist()
    return facts


def _limits(dim: Dim, limits: Mapping[str, tuple[int, int | None]]) -> list[int | None]:
    """Returns the smallest and the largest value of an extent for symbols within these limits; None for no limit."""
    lower, upper = interval(dim, limits)
    return [max(lower or 0, 0), None if upper is None else max(upper, 0)]


def _extent(dim: Dim, is_of_input: bool) -> int | str:
    """Returns an extent as the manifest has it: a number, or the text of an expression."""
    if isinstance(dim, int):
        return dim
    text = str(dim)
    return text if len(text) <= (_MAX_INPUT_EXTENT_CHARACTERS if is_of_input else _MAX_EXTENT_CHARACTERS) else "?"


def _program_facts(plan: KernelPlan, memories: Sequence[PlannedMemory], split_regions: Sequence[SplitRegion]) -> dict:
    """Returns the facts about the program of one target. Sizes are those of the largest bucket, multiply-accumulates
    those of likely shapes. `rows` are the regions that are computed by strips of rows (`SplitRegion`), `counts` the
    instructions at which an unbacked symbol gets its value. `fixed_extents`: no kernel gets extents at run time."""
    calls, instruction, counts = [], 0, []

    def count_control_flow(index: int) -> int:
        """Returns the number of instructions before a step that are no calls, and adds the unbacked symbols among them
        to `counts`. The first of them has the number `instruction`."""
        items = plan.control_flow(index)
        counts.extend({"instruction": instruction + offset, "name": item.symbol,
                       **({"branch": True} if item.required else {})}
                      for offset, item in enumerate(items) if isinstance(item, UnbackedSymbol))
        return len(items)

    instruction += count_control_flow(0)
    releases = plan.releases(plan.unbounded([planned.bucket for planned in memories]))
    for index, step in enumerate(plan.steps):
        op = step.op
        operand_types = plan.graph.input_types(op)[:op.epilogue_start] if op.epilogue is not None \
            else plan.graph.input_types(op)
        calls.append({
            "kernel": step.spec.symbol, "kind": op.kind, "origin": op.origin, "output": op.outputs[0],
            "type": str(plan.graph.types[op.outputs[0]]), "instruction": instruction,
            "macs": likely(operator(op.kind).macs(op.attrs, operand_types, plan.graph.output_types(op)))})
        instruction += 1
        instruction += count_control_flow(index + 1) + len(releases.get(index, ()))
    weights, unpacked = stored_bytes(plan)
    largest = max((planned.plan for planned in memories), key=lambda memory: memory.arena_bytes)
    return {
        "target": plan.target.name, "tensors": len(plan.locations) + len(plan.weights),
        "instructions": instruction, "workers": plan.workers,
        "arena_bytes": largest.arena_bytes, "lower_bound": largest.lower_bound,
        **({"regions": [{"name": name, "bytes": bytes_} for (name, _), bytes_ in zip(
            plan.context.regions.ram, largest.regions, strict=True)]} if plan.context.regions else {}),
        "weight_bytes": weights, "unpacked_bytes": unpacked,
        **({"rows": [{"first": region.first.origin, "last": region.last.origin, "strips": region.strips,
                      "macs": region.macs, "kept": region.buffer_bytes}
                     for region in split_regions]} if split_regions else {}),
        **({} if any(step.spec.runtime_extents for step in plan.steps) else {"fixed_extents": True}),
        "calls": calls, **({"counts": counts} if counts else {})}
