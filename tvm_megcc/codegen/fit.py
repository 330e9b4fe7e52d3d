# SPDX-License-Identifier: Apache-2.0
"""Fits a program into a limit of RAM: chooses operators to compute by strips of rows, or explains why that fails.

The memory of a region of consecutive operators does not depend on the choices for others. So the cheapest choice under
a limit is a shortest path over the operators in order. The memory planner determines how much memory a choice really
needs; the limit of the search is lowered until the plan meets the real limit.
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
from .plan import KernelPlan, PlannedMemory, own_bytes, plan_kernels

#: The most operators of a region.
LONGEST = 24
#: The most plans that are tried; then the best one is used.
ATTEMPTS = 10
#: The cost of a call, in multiply-accumulates.
CALL = 500
#: The cost of copying a byte, in multiply-accumulates.
COPIED = 0.25
#: Assumed bytes of workspace that do not shrink with fewer rows.
WORKSPACE = 4 << 10
#: The most buffers that a message lists.
LISTED = 4

Memories = Callable[[KernelPlan], list[PlannedMemory]]


@dataclass(frozen=True)
class Rows:
    """A region that is computed by strips.

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
    placed: Placed
    plan: KernelPlan
    rows: tuple[Rows, ...] = ()


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
    least, best = (missing, plan, unsplit), None
    for search, limit in _searched(placed.graph, plan, largest, largest.plan.arena_bytes - missing):
        regions = search.cheapest(limit) or []
        cannot = [region for region in regions if cut(placed, [region], context) is None]
        found = cut(placed, regions, context) if regions and not cannot else None
        if found is None:
            search.refused(cannot)
            continue
        attempt = planned(found)
        arenas = memories(attempt)
        missing = _missing(attempt, arenas)
        if missing < least[0]:
            least = missing, attempt, arenas
        if missing <= 0:
            best = Fitted(found, attempt, tuple(search.rows(region) for region in regions))
            break
        search.missed(missing)
    if best is None:
        raise MegccError(_refusal(context, *least))
    return best


def _searched(graph: Graph, plan: KernelPlan, planned: PlannedMemory, target: int) -> Iterator[tuple[_Search, int]]:
    """Yields limits of the arena to try, each with the search to use: first one that assumes that kernels need less
    workspace for fewer rows."""
    for by_rows in (True, False):
        search = _Search(graph, plan, planned, by_rows)
        yield from ((search, limit) for limit in search.limits(target))


def rows_text(by_rows: Sequence[Rows]) -> str:
    """Lists the regions that are computed by strips, a line for each."""
    return "".join(f"{rows.strips} strips of rows from {printable(rows.first.origin)} to "
                   f"{printable(rows.last.origin)}: {rows.macs:,} multiply-accumulates are done twice, "
                   f"{rows.buffer_bytes:,} bytes are kept between strips\n" for rows in by_rows)


def require_memory(name: str, image: Image, targets: Sequence[Target], ram: int | None, flash: int | None) -> None:
    """Raises MegccError for a container whose sessions need more RAM than there is, or whose data alone is larger than
    flash."""
    for row, target in zip(image.model.programs, targets, strict=True):
        needed = container.program_bytes(row, target.pointer_bytes)
        if ram is not None and needed > ram:
            raise MegccError(f"{name} does not fit on {target}: it needs {needed:,} bytes of RAM, there are {ram:,}: "
                             f"{needed - ram:,} too few")
    for machine in machines(targets):
        size = len(Image(part_of(image.model, machine.codes))) if flash is not None else 0
        if flash is not None and size > flash:
            raise MegccError(f"{name} does not fit on {', '.join(map(str, machine.targets))}: without its code it "
                             f"takes {size:,} bytes of flash, there are {flash:,}: {size - flash:,} too few")


def _refusal(context: Context, missing: int, plan: KernelPlan, memories: Sequence[PlannedMemory]) -> str:
    """Returns the error text: which tensors do not fit, which are alive at the peak, and what would help."""
    planned = max(memories, key=lambda m: m.plan.arena_bytes)
    needed = memory_bytes(plan, memories)
    of = f"RAM, there are {context.ram:,}" if context.regions is None else f"RAM, the regions are {context.regions}"
    live = live_bytes(planned.buffers, planned.plan.alignment, len(plan.steps))
    peak = live.index(max(live))
    alive = sorted((b for b in planned.buffers if b.first <= peak <= b.last and b.bytes), key=lambda b: -b.bytes)
    lines = [f"{plan.graph.name} does not fit on {context.target}: it needs {needed:,} bytes of {of}: "
             f"{missing:,} too few",
             f"  Most is there at {plan.steps[peak].op.kind} {quoted(plan.steps[peak].op.origin)}:"]
    end = planned.plan.arena_bytes - planned.plan.missing
    beyond = [" (in no region)" if planned.plan.regions and planned.plan.offsets[b.name] + b.bytes > end else ""
              for b in alive]
    lines += [f"    {b.bytes:12,}  {b.kind} {quoted(b.name)}{note}"
              for b, note in zip(alive[:LISTED], beyond, strict=False)]
    if len(alive) > LISTED:
        lines.append(f"    {sum(b.bytes for b in alive[LISTED:]):12,}  {len(alive) - LISTED} more")
    given = any(b.kind == "input" for b in alive)
    also = "; so would --caller-inputs, which leaves inputs where the caller has them" if given else ""
    lines.append("  That is with layers computed by rows where they can be. A smaller input, or fewer channels there, "
                 f"would help{also}.")
    return "\n".join(lines)


class _Search:
    """The choices of regions for a graph whose plan with whole tensors is known. by_rows: assume that fewer rows need
    less workspace."""

    def __init__(self, graph: Graph, plan: KernelPlan, planned: PlannedMemory, by_rows: bool):
        self.graph, self.plan, self.by_rows = graph, plan, by_rows
        self.readers = graph.consumers()
        steps = {step.op.outputs[0]: index for index, step in enumerate(plan.steps)}
        self.step = [steps.get(op.outputs[0]) for op in graph.ops]
        live = live_bytes(planned.buffers, planned.plan.alignment, len(plan.steps))
        self.during = [0 if step is None else live[step] for step in self.step]
        self.buffers, self.alignment = planned.buffers, planned.plan.alignment
        self.workspaces = {b.first: b.bytes for b in planned.buffers if b.kind == "workspace"}
        self.excess = 0
        self._costs: dict[tuple[int, int], _Cost | None] = {}

    def limits(self, target: int) -> Iterator[int]:
        """Yields limits of the arena to try; `missed` says by how many bytes the last plan was too large."""
        low = self._feasible(target)
        for _ in range(ATTEMPTS):
            self.excess = 0
            yield max(target, low)
            if target <= low:
                return
            target -= max(self.excess, self.alignment)

    def missed(self, bytes_: int) -> None:
        self.excess = bytes_

    def refused(self, regions: Sequence[Region]) -> None:
        """Records regions that have no kernels."""
        for region in regions:
            cost = self._costs[region.first, region.last]
            assert cost is not None
            cost.known[region.count, region.reuses_rows] = None

    def _feasible(self, target: int) -> int:
        """Returns the lowest limit that this search can meet, or one that is at most `target`."""
        low, high = 0, max(self.during)
        if self.cheapest(target) is not None:
            low, high = target // 2, target
        while high - low > max(64, high // 256):
            middle = (low + high) // 2
            low, high = (low, middle) if self.cheapest(middle) is not None else (middle, high)
        return high

    def rows(self, region: Region) -> Rows:
        ops, cost = self.graph.ops, self._costs[region.first, region.last]
        assert cost is not None
        drawn = cost.of(region.count, region.reuses_rows)
        assert drawn is not None
        return Rows(ops[region.first], ops[region.last], len(strips_of(cost.height, region.count)), drawn.macs,
                    drawn.buffer_bytes)

    def cheapest(self, limit: int) -> list[Region] | None:
        """Returns the regions with the fewest repeated multiply-accumulates that stay below a limit; None if none
        do."""
        count = len(self.graph.ops)
        best: list[tuple[float, Region | None] | None] = [(0.0, None), *[None] * count]
        for last in range(count):
            before = best[last]
            if before is not None and self.during[last] <= limit:
                best[last + 1] = before[0], None
            for first in range(last, max(-1, last - LONGEST), -1):
                cost = self._costs_of(first, last)
                if cost is None:
                    break
                start = best[first]
                if start is None or max(self.during[first:last + 1]) <= limit:
                    continue
                for reuses_rows in (False, True):
                    fewest = cost.fewest(limit, reuses_rows)
                    if fewest is None:
                        continue
                    strips, drawn = fewest
                    total = start[0] + drawn.macs + CALL * drawn.calls + drawn.copied * COPIED
                    present = best[last + 1]
                    if present is None or total < present[0]:
                        best[last + 1] = total, Region(first, last, strips, reuses_rows)
        if best[count] is None:
            return None
        regions, at = [], count
        while at:
            found = best[at]
            assert found is not None
            if found[1] is not None:
                regions.append(found[1])
            at = found[1].first if found[1] is not None else at - 1
        return regions[::-1]

    def _costs_of(self, first: int, last: int) -> _Cost | None:
        """Returns the costs of regions that end there; None if none begins at `first` or before it."""
        if (first, last) not in self._costs:
            able = all(self.step[at] is not None for at in (first, last)) and \
                is_region(self.graph, first, last, self.readers)
            self._costs[first, last] = _Cost(self, first, last) if able else None
        return self._costs[first, last]


@dataclass(frozen=True)
class _StripCost:
    """The cost of one choice of strips.

    bytes: an upper bound.
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


class _Cost:
    """Computes the cost of a region for a number of strips, with or without rows kept between them."""

    def __init__(self, search: _Search, first: int, last: int):
        self.search, self.first, self.last = search, first, last
        graph, step = search.graph, search.step[first]
        self.height = number(graph.types[graph.ops[last].outputs[0]].shape[HEIGHT])
        self.known: dict[tuple[int, bool], _StripCost | None] = {}
        assert step is not None
        around = sum(_padded(b.bytes, search.alignment) for b in search.buffers
                     if b.kind != "workspace" and (b.first < step or b.kind in ("input", "state")) and b.last >= step)
        self.around = around + _padded(graph.types[graph.ops[last].outputs[0]].bytes, search.alignment)

    def fewest(self, limit: int, reuses_rows: bool) -> tuple[int, _StripCost] | None:
        """Returns the fewest strips that stay below a limit, and their cost."""
        if self.around > limit:
            return None
        low, high = 1, min(self.height, 64)
        if not self._fits(high, reuses_rows, limit):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(middle, reuses_rows, limit) else (middle, high)
        drawn = self.of(high, reuses_rows)
        return (high, drawn) if drawn else None

    def _fits(self, count: int, reuses_rows: bool, limit: int) -> bool:
        found = self.of(count, reuses_rows)
        return found is not None and found.bytes <= limit

    def of(self, count: int, reuses_rows: bool) -> _StripCost | None:
        """Returns the cost of `count` strips; None if the region cannot be divided so, or there are no rows to keep."""
        if (count, reuses_rows) not in self.known:
            region = Region(self.first, self.last, count, reuses_rows)
            self.known[count, reuses_rows] = self._strip_cost(parts_of(self.search.graph, region), reuses_rows)
        return self.known[count, reuses_rows]

    def _strip_cost(self, strips: Sequence[Sequence[Part]] | None, reuses_rows: bool) -> _StripCost | None:
        if strips is None:
            return None
        graph = self.search.graph
        parts = [part for strip in strips for part in strip]
        rows = [self._rows_bytes(part.op, part.retained.count) for part in parts]
        if reuses_rows and not any(rows):
            return None
        most: dict[str, int] = {}
        for part, bytes_ in zip(parts, rows, strict=True):
            most[part.op.outputs[0]] = max(bytes_, most.get(part.op.outputs[0], 0))
        macs = sum(macs_of(graph, part.op, part.new.count) for part in parts)
        calls = sum(1 for part in parts if part.new.count) + 2 * sum(1 for bytes_ in rows if bytes_)
        return _StripCost(self.around + sum(most.values()) + max(map(self._strip_bytes, strips)),
                      macs - sum(macs_of(graph, op) for op in graph.ops[self.first:self.last + 1]), calls,
                      sum(most.values()), 2 * sum(rows))

    def _rows_bytes(self, op: Op, count: int) -> int:
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
            step = search.step[self.first + positions[result]]
            call = search.plan.steps[step] if step is not None else None
            dying = [name for name in alive if last_use[name] == index]
            replaced = 0
            if index == len(parts) - 1:
                rows_bytes = 0  # it is computed in place in the whole result
            elif call is not None and call.takes_over + call.spec.in_place and len(dying) == 1 \
                    and not part.retained.count:
                replaced = min(rows_bytes, alive[dying[0]])
            workspace = self._workspace(step, part.rows.count, part.op) if step is not None else 0
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
        return max(min(bytes_, WORKSPACE), bytes_ * rows // height) if self.search.by_rows else bytes_


def _padded(bytes_: int, alignment: int) -> int:
    return -(-bytes_ // alignment) * alignment
