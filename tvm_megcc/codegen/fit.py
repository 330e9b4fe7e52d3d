# SPDX-License-Identifier: Apache-2.0
"""Fits a program into a limit of RAM: chooses regions of operators to compute by strips of rows, or explains why no
choice fits.

A region is a range of consecutive operators. Its memory does not depend on the choices for other regions. So the
cheapest choice under a limit is a shortest path: its nodes are the positions between operators, its edges single
operators and regions, the length of an edge is the work that strips add. The search only estimates memory; the memory
planner determines it. If a plan exceeds the real limit, the search is repeated with a lower limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..context import Context
from ..errors import MegccError, quoted
from ..foreign import printable
from ..ir.dims import number
from ..ir.graph import Graph, Op
from ..passes.layout.choose import Placed
from ..passes.memory.rows import HEIGHT, strips_of
from ..passes.memory.strips import Part, Region, cut, is_region, macs_of, parts_of
from ..passes.memory.views import with_copies
from ..target import Target
from . import container
from .container import Image
from .device_model import part_of
from .inline import inlined
from .machines import machines
from .memory.offsets import live_bytes
from .memory.planner import PlannedMemory, own_bytes
from .plan import KernelPlan, plan_kernels

#: The most operators in a region.
MAX_REGION_OPERATORS = 24
#: The most plans that are tried; then the best one is used.
MAX_PLANS = 10
#: The most strips of a region.
MAX_STRIPS = 64
#: Rough costs, in multiply-accumulates: of a call, and of copying a byte. They only rank choices that fit.
CALL_MACS, COPIED_BYTE_MACS = 500, 0.25
#: Assumed bytes of workspace that do not shrink with fewer rows.
FIXED_WORKSPACE_BYTES = 4 << 10
#: The most buffers that a message lists.
MAX_LISTED = 4

Memories = Callable[[KernelPlan], list[PlannedMemory]]


@dataclass(frozen=True)
class SplitRegion:
    """A region of operators that is computed by strips of rows.

    first, last: its first and last operator.
    strips: the number of strips.
    macs: multiply-accumulates that are repeated.
    buffer_bytes: bytes of the rows that are kept between strips instead.
    """

    first: Op
    last: Op
    strips: int
    macs: int
    buffer_bytes: int


@dataclass(frozen=True)
class Fitted:
    """The result of `fit`: the graph with its strips, its kernels, and the regions that were split."""

    placed: Placed
    plan: KernelPlan
    split_regions: tuple[SplitRegion, ...] = ()


def memory_bytes(plan: KernelPlan, memories: Sequence[PlannedMemory]) -> int:
    """Returns the bytes that a session of a program with known shapes needs, on its target."""
    return own_bytes(plan) + max(planned.plan.arena_bytes for planned in memories)


def _missing(plan: KernelPlan, memories: Sequence[PlannedMemory]) -> int:
    """Returns the bytes that are missing; 0 or less if the program fits."""
    if plan.context.regions is not None:
        return max(planned.plan.missing for planned in memories)
    return 0 if plan.context.ram is None else memory_bytes(plan, memories) - plan.context.ram


def fit(placed: Placed, context: Context, workers: int, memories: Memories,
        bodies: Mapping[str, Sequence[KernelPlan]]) -> Fitted:
    """Returns the kernels of a graph in its final order, with regions in strips if the context's limit of RAM needs it.

    Args:
        workers: number of threads, of which each has scratch memory.
        memories: plans the memory of some kernels, for each bucket.
        bodies: the plans of operators' subgraphs, by first result.

    Raises:
        MegccError: if no choice meets the limit.
    """
    def planned(placed: Placed) -> KernelPlan:
        return inlined(plan_kernels(with_copies(placed, context), context, workers), bodies)

    plan = planned(placed)
    if context.ram is None and context.regions is None:
        return Fitted(placed, plan)
    unsplit = memories(plan)
    missing = _missing(plan, unsplit)
    if missing <= 0:
        return Fitted(placed, plan)
    largest = max(unsplit, key=lambda m: m.plan.arena_bytes)
    closest = missing, plan, unsplit
    for search, limit in _limits_to_try(placed.graph, plan, largest, largest.plan.arena_bytes - missing):
        regions = search.cheapest(limit) or []
        without_kernels = [region for region in regions if cut(placed, [region], context) is None]
        split = cut(placed, regions, context) if regions and not without_kernels else None
        if split is None:
            search.record_refused(without_kernels)
            continue
        attempt = planned(split)
        arenas = memories(attempt)
        missing = _missing(attempt, arenas)
        if missing <= 0:
            return Fitted(split, attempt, tuple(map(search.split_region, regions)))
        closest = min(closest, (missing, attempt, arenas), key=lambda row: row[0])
        search.record_excess(missing)
    raise MegccError(_refusal(context, *closest))


def _limits_to_try(graph: Graph, plan: KernelPlan, planned: PlannedMemory, target: int) \
        -> Iterator[tuple[_Search, int]]:
    """Yields limits of the arena in bytes, each with the search to use: first one that assumes that kernels need less
    workspace for fewer rows, then one that assumes the same workspace."""
    for scales_workspace in (True, False):
        search = _Search(graph, plan, planned, scales_workspace)
        yield from ((search, limit) for limit in search.limits(target))


def split_regions_text(regions: Sequence[SplitRegion]) -> str:
    """Lists the regions that are computed by strips, a line for each."""
    return "".join(f"{region.strips} strips of rows from {printable(region.first.origin)} to "
                   f"{printable(region.last.origin)}: {region.macs:,} multiply-accumulates are done twice, "
                   f"{region.buffer_bytes:,} bytes are kept between strips\n" for region in regions)


def require_memory(name: str, image: Image, targets: Sequence[Target], ram: int | None, flash: int | None) -> None:
    """Raises MegccError for a container whose sessions need more RAM than there is, or whose data alone is larger than
    flash. ram, flash: limits in bytes; None: no limit."""
    for row, target in zip(image.model.programs, targets, strict=True):
        needed = container.program_bytes(row, target.pointer_bytes)
        if ram is not None and needed > ram:
            raise MegccError(f"{name} does not fit on {target}: it needs {needed:,} bytes of RAM, the limit is "
                             f"{ram:,}: {needed - ram:,} bytes are missing")
    for machine in machines(targets):
        size = len(Image(part_of(image.model, machine.codes))) if flash is not None else 0
        if flash is not None and size > flash:
            raise MegccError(f"{name} does not fit on {', '.join(map(str, machine.targets))}: without its code it "
                             f"needs {size:,} bytes of flash, the limit is {flash:,}: {size - flash:,} bytes are "
                             "missing")


def _refusal(context: Context, missing: int, plan: KernelPlan, memories: Sequence[PlannedMemory]) -> str:
    """Returns the error text: which tensors do not fit, which are alive at the peak, and what would help."""
    planned = max(memories, key=lambda m: m.plan.arena_bytes)
    needed = memory_bytes(plan, memories)
    given = f"the limit is {context.ram:,}" if context.regions is None else f"the regions are {context.regions}"
    live = live_bytes(planned.buffers, planned.plan.alignment, len(plan.steps))
    peak = live.index(max(live))
    alive = sorted((b for b in planned.buffers if b.first <= peak <= b.last and b.bytes), key=lambda b: -b.bytes)
    lines = [f"{plan.graph.name} does not fit on {context.target}: it needs {needed:,} bytes of RAM, {given}: "
             f"{missing:,} bytes are missing",
             f"  The peak is at {plan.steps[peak].op.kind} {quoted(plan.steps[peak].op.origin)}:"]
    end = planned.plan.arena_bytes - planned.plan.missing
    beyond = [" (in no region)" if planned.plan.regions and planned.plan.offsets[b.name] + b.bytes > end else ""
              for b in alive]
    lines += [f"    {b.bytes:12,}  {b.kind} {quoted(b.name)}{note}"
              for b, note in zip(alive[:MAX_LISTED], beyond, strict=False)]
    if len(alive) > MAX_LISTED:
        lines.append(f"    {sum(b.bytes for b in alive[MAX_LISTED:]):12,}  {len(alive) - MAX_LISTED} more")
    has_inputs = any(b.kind == "input" for b in alive)
    advice = "; so would --caller-inputs, which leaves inputs where the caller has them" if has_inputs else ""
    lines.append("  Layers that can be computed in strips of rows already are. A smaller input, or fewer channels at "
                 f"the peak, would help{advice}.")
    return "\n".join(lines)


class _Search:
    """Chooses regions of a graph whose plan with whole tensors is known.

    scales_workspace: assume that a kernel needs less workspace for fewer rows. steps: the step of each operator in the
    plan; None for views, loops and branches. live: the bytes that are alive while each operator runs on whole tensors.
    workspaces: step -> bytes.
    """

    def __init__(self, graph: Graph, plan: KernelPlan, planned: PlannedMemory, scales_workspace: bool):
        self.graph, self.plan, self.scales_workspace = graph, plan, scales_workspace
        self.readers = graph.consumers()
        step_of_output = {step.op.outputs[0]: index for index, step in enumerate(plan.steps)}
        self.steps = [step_of_output.get(op.outputs[0]) for op in graph.ops]
        live = live_bytes(planned.buffers, planned.plan.alignment, len(plan.steps))
        self.live = [0 if step is None else live[step] for step in self.steps]
        self.buffers, self.alignment = planned.buffers, planned.plan.alignment
        self.workspaces = {b.first: b.bytes for b in planned.buffers if b.kind == "workspace"}
        self.excess = 0
        self._costs: dict[tuple[int, int], _RegionCosts | None] = {}

    def limits(self, target: int) -> Iterator[int]:
        """Yields falling limits of the arena to try, from `target` bytes on. `record_excess` tells by how many bytes
        the plan of the last limit was too large."""
        lowest = self._lowest_limit(target)
        for _ in range(MAX_PLANS):
            self.excess = 0
            yield max(target, lowest)
            if target <= lowest:
                return
            target -= max(self.excess, self.alignment)

    def record_excess(self, bytes_: int) -> None:
        """Records by how many bytes the plan of the last limit exceeds the real limit."""
        self.excess = bytes_

    def record_refused(self, regions: Sequence[Region]) -> None:
        """Records regions that have no kernels."""
        for region in regions:
            costs = self._costs[region.first, region.last]
            assert costs is not None
            costs.by_strips[region.count, region.reuses_rows] = None

    def _lowest_limit(self, target: int) -> int:
        """Returns, by bisection and up to 1/256 too high, the lowest limit that this search can meet. If it can meet
        `target`, the lowest one is not sought below half of it: `limits` ends there."""
        low, high = 0, max(self.live)
        if self.cheapest(target) is not None:
            low, high = target // 2, target
        while high - low > max(64, high // 256):
            middle = (low + high) // 2
            low, high = (low, middle) if self.cheapest(middle) is not None else (middle, high)
        return high

    def step_of(self, position: int) -> int:
        """Returns the step of an operator of a region. Operators that work on rows are neither views nor loops."""
        step = self.steps[position]
        assert step is not None
        return step

    def split_region(self, region: Region) -> SplitRegion:
        """Returns the facts about a region that `cheapest` chose."""
        ops, costs = self.graph.ops, self._costs[region.first, region.last]
        assert costs is not None
        cost = costs.of(region.count, region.reuses_rows)
        assert cost is not None
        return SplitRegion(ops[region.first], ops[region.last], len(strips_of(costs.height, region.count)), cost.macs,
                           cost.buffer_bytes)

    def cheapest(self, limit: int) -> list[Region] | None:
        """Returns the regions that add the least work (multiply-accumulates, calls, copies) among those that need at
        most `limit` bytes; None if all need more."""
        count = len(self.graph.ops)
        # For each position between operators: the added work of the cheapest choice for all operators before it, and
        # the region that ends there, None for an operator on whole tensors.
        best: list[tuple[float, Region | None] | None] = [(0.0, None), *[None] * count]
        for last in range(count):
            before = best[last]
            if before is not None and self.live[last] <= limit:
                best[last + 1] = before[0], None
            for work, region in self._regions_until(last, limit, best):
                present = best[last + 1]
                if present is None or work < present[0]:
                    best[last + 1] = work, region
        if best[count] is None:
            return None
        regions, position = [], count
        while position:
            found = best[position]
            assert found is not None
            _, region = found
            if region is not None:
                regions.append(region)
            position = region.first if region is not None else position - 1
        return regions[::-1]

    def _regions_until(self, last: int, limit: int, best: Sequence[tuple[float, Region | None] | None]) \
            -> Iterator[tuple[float, Region]]:
        """Yields the regions that end with operator `last`, each with the added work of all operators up to it. Regions
        whose operators fit on whole tensors are left out."""
        for first in range(last, max(-1, last - MAX_REGION_OPERATORS), -1):
            costs = self._costs_of(first, last)
            if costs is None:  # then no region begins before `first` either: it would have the same operators and more
                break
            start = best[first]
            if start is None or max(self.live[first:last + 1]) <= limit:
                continue
            for reuses_rows in (False, True):
                fewest = costs.fewest(limit, reuses_rows)
                if fewest is not None:
                    strips, cost = fewest
                    work = start[0] + cost.macs + CALL_MACS * cost.calls + cost.copied * COPIED_BYTE_MACS
                    yield work, Region(first, last, strips, reuses_rows)

    def _costs_of(self, first: int, last: int) -> _RegionCosts | None:
        """Returns the costs of the region; None if the operators cannot be computed by strips."""
        if (first, last) not in self._costs:
            can_split = is_region(self.graph, first, last, self.readers)
            self._costs[first, last] = _RegionCosts(self, first, last) if can_split else None
        return self._costs[first, last]


@dataclass(frozen=True)
class _StripCost:
    """The cost of one choice of strips.

    bytes: an upper bound of the bytes that are alive at any time, those of other operators' values included.
    macs: multiply-accumulates that are repeated.
    calls: number of kernel calls.
    buffer_bytes: bytes of the rows that are kept between two strips.
    copied: bytes that are copied for them in total.
    """

    bytes: int
    macs: int
    calls: int
    buffer_bytes: int
    copied: int


class _RegionCosts:
    """Computes the costs of a region for numbers of strips, with or without rows kept between them.

    height: rows of the region's result. around: bytes that are alive during the whole region: its result, and the
    buffers of others. by_strips: the costs known so far, by number of strips and whether rows are kept.
    """

    def __init__(self, search: _Search, first: int, last: int):
        self.search, self.first, self.last = search, first, last
        graph, step = search.graph, search.step_of(first)
        self.height = number(graph.types[graph.ops[last].outputs[0]].shape[HEIGHT])
        self.by_strips: dict[tuple[int, bool], _StripCost | None] = {}
        around = sum(_padded(b.bytes, search.alignment) for b in search.buffers
                     if b.kind != "workspace" and (b.first < step or b.kind in ("input", "state")) and b.last >= step)
        self.around = around + _padded(graph.types[graph.ops[last].outputs[0]].bytes, search.alignment)

    def fewest(self, limit: int, reuses_rows: bool) -> tuple[int, _StripCost] | None:
        """Returns the fewest strips, at least two, that need at most `limit` bytes, and their cost; None if the
        most strips need more. The search is a bisection: it assumes that more strips never need more bytes."""
        if self.around > limit:
            return None
        low, high = 1, min(self.height, MAX_STRIPS)
        if not self._fits(high, reuses_rows, limit):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(middle, reuses_rows, limit) else (middle, high)
        cost = self.of(high, reuses_rows)
        return (high, cost) if cost else None

    def _fits(self, count: int, reuses_rows: bool, limit: int) -> bool:
        found = self.of(count, reuses_rows)
        return found is not None and found.bytes <= limit

    def of(self, count: int, reuses_rows: bool) -> _StripCost | None:
        """Returns the cost of `count` strips; None if the region cannot be divided so, or there are no rows to keep."""
        if (count, reuses_rows) not in self.by_strips:
            region = Region(self.first, self.last, count, reuses_rows)
            self.by_strips[count, reuses_rows] = self._strip_cost(parts_of(self.search.graph, region), reuses_rows)
        return self.by_strips[count, reuses_rows]

    def _strip_cost(self, strips: Sequence[Sequence[Part]] | None, reuses_rows: bool) -> _StripCost | None:
        if strips is None:
            return None
        graph = self.search.graph
        parts = [part for strip in strips for part in strip]
        retained = [self._rows_bytes(part.op, part.retained.count) for part in parts]
        if reuses_rows and not any(retained):
            return None
        buffers: dict[str, int] = {}  # result -> bytes of the rows that are kept, for the strip that keeps most
        for part, bytes_ in zip(parts, retained, strict=True):
            buffers[part.op.outputs[0]] = max(bytes_, buffers.get(part.op.outputs[0], 0))
        macs = sum(macs_of(graph, part.op, part.new.count) for part in parts)
        macs_without_strips = sum(macs_of(graph, op) for op in graph.ops[self.first:self.last + 1])
        # Kept rows are copied twice: out of a strip's result, and into that of the next strip.
        calls = sum(1 for part in parts if part.new.count) + 2 * sum(1 for bytes_ in retained if bytes_)
        buffer_bytes = sum(buffers.values())
        return _StripCost(self.around + buffer_bytes + max(map(self._strip_bytes, strips)), macs - macs_without_strips,
                          calls, buffer_bytes, 2 * sum(retained))

    def _rows_bytes(self, op: Op, count: int) -> int:
        """Returns the bytes of `count` rows of an operator's result, padded to the alignment."""
        type_ = self.search.graph.types[op.outputs[0]]
        return _padded(type_.bytes * count // type_.shape[HEIGHT], self.search.alignment)

    def _strip_bytes(self, parts: Sequence[Part]) -> int:
        """Bounds the bytes alive between the operators of a strip, with their workspace."""
        search = self.search
        positions = {op.outputs[0]: index for index, op in enumerate(search.graph.ops[self.first:self.last + 1])}
        last_use = {name: index for index, part in enumerate(parts) for name in part.op.inputs}
        alive: dict[str, int] = {}
        most = 0
        for index, part in enumerate(parts):
            (result,) = part.op.outputs
            rows_bytes = self._rows_bytes(part.op, part.rows.count)
            step = search.step_of(self.first + positions[result])
            call = search.plan.steps[step]
            dying = [name for name in alive if last_use[name] == index]
            replaced = 0
            may_work_in_place = bool(call.takes_over or call.spec.in_place)
            if index == len(parts) - 1:
                rows_bytes = 0  # it is computed in place in the whole result
            elif may_work_in_place and len(dying) == 1 and not part.retained.count:
                replaced = min(rows_bytes, alive[dying[0]])
            workspace = self._workspace(step, part.rows.count, part.op)
            most = max(most, sum(alive.values()) + rows_bytes - replaced + workspace)
            for name in dying:
                del alive[name]
            if index < len(parts) - 1:
                alive[result] = rows_bytes
        return most

    def _workspace(self, step: int, rows: int, op: Op) -> int:
        """Estimates the workspace of some rows of an operator. If a plan takes more, the limit of the search is
        lowered."""
        bytes_, height = self.search.workspaces.get(step, 0), self.search.graph.types[op.outputs[0]].shape[HEIGHT]
        return max(min(bytes_, FIXED_WORKSPACE_BYTES), bytes_ * rows // height) \
            if self.search.scales_workspace else bytes_


def _padded(bytes_: int, alignment: int) -> int:
    return -(-bytes_ // alignment) * alignment
