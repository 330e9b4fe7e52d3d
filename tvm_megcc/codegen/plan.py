# SPDX-License-Identifier: Apache-2.0
"""Lowers a graph to kernel calls on buffers, packs its weights (`plan_kernels`) and plans memory (`plan_memory`).

A *buffer* is memory with a live range. Each value lies in a buffer; views lie in that of their root. Buffers are merged
where a kernel works in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..context import Context
from ..errors import InternalError, MegccError
from ..ir.dims import Dim, likely, number, round_up, substitute
from ..ir.graph import EXTENT, Graph, Op, bodies_of, unused
from ..ir.shapes import EVERYTHING, Bucket, UnbackedSymbol, unbacked_symbols, with_unbacked_symbols
from ..ir.types import to_layout
from ..kernels import packing as pack
from ..kernels.base import Operand
from ..kernels.site import Site
from ..ops.base import operator
from ..passes.layout.choose import Placed
from ..passes.memory.views import Forwarding, Location, forward
from ..target import Target
from . import container
from .c_source.bind import Bound, KernelSpec, bind, with_equal_constants
from .flow import Control, Mark
from .memory import offsets as memory
from .states import updated_in_place, verify_updates


@dataclass(frozen=True)
class Weight:
    """A packed constant. source: the constant's name. data: its elements, flattened, in the order in which the kernel
    reads them."""

    source: str
    data: np.ndarray

    @property
    def content(self) -> memoryview:
        """The bytes of `data`."""
        return self.data.reshape(-1).view(np.uint8).data

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of `content`."""
        return hashlib.sha256(self.content).digest()


@dataclass(frozen=True)
class Step:
    """A kernel call. inputs, outputs: names of values or weights, in the order of the kernel's operands."""

    bound: Bound
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def spec(self) -> KernelSpec:
        return self.bound.spec

    @property
    def op(self) -> Op:
        return self.bound.op

    @property
    def takes_over(self) -> tuple[tuple[int, int], ...]:
        """Returns the in-place pairs (output, operand) that the kernel allows in this call."""
        return () if self.bound.no_takeover else self.spec.takes_over

    def size(self, dim: Dim) -> Dim:
        """Returns a size of the kernel with this call's extents, over the graph's symbols."""
        return substitute(dim, dict(zip(self.spec.runtime_extents, self.bound.extents, strict=True)))


@dataclass(frozen=True)
class KernelPlan:
    """A graph as kernel calls.

    graph: with its final operators and layouts.
    locations: value -> its root, whose buffer it lies in, and its byte offset there.
    weights: packed constants by name.
    workers: the number of threads, of which each has scratch memory.
    before: step -> the control flow before it, or after all steps; operators with subgraphs are in it until `inlined`
        replaces them.
    loops: the steps [begin, end) of each loop, inner ones first.
    """

    graph: Graph
    context: Context
    steps: tuple[Step, ...]
    locations: Mapping[str, Location]
    weights: Mapping[str, Weight]
    workers: int = 1
    before: Mapping[int, tuple[Control | Op, ...]] = field(default_factory=dict)
    loops: tuple[tuple[int, int], ...] = ()

    @property
    def target(self) -> Target:
        return self.context.target

    @property
    def outside(self) -> frozenset[str]:
        """Returns the inputs that are in the caller's memory."""
        states = {name for _, name in self.graph.states}
        return frozenset(self.graph.inputs) - states if self.context.caller_inputs else frozenset()

    def workspace(self, index: int) -> Dim:
        """Returns the bytes of workspace of a step: the shared part, then the scratch of each worker, all aligned."""
        step, alignment = self.steps[index], self.target.isa.alignment
        return (round_up(step.size(step.spec.shared), alignment)
                + self.workers * round_up(step.size(step.spec.scratch), alignment))

    def buckets(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Returns the buckets of input shapes, with the bounds of unbacked symbols in the order in which a run computes
        them."""
        symbols = [item for _, items in sorted(self.before.items()) for item in items
                   if isinstance(item, UnbackedSymbol)]
        return [with_unbacked_symbols(bucket, symbols) for bucket in buckets]

    def unbounded(self, buckets: Sequence[Bucket]) -> frozenset[str]:
        """Returns the values with memory of their own whose size has no limit in some bucket: they are allocated when
        they are written."""
        roots = {location.root for location in self.locations.values()}
        return frozenset(root for root in roots
                         if any(bucket.largest(self.graph.types[root].bytes) is None for bucket in buckets))

    def releases(self, unbounded: Container[str]) -> dict[int, list[str]]:
        """Returns {step: the allocated values that are dead after it}; `unbounded` has the allocated values."""
        of_caller = {self.locations[name].root for name in (*self.graph.inputs, *self.graph.outputs)}
        found: dict[int, list[str]] = {}
        for name, (_, index) in self.lifetimes().items():
            if name in unbounded and name not in of_caller:
                found.setdefault(index, []).append(name)
        return found

    def control_flow(self, index: int) -> list[Control]:
        """Returns the instructions before a step; jump targets (`Mark`) are none."""
        return [item for item in self.before.get(index, ()) if not isinstance(item, (Mark, Op))]

    def lifetimes(self) -> dict[str, list[int]]:
        """Returns the first and the last step that accesses each buffer. Control flow before a step counts as the step.
        Values that a loop does not rewrite in each iteration count as accessed by its last step."""
        ranges: dict[str, list[int]] = {}
        for index, step in enumerate(self.steps):
            for name in (*step.inputs, *step.outputs):
                _extend_range(ranges, self.locations, name, index)
        for index, items in self.before.items():
            for item in items:
                for name in item.values:
                    _extend_range(ranges, self.locations, name, index)
        for begin, end in self.loops:
            written = {self.locations[name].root for step in self.steps[begin:end] for name in step.outputs}
            for root, span in ranges.items():
                if begin <= span[1] < end and root not in written:
                    span[1] = end
        return ranges


def plan_kernels(placed: Placed, context: Context, workers: int = 1) -> KernelPlan:
    """Binds every operator except views to its kernel, and packs weights.

    Args:
        placed: the graph in its final order, with copies where views are impossible, and the choice of kernel for each
            operator.
        context: what kernels are chosen for.
        workers: the number of threads.
    """
    graph = placed.graph

    def peak(forwarding: Forwarding) -> int:
        return memory.lower_bound(_buffers_of(graph, forwarding))

    forwarding = forward(graph, peak, placed.whole)
    calls: list[Bound] = []
    before: dict[int, tuple[Control | Op, ...]] = {}
    for position, op in enumerate(graph.ops):
        step = len(calls)
        if position not in forwarding.elided and not bodies_of(op):
            calls.append(bind(Site.of(graph, op, context), placed.choices[op.outputs[0]],
                              shared=op.outputs[0] in placed.part_of))
        elif op.kind == EXTENT:
            before[step] = (*before.get(step, ()), *unbacked_symbols(graph.with_(ops=(op,))))
        elif position not in forwarding.elided:
            before[step] = (*before.get(step, ()), op)
    weights: dict[str, Weight] = {}
    packed: dict[tuple[str, tuple, tuple], str] = {}
    steps = []
    for bound in with_equal_constants(calls) if context.compact else _parts_with_constants(calls, placed.part_of):
        inputs = tuple(_operand(graph, bound.op, operand, weights, packed) for operand in bound.inputs)
        steps.append(Step(bound, inputs, tuple(bound.op.outputs[operand.index] for operand in bound.outputs)))
    return KernelPlan(graph, context, tuple(steps), forwarding.locations, weights, workers, before)


def _parts_with_constants(calls: list[Bound], part_of: Mapping[str, str]) -> list[Bound]:
    """Returns the calls; those of the parts of one operator share kernels, whose equal extents become constants.

    Args:
        part_of: first result of a part -> name of the operator that was split.
    """
    groups: dict[str, list[int]] = {}
    for index, bound in enumerate(calls):
        if bound.op.outputs[0] in part_of:
            groups.setdefault(part_of[bound.op.outputs[0]], []).append(index)
    for indices in groups.values():
        for index, bound in zip(indices, with_equal_constants([calls[index] for index in indices]), strict=True):
            calls[index] = bound
    return calls


def _operand(graph: Graph, op: Op, operand: Operand, weights: dict[str, Weight], packed: dict[tuple, str]) -> str:
    """Returns the name of the value that an operand reads or, for a constant, of its packed weight.

    Args:
        weights: the weights so far, to which a new one is added: each packing of a constant has its own name.
        packed: (constant, packing, other constants that it reads) -> name of the weight.
    """
    name, packing = op.inputs[operand.index], operand.pack
    if name not in graph.constants:
        return name
    others = tuple(op.inputs[index] for index in operand.also)
    if (name, packing, others) not in packed:
        weight = unused(f"{name}|{'.'.join(map(str, packing))}", graph.types, weights) if packing else name
        array = graph.constants[name]
        data = pack.pack(packing, array, *map(graph.constants.__getitem__, others)) if packing \
            else to_layout(array, graph.types[name].layout)
        weights[weight] = Weight(name, np.ascontiguousarray(data).reshape(-1))
        packed[name, packing, others] = weight
    return packed[name, packing, others]


def _buffers_of(graph: Graph, forwarding: Forwarding) -> list[memory.Buffer]:
    """Returns the buffers of the graph's values by operator position, before kernels are chosen."""
    ranges: dict[str, list[int]] = {}
    for name in graph.inputs:
        _extend_range(ranges, forwarding.locations, name, 0)
    for position, op in enumerate(graph.ops):
        if position not in forwarding.elided:
            for name in (*op.inputs, *op.outputs):
                _extend_range(ranges, forwarding.locations, name, position)
    for name in graph.outputs:
        _extend_range(ranges, forwarding.locations, name, len(graph.ops))
    return [memory.Buffer(root, likely(graph.types[root].bytes), first, last)
            for root, (first, last) in ranges.items()]


def _extend_range(ranges: dict[str, list[int]], locations: Mapping[str, Location], name: str, step: int) -> None:
    """Extends the live range of the buffer of a value, so that it includes a step."""
    if name in locations:
        span = ranges.setdefault(locations[name].root, [step, step])
        span[0], span[1] = min(span[0], step), max(span[1], step)


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
    for source, state in updated.items():
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
    sizes = {name: bucket.largest(plan.graph.types[name].bytes) for name in offsets}
    verify_updates(plan, updated, offsets, sizes)
    copied = [b for b in buffers if b.kind == "constant"]
    offsets |= {b.name: result.offsets[b.name] for b in copied}
    sizes |= {b.name: b.bytes for b in copied}
    workspace_offsets = tuple(None if size is None else result.offsets.get(f"workspace {index}", result.arena_bytes)
                              for index, size in enumerate(workspaces))
    return PlannedMemory(bucket, result, tuple(buffers), offsets, sizes, workspace_offsets, updated)


def _live_ranges(plan: KernelPlan, keep_inputs: bool, unbounded: Container[str]) -> dict[str, list[int]]:
    """Returns the first and the last step of each buffer of the arena. Inputs are alive from the beginning, outputs
    until the end; states, and inputs that are kept, all the time."""
    ranges, end = plan.lifetimes(), len(plan.steps)
    undying = set(plan.graph.inputs) if keep_inputs else {name for _, name in plan.graph.states}
    for name in plan.graph.inputs:
        _extend_range(ranges, plan.locations, name, 0)
        if name in undying:
            _extend_range(ranges, plan.locations, name, end)
    for name in plan.graph.outputs:
        _extend_range(ranges, plan.locations, name, end)
    return {root: span for root, span in ranges.items() if root not in unbounded and root not in plan.outside}


def _buffers(plan: KernelPlan, bucket: Bucket, ranges: Mapping[str, Sequence[int]], merged: Mapping[str, str],
             workspaces: Sequence[int | None], traffic: Mapping[str, float]) -> list[memory.Buffer]:
    """Returns the buffers of values and of workspaces, with their sizes for the largest shape in the bucket."""
    taken_over = _taken_over(plan, ranges, merged)
    buffers = [memory.Buffer(root, bucket.largest(plan.graph.types[root].bytes), first, last,
                             kind=_buffer_kind(plan.graph, plan.locations, root, merged), on=taken_over.get(root, ""),
                             traffic=traffic.get(root, 1.0)) for root, (first, last) in ranges.items()]
    return buffers + [memory.Buffer(f"workspace {index}", size, index, index, kind="workspace",
                                    traffic=traffic.get(f"workspace {index}", 0) / size)
                      for index, size in enumerate(workspaces) if size]


def own_bytes(plan: KernelPlan) -> int:
    """Returns the bytes that a session of a program with known shapes needs besides the arena, on its target."""
    operands = max((len(step.inputs) + len(step.outputs) for step in plan.steps), default=0)
    return container.session_bytes(plan.target.pointer_bytes, plan.target.isa.alignment,
                                   len(plan.graph.inputs) + len(plan.graph.outputs) + operands, plan.workers, 0)


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
                         f"{states + own_bytes(plan) - size:,} too few")
    return sizes


def _traffic(plan: KernelPlan, merged: Mapping[str, str]) -> dict[str, float]:
    """Estimates how often a run accesses a byte of each buffer and weight, and the accessed bytes of each workspace.

    The model: a multiply-accumulate reads one element of the first operand and one of the largest operand; each element
    of the result reads one element of every other weight; any other value is read or written once.
    """
    graph = plan.graph
    accessed: dict[str, float] = {}  # buffer, weight or workspace -> bytes
    sizes: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        op = step.op
        types, results = graph.input_types(op)[:len(op.own_inputs)], graph.output_types(op)
        macs = operator(op.kind).macs(op.attrs, types, results)
        elements = {name: plan.weights[name].data.size if name in plan.weights else graph.types[name].size
                    for name in (*step.inputs, *step.outputs)}
        written = max(elements[name] for name in step.outputs)
        multiplied = {step.inputs[0], max(step.inputs, key=elements.__getitem__)} if step.inputs and macs else set()
        for name in dict.fromkeys((*step.inputs, *step.outputs)):
            is_weight = name in plan.weights
            bytes_ = plan.weights[name].data.nbytes if is_weight else graph.types[name].bytes
            root = name if is_weight else _merged_into(plan.locations[name].root, merged)
            count = macs if name in multiplied else written if is_weight else elements[name]
            accessed[root] = accessed.get(root, 0) + count * bytes_ / max(elements[name], 1)
            sizes.setdefault(root, bytes_ if is_weight else graph.types[root].bytes)
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
    graph, merged = plan.graph, {}
    inputs, outputs = _ports(plan)

    def buffer(root: str) -> str:
        return _merged_into(root, merged)

    for index, step in enumerate(plan.steps):
        for output, operand in step.spec.in_place:
            target, source = step.outputs[output], step.inputs[operand]
            if source not in plan.locations or plan.locations[source].offset or plan.locations[target].offset:
                continue
            target_root, source_root = plan.locations[target].root, plan.locations[source].root
            new, old = buffer(target_root), buffer(source_root)
            if new not in ranges or old not in ranges:
                continue
            if graph.types[target_root].bytes != graph.types[source].bytes \
                    or graph.types[source_root].bytes != graph.types[source].bytes:
                continue
            if new == old or ranges[old][1] != index or ranges[new][0] != index:
                continue
            if (old in inputs or source_root in inputs) and target_root in outputs:
                continue  # the caller may write the next input while it reads this output
            if sum(plan.locations[name].root == source_root for name in step.inputs if name in plan.locations) > 1:
                continue
            merged[new] = old
            ranges[old][1] = ranges.pop(new)[1]
            if target_root in outputs:
                outputs.add(old)
            break
    return merged


def _taken_over(plan: KernelPlan, ranges: Mapping[str, Sequence[int]], merged: Mapping[str, str]) -> dict[str, str]:
    """Returns {buffer of an output: buffer of the operand whose memory it takes over}. The two may differ in size."""
    found: dict[str, str] = {}
    inputs, outputs = _ports(plan)

    def buffer(name: str) -> str:
        return _merged_into(plan.locations[name].root, merged)

    for index, step in enumerate(plan.steps):
        for output, operand in step.takes_over:
            target, source = step.outputs[output], step.inputs[operand]
            if source not in plan.locations or plan.locations[source].offset or plan.locations[target].offset:
                continue
            new, old = buffer(target), buffer(source)
            readers = sum(buffer(name) == old for name in step.inputs if name in plan.locations)
            if new == old or new not in ranges or old not in ranges or old in found.values() or readers > 1:
                continue
            if ranges[old][0] < ranges[old][1] == index == ranges[new][0] and not (old in inputs and new in outputs):
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


def distinct_specs(plans: Sequence[KernelPlan]) -> tuple[KernelSpec, ...]:
    """Returns the kernels of some plans, in order of first use.

    Raises:
        InternalError: if two different kernels have the same name.
    """
    specs = tuple(dict.fromkeys(step.spec for plan in plans for step in plan.steps))
    named: dict[str, KernelSpec] = {}
    for spec in specs:
        if named.setdefault(spec.symbol, spec) is not spec:
            raise InternalError(f"two kernels are called {spec.symbol}:\n{named[spec.symbol]}\n{spec}")
    return specs
