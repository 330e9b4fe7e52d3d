# SPDX-License-Identifier: Apache-2.0
"""Lowers a graph to kernel calls on buffers, and packs its weights (`plan_kernels`).

A *buffer* is memory with a live range. Each value lies in a buffer; views lie in that of their root.
`memory/planner.py` assigns offsets to the buffers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..context import Context
from ..errors import InternalError
from ..ir.dims import Dim, likely, round_up, substitute
from ..ir.graph import EXTENT, Graph, Op, bodies_of, unused
from ..ir.shapes import Bucket, UnbackedSymbol, unbacked_symbols, with_unbacked_symbols
from ..ir.types import to_layout
from ..kernels import packing as pack
from ..kernels.base import Operand
from ..kernels.site import Site
from ..passes.layout.choose import Placed
from ..passes.memory.views import Forwarding, Location, forward
from ..target import Target
from .c_source.bind import Bound, KernelSpec, bind, with_equal_constants
from .flow import Control, Mark
from .memory import offsets as memory


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


class _Packed(NamedTuple):
    """A packing of a constant: its name, the packing, the dtype in memory ("": the packer's), the other constants that
    the packing reads."""

    name: str
    packing: tuple[Any, ...]
    dtype: str
    others: tuple[str, ...]


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
        """Returns the pairs (output, operand) in which the output may take over the operand's memory in this call."""
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
    def caller_ports(self) -> frozenset[str]:
        """Returns the inputs and outputs that are in the caller's memory, of which the arena has no part."""
        states = {name for pair in self.graph.states for name in pair}
        inputs = frozenset(self.graph.inputs) if self.context.caller_inputs else frozenset()
        return (inputs | self.graph.caller_outputs.intersection(self.graph.outputs)) - states

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
        A loop [begin, end) reads values that it does not write again in its next iteration, so they live until step
        `end`: the jump back is in the control flow before that step."""
        ranges: dict[str, list[int]] = {}
        for index, step in enumerate(self.steps):
            for name in (*step.inputs, *step.outputs):
                extend_range(ranges, self.locations, name, index)
        for index, items in self.before.items():
            for item in items:
                assert not isinstance(item, Op), "operators with subgraphs are inlined before memory is planned"
                for name in item.values:
                    extend_range(ranges, self.locations, name, index)
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
    # An operator that was split into parts has one kernel for all of them, whose extents are known at run time. Loops
    # of the safety profile need constant bounds, so there parts are bound like other operators.
    part_of: Mapping[str, str] = {} if context.safe else placed.part_of

    def peak(forwarding: Forwarding) -> int:
        """Returns a lower bound of the arena's bytes with these views."""
        return memory.lower_bound(_buffers_of(graph, forwarding))

    # placed.whole: results of concats whose operands are computed in place.
    forwarding = forward(graph, peak, placed.whole)
    calls: list[Bound] = []
    before: dict[int, tuple[Control | Op, ...]] = {}
    for position, op in enumerate(graph.ops):
        step = len(calls)
        if position not in forwarding.elided and not bodies_of(op):
            calls.append(bind(Site.of(graph, op, context), placed.choices[op.outputs[0]],
                              for_several_calls=op.outputs[0] in part_of))
        elif op.kind == EXTENT:  # makes a symbol known; its result is a view of its operand, so it calls no kernel
            before[step] = (*before.get(step, ()), *unbacked_symbols(graph.with_(ops=(op,))))
        elif position not in forwarding.elided:
            before[step] = (*before.get(step, ()), op)
    weights: dict[str, Weight] = {}
    packed: dict[_Packed, str] = {}
    steps = []
    # At `-O size` all calls share kernels; otherwise only the parts of one operator do.
    for bound in with_equal_constants(calls) if context.compact else _parts_with_constants(calls, part_of):
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


def _operand(graph: Graph, op: Op, operand: Operand, weights: dict[str, Weight],
             packed: dict[_Packed, str]) -> str:
    """Returns the name of the value that an operand reads or, for a constant, of its packed weight.

    Args:
        weights: the weights so far, to which a new one is added: each packing of a constant has its own name.
        packed: packing of a constant -> name of the weight.
    """
    name, packing = op.inputs[operand.index], operand.pack
    if name not in graph.constants:
        return name
    key = _Packed(name, packing, operand.dtype, tuple(op.inputs[index] for index in operand.also))
    if key not in packed:
        weight = unused("|".join(filter(None, (name, ".".join(map(str, packing)), operand.dtype))), graph.types,
                        weights) if packing else name
        array = graph.constants[name]
        data = pack.pack(packing, array, *map(graph.constants.__getitem__, key.others), dtype=operand.dtype) \
            if packing else to_layout(array, graph.types[name].layout)
        weights[weight] = Weight(name, np.ascontiguousarray(data).reshape(-1))
        packed[key] = weight
    return packed[key]


def _buffers_of(graph: Graph, forwarding: Forwarding) -> list[memory.Buffer]:
    """Returns the buffers of the graph's values by operator position, before kernels are chosen."""
    ranges: dict[str, list[int]] = {}
    for name in graph.inputs:
        extend_range(ranges, forwarding.locations, name, 0)
    for position, op in enumerate(graph.ops):
        if position not in forwarding.elided:
            for name in (*op.inputs, *op.outputs):
                extend_range(ranges, forwarding.locations, name, position)
    for name in graph.outputs:
        extend_range(ranges, forwarding.locations, name, len(graph.ops))
    return [memory.Buffer(root, likely(graph.types[root].bytes), first, last)
            for root, (first, last) in ranges.items()]


def extend_range(ranges: dict[str, list[int]], locations: Mapping[str, Location], name: str, step: int) -> None:
    """Extends the live range of the buffer of a value, so that it includes a step."""
    if name in locations:
        span = ranges.setdefault(locations[name].root, [step, step])
        span[0], span[1] = min(span[0], step), max(span[1], step)


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
