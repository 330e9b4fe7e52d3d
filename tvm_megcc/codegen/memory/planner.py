# SPDX-License-Identifier: Apache-2.0
"""Plans the memory of a kernel plan for each bucket of input shapes (`plan_memories`): live ranges of the buffers,
buffers that are merged because a kernel works in place, and offsets in the arena."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import MegccError
from ...ir.dims import Dim, likely, number, round_up
from ...ir.graph import Graph
from ...ir.shapes import EVERYTHING, Bucket
from ...ops.base import operator
from ...passes.memory.views import Location
from .. import container
from ..plan import KernelPlan, extend_range
from ..states import updated_in_place, verify_updates
from . import offsets as memory


@dataclass(frozen=True)
class PlannedMemory:
    """The memory plan of one bucket.

    offsets: offsets of the values in the arena, and of weights that are copied there.
    sizes: bytes of their slots, for the largest shape in the bucket.
    workspaces: offset by step; the end of the arena if it has no bytes, None if it has no limit and is allocated.
    updated: output -> the state that it is computed in place of.
    """

    bucket: Bucket
    plan: memory.MemoryPlan
    buffers: tuple[memory.Buffer, ...]
    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    workspaces: tuple[int | None, ...]
    updated: Mapping[str, str] = field(default_factory=dict)


def plan_memory(plan: KernelPlan, keep_inputs: bool = False, bucket: Bucket = EVERYTHING,
                unbounded: Container[str] = ()) -> PlannedMemory:
    """Plans the memory of one bucket: computes live ranges, merges in-place operands, assigns offsets.

    Args:
        keep_inputs: inputs stay alive until the end of a run, so that a caller may run again with the same ones.
        bucket: the range of shapes that the arena must have space for.
        unbounded: values that are not in the arena.

    Raises:
        MegccError: if states and session do not fit into the first of the context's memory regions.
    """
    ranges = _live_ranges(plan, keep_inputs, unbounded)
    merged = _merge_in_place(plan, ranges)
    updated = {} if keep_inputs else updated_in_place(
        plan, ranges, lambda name: _merged_into(plan.locations[name].root, merged))
    for source, state in updated.items():  # the output gets no buffer: it lies in the state's
        new = _merged_into(plan.locations[source].root, merged)
        merged[new] = state
        del ranges[new]

    traffic = _traffic(plan, merged) if plan.context.regions else {}
    workspaces = [bucket.largest(plan.workspace(index)) for index in range(len(plan.steps))]
    buffers = _buffers(plan, bucket, ranges, merged, workspaces, traffic)
    result = memory.plan(buffers, plan.target.isa.alignment, _regions(plan, buffers))
    if plan.context.regions and not result.missing:
        constants = [memory.Buffer(name, weight.data.nbytes, 0, len(plan.steps), kind="constant", traffic=traffic[name])
                     for name, weight in plan.weights.items()]
        result = memory.with_constants(buffers, constants, result, plan.context.regions.faster_than_flash)
        buffers += [b for b in constants if b.name in result.offsets]
    memory.verify(buffers, result)
    offsets = {}
    for name, location in plan.locations.items():
        root = _merged_into(location.root, merged)
        if root in result.offsets:
            offsets[name] = result.offsets[root] + location.offset
    sizes = {name: _largest(bucket, plan.graph.types[name].bytes) for name in offsets}
    verify_updates(plan, updated, offsets, sizes)
    copied = [b for b in buffers if b.kind == "constant"]
    offsets |= {b.name: result.offsets[b.name] for b in copied}
    sizes |= {b.name: b.bytes for b in copied}
    workspace_offsets = tuple(None if size is None else result.offsets.get(f"workspace {index}", result.arena_bytes)
                              for index, size in enumerate(workspaces))
    return PlannedMemory(bucket, result, tuple(buffers), offsets, sizes, workspace_offsets, updated)


def _largest(bucket: Bucket, size: Dim) -> int:
    """Returns the bytes of a value of the arena for the largest shape in the bucket."""
    limit = bucket.largest(size)
    assert limit is not None, "a value without a bound is not in the arena"
    return limit


def _live_ranges(plan: KernelPlan, keep_inputs: bool, unbounded: Container[str]) -> dict[str, list[int]]:
    """Returns the first and the last step of each buffer of the arena. Inputs are alive from the beginning, outputs
    until the end; states, and inputs that are kept, all the time."""
    ranges, end = plan.lifetimes(), len(plan.steps)
    undying = set(plan.graph.inputs) if keep_inputs else {name for _, name in plan.graph.states}
    for name in plan.graph.inputs:
        extend_range(ranges, plan.locations, name, 0)
        if name in undying:
            extend_range(ranges, plan.locations, name, end)
    for name in plan.graph.outputs:
        extend_range(ranges, plan.locations, name, end)
    return {root: span for root, span in ranges.items() if root not in unbounded and root not in plan.caller_ports}


def _buffers(plan: KernelPlan, bucket: Bucket, ranges: Mapping[str, Sequence[int]], merged: Mapping[str, str],
             workspaces: Sequence[int | None], traffic: Mapping[str, float]) -> list[memory.Buffer]:
    """Returns the buffers of values and of workspaces, with their sizes for the largest shape in the bucket."""
    taken_over = _taken_over(plan, ranges, merged)
    buffers = [memory.Buffer(root, _largest(bucket, plan.graph.types[root].bytes), first, last,
                             kind=_buffer_kind(plan.graph, plan.locations, root, merged), on=taken_over.get(root, ""),
                             traffic=traffic.get(root, 1.0)) for root, (first, last) in ranges.items()]
    return buffers + [memory.Buffer(f"workspace {index}", size, index, index, kind="workspace",
                                    traffic=traffic.get(f"workspace {index}", 0) / size)
                      for index, size in enumerate(workspaces) if size]


def own_bytes(plan: KernelPlan) -> int:
    """Returns the bytes that a session of a program with known shapes needs besides the arena, on its target."""
    operands = max((len(step.inputs) + len(step.outputs) for step in plan.steps), default=0)
    ports = len(plan.graph.inputs) + len(plan.graph.outputs)
    return container.session_bytes(plan.target.pointer_bytes, plan.target.isa.alignment, pointers=ports + operands,
                                   words=plan.workers, arena=0)  # a status for each worker


def _regions(plan: KernelPlan, buffers: Sequence[memory.Buffer]) -> list[int]:
    """Returns the bytes of each memory region that the arena can use; the first also holds the session."""
    if plan.context.regions is None:
        return []
    sizes = [size for _, size in plan.context.regions.ram]
    sizes[0] = max(sizes[0] - own_bytes(plan), 0)
    alignment = plan.target.isa.alignment
    sizes = [size // alignment * alignment for size in sizes]
    states = sum(number(round_up(b.bytes, alignment)) for b in buffers if b.kind == "state")
    if states > sizes[0]:
        name, size = plan.context.regions.ram[0]
        raise MegccError(f"{plan.graph.name} does not fit on {plan.target}: its states and the session need "
                         f"{states + own_bytes(plan):,} bytes of the first region, {name}, which has {size:,}: "
                         f"{states + own_bytes(plan) - size:,} bytes are missing")
    return sizes


def _traffic(plan: KernelPlan, merged: Mapping[str, str]) -> dict[str, float]:
    """Estimates how often a run accesses a byte of each buffer and weight, and the accessed bytes of each workspace.

    The model: a multiply-accumulate reads one element of the first operand and one of the largest operand; each element
    of the result reads one element of every other weight; any other value is read or written once. Extents that a run
    computes have their likely values.
    """
    graph = plan.graph
    accessed: dict[str, float] = {}  # buffer, weight or workspace -> bytes
    sizes: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        op = step.op
        types, results = graph.input_types(op)[:len(op.own_inputs)], graph.output_types(op)
        macs = likely(operator(op.kind).macs(op.attrs, types, results))
        elements = {name: plan.weights[name].data.size if name in plan.weights else likely(graph.types[name].size)
                    for name in (*step.inputs, *step.outputs)}
        written = max(elements[name] for name in step.outputs)
        multiplied = {step.inputs[0], max(step.inputs, key=elements.__getitem__)} if step.inputs and macs else set()
        for name in dict.fromkeys((*step.inputs, *step.outputs)):
            is_weight = name in plan.weights
            bytes_ = plan.weights[name].data.nbytes if is_weight else likely(graph.types[name].bytes)
            root = name if is_weight else _merged_into(plan.locations[name].root, merged)
            count = macs if name in multiplied else written if is_weight else elements[name]
            accessed[root] = accessed.get(root, 0) + count * bytes_ / max(elements[name], 1)
            sizes.setdefault(root, bytes_ if is_weight else likely(graph.types[root].bytes))
        accessed[f"workspace {index}"] = max(macs, written)
    return {name: count / max(sizes.get(name, 1), 1) for name, count in accessed.items()}


def plan_memories(plan: KernelPlan, keep_inputs: bool = False,
                  buckets: Sequence[Bucket] = (EVERYTHING,)) -> list[PlannedMemory]:
    """Returns the memory plan of each bucket of input shapes."""
    ranges = plan.buckets(buckets)
    unbounded = plan.unbounded(ranges)
    return [plan_memory(plan, keep_inputs, bucket, unbounded) for bucket in ranges]


def _ports(plan: KernelPlan) -> tuple[set[str], set[str]]:
    """Returns the buffers of inputs and of outputs."""
    graph, locations = plan.graph, plan.locations
    return ({locations[name].root for name in graph.inputs},
            {locations[name].root for name in graph.outputs if name in locations})


def _merged_into(root: str, merged: Mapping[str, str]) -> str:
    """Returns the buffer that this one was merged into."""
    while root in merged:
        root = merged[root]
    return root


def _merge_in_place(plan: KernelPlan, ranges: dict[str, list[int]]) -> dict[str, str]:
    """Merges the buffer of an output with that of an operand of the same size that dies there, where the kernel can
    work in place. Changes `ranges`, and returns {merged buffer: the buffer that it became a part of}."""
    graph = plan.graph
    merged: dict[str, str] = {}
    inputs, outputs = _ports(plan)

    def buffer(root: str) -> str:
        return _merged_into(root, merged)

    for index, step in enumerate(plan.steps):
        for output, operand in step.spec.in_place:
            target, source = step.outputs[output], step.inputs[operand]
            if _is_weight_or_part(plan, source, target):
                continue
            target_root, source_root = plan.locations[target].root, plan.locations[source].root
            new, old = buffer(target_root), buffer(source_root)
            if new not in ranges or old not in ranges:
                continue  # a value that is not in the arena
            # Both buffers have to be as large as the operand: then nothing else lies in them.
            if not graph.types[target_root].bytes == graph.types[source].bytes == graph.types[source_root].bytes:
                continue
            dies_here, begins_here = ranges[old][1] == index, ranges[new][0] == index
            if new == old or not dies_here or not begins_here:
                continue
            if (old in inputs or source_root in inputs) and target_root in outputs:
                continue  # the caller may write the next input while it reads this output
            # The kernel must not read the operand a second time, through another operand, after it was overwritten.
            if sum(plan.locations[name].root == source_root for name in step.inputs if name in plan.locations) > 1:
                continue
            merged[new] = old
            ranges[old][1] = ranges.pop(new)[1]
            if target_root in outputs:
                outputs.add(old)
            break
    return merged


def _is_weight_or_part(plan: KernelPlan, operand: str, result: str) -> bool:
    """Whether the operand is a weight, or one of the two does not begin where its buffer does."""
    return operand not in plan.locations or bool(plan.locations[operand].offset or plan.locations[result].offset)


def _taken_over(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], merged: Mapping[str, str]) -> dict[str, str]:
    """Returns {buffer of an output: buffer of the operand whose memory it takes over}. The two may differ in size."""
    found: dict[str, str] = {}
    inputs, outputs = _ports(plan)

    def buffer(name: str) -> str:
        return _merged_into(plan.locations[name].root, merged)

    for index, step in enumerate(plan.steps):
        for output, operand in step.takes_over:
            target, source = step.outputs[output], step.inputs[operand]
            if _is_weight_or_part(plan, source, target):
                continue
            new, old = buffer(target), buffer(source)
            if new == old or new not in ranges or old not in ranges or old in found.values():
                continue
            readers = sum(buffer(name) == old for name in step.inputs if name in plan.locations)
            dies_here, begins_here = ranges[old][0] < ranges[old][1] == index, index == ranges[new][0]
            # As in `_merge_in_place`, the caller may write the next input while it reads this output.
            if dies_here and begins_here and readers == 1 and not (old in inputs and new in outputs):
                found[new] = old
                break
    return found


def _buffer_kind(graph: Graph, locations: Mapping[str, Location], root: str, merged: Mapping[str, str]) -> str:
    """Returns the kind of a buffer (`memory.Buffer.kind`) by the values that lie in it."""
    roots = {root, *(new for new, old in merged.items() if old == root)}
    if root in {name for _, name in graph.states}:
        return "state"
    if any(locations[name].root in roots for name in graph.inputs):
        return "input"
    if any(name in locations and locations[name].root in roots for name in graph.outputs):
        return "output"
    return "activation"


def plan_text(plan: KernelPlan, planned: PlannedMemory) -> str:
    """Returns the plan as text, a line for each call."""
    lines = [f"plan {plan.graph.name} for {plan.target}: {len(plan.steps)} calls"]
    for index, step in enumerate(plan.steps):
        results = ", ".join(_value_text(name, planned.offsets) for name in step.outputs)
        operands = ", ".join(_value_text(name, planned.offsets) for name in step.inputs)
        extents = f" extents {list(step.bound.extents)}" if step.bound.extents else ""
        lines.append(f"  {index:3d} {results} = {step.spec.symbol}({operands}){extents}  # {step.op.origin}")
    return "\n".join(lines) + "\n"


def _value_text(name: str, offsets: Mapping[str, int]) -> str:
    return f"%{name}@{offsets[name]}" if name in offsets else name
