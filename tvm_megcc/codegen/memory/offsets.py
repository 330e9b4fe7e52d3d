# SPDX-License-Identifier: Apache-2.0
"""Plans the offsets of buffers in the arena from their live ranges (`plan`, a pure function); `verify` checks a plan
independently.

A buffer is alive from the instruction that writes it (`first`) to the last one that accesses it (`last`), both
included. Two buffers may share an address only if they are not alive at the same time. All algorithms place buffers one
after the other, each into a gap that those already placed leave (`_Problem.place`); they differ in the order. The last
one, a local search, permutes the best order found. The algorithms run from the cheapest on, until one meets the lower
bound. Greedy by size and by breadth are those of Y. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural
Net Inference" (2020), which TFLite uses, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from ...errors import InternalError

#: The budget of the local search: comparisons of two buffers that are alive together.
SEARCH_STEPS = 12_000_000
#: The most moves that the local search tries.
SEARCH_MOVES = 4_000


@dataclass(frozen=True)
class Buffer:
    """Memory that a tensor or workspace needs for a while.

    bytes: size without padding.
    first, last: instruction indices, both included.
    alignment: alignment of this buffer alone, if it is more than the plan's; a power of two.
    kind: "activation", "input", "output", "workspace" or "state"; states come first, the others are for reports.
    on: the buffer whose memory it takes over: it begins at the same address, in the last instruction that reads the
        other one, and overwrites it while that is read.
    traffic: an estimate of how often a run reads or writes a byte of it.
    """

    name: str
    bytes: int
    first: int
    last: int
    alignment: int = 1
    kind: str = "activation"
    on: str = ""
    traffic: float = 1.0


@dataclass(frozen=True)
class MemoryPlan:
    """A memory plan: the offset of each buffer in the arena, in bytes, by name.

    arena_bytes: size of the arena.
    algorithm: the name of the one that found the plan.
    lower_bound: the largest sum of sizes alive at once, padding included.
    regions: bytes of the memory regions that the arena consists of, in order; empty: one.
    missing: the bytes by which the arena exceeds the given regions.
    """

    arena_bytes: int
    offsets: Mapping[str, int]
    lower_bound: int
    algorithm: str
    alignment: int
    regions: tuple[int, ...] = ()
    missing: int = 0

    def __post_init__(self):
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))

    @property
    def ratio(self) -> float:
        """Arena over lower bound; 1.0 is the best that any plan can reach."""
        return self.arena_bytes / self.lower_bound if self.lower_bound else 1.0


def plan(buffers: Sequence[Buffer], alignment: int = 16, regions: Sequence[int] = ()) -> MemoryPlan:
    """Returns the plan with the smallest arena that the algorithms find. Every offset and the arena's size are
    multiples of `alignment`.

    States, which are always alive, are below all other buffers: so the runtime compares one address to know that
    nothing overwrites them.

    Args:
        regions: bytes of the memory regions; empty: one region without a limit. No buffer spans two of them. Among the
            plans that fit, the one with the least traffic beyond the first region is chosen, then beyond the second,
            and so on.

    Raises:
        InternalError: if two buffers have one name, a live range ends before it begins, or a buffer takes over the
            memory of one that does not end where it begins.
    """
    named = {b.name: b for b in buffers}
    if len(named) != len(buffers):
        raise InternalError("memory plan: two buffers have the same name")
    if any(b.on and (b.on not in named or not named[b.on].first < named[b.on].last == b.first) for b in buffers):
        raise InternalError("memory plan: a buffer takes the place of one that does not end as it begins")
    if any(b.last < b.first or b.bytes < 0 for b in buffers):
        raise InternalError("memory plan: a buffer ends before it begins, or has a negative size")
    offsets, state_bytes = {}, 0
    for state in (b for b in buffers if b.kind == "state"):
        offsets[state.name] = _round_up(state_bytes, max(alignment, state.alignment))
        state_bytes = offsets[state.name] + _padded(state, alignment)
    buffers = [b for b in buffers if b.kind != "state"]
    state_bytes = _round_up(state_bytes, max((b.alignment for b in buffers), default=1))
    if regions and state_bytes > regions[0]:
        raise InternalError("memory plan: the states do not fit into the first region")
    ends = list(accumulate(regions))
    problem = _Problem(buffers, alignment, [end - state_bytes for end in ends])
    bound = lower_bound(buffers, alignment)
    best: _Layout | None = None
    for name, algorithm in (ALGORITHMS | BY_TRAFFIC if regions else ALGORITHMS).items():
        layout = algorithm(problem, best, bound)
        if best is None or problem.cost(layout) < problem.cost(best):
            best = _Layout(layout.arena, layout.offsets, layout.order, name)
        if best.arena <= bound and not regions:
            break
    offsets |= {name: state_bytes + best.offsets[buffer] for name, buffer in problem.index_of.items()}
    arena = state_bytes + best.arena
    missing = max(arena - ends[-1], 0) if regions else 0
    # Buffers that do not fit are after the last region, which is enlarged to the size that would be needed.
    regions = (*regions[:-1], regions[-1] + missing) if regions else ()
    return MemoryPlan(arena, offsets, state_bytes + bound, best.name, alignment, regions, missing)


def with_constants(buffers: Sequence[Buffer], constants: Sequence[Buffer], plan: MemoryPlan,
                   fast_regions: int) -> MemoryPlan:
    """Returns the plan with the most frequently read constants in the free space of the first `fast_regions` regions,
    which are faster than flash, and with regions shrunk to the bytes that are used. Constants that do not fit have no
    offset."""
    ends = list(accumulate(plan.regions))
    begins = [0, *ends[:-1]]
    tops = [max((plan.offsets[b.name] + b.bytes for b in buffers if begin <= plan.offsets[b.name] < end), default=begin)
            for begin, end in zip(begins, ends, strict=True)]
    tops = [_round_up(top, plan.alignment) for top in tops]
    offsets = dict(plan.offsets)
    for b in sorted(constants, key=lambda b: (-b.traffic, b.bytes)):
        for index in range(fast_regions):
            if b.bytes and tops[index] + _padded(b, plan.alignment) <= ends[index]:
                offsets[b.name] = tops[index]
                tops[index] += _padded(b, plan.alignment)
                break
    # Regions shrink by multiples of the largest alignment, so that what follows them in the arena stays aligned.
    step = max([plan.alignment, *(b.alignment for b in buffers)])
    used = [end - begin - (end - top) // step * step for top, begin, end in zip(tops, begins, ends, strict=True)]
    moved = dict(zip(begins, [0, *accumulate(used[:-1])], strict=True))
    for name, offset in offsets.items():
        begin = max(begin for begin in begins if begin <= offset)
        offsets[name] = moved[begin] + offset - begin
    copied = sum(_padded(b, plan.alignment) for b in constants if b.name in offsets)
    return replace(plan, arena_bytes=sum(used), offsets=offsets, regions=tuple(used),
                   lower_bound=plan.lower_bound + copied)


def live_bytes(buffers: Sequence[Buffer], alignment: int = 1, steps: int = 0) -> list[int]:
    """Returns the bytes alive at each instruction, padded to `alignment`. steps: the list has at least as many
    elements; those after the last buffer are 0."""
    change = [0] * (max((b.last + 1 for b in buffers), default=0) + 1)
    change += [0] * (steps + 1 - len(change))
    named = {b.name: b for b in buffers}
    for b in buffers:
        change[b.first] += _padded(b, alignment)
        change[b.last + 1] -= _padded(b, alignment)
        if b.on:  # at instruction b.first both are alive, in the same memory
            shared = min(_padded(b, alignment), _padded(named[b.on], alignment))
            change[b.first] -= shared
            change[b.first + 1] += shared
    live, total = [], 0
    for delta in change[:-1]:
        total += delta
        live.append(total)
    return live


def lower_bound(buffers: Sequence[Buffer], alignment: int = 1) -> int:
    """Returns the largest sum of sizes alive at one instruction: no plan needs less."""
    return max(live_bytes(buffers, alignment), default=0)


def verify(buffers: Sequence[Buffer], plan: MemoryPlan) -> None:
    """Checks a plan against the buffers it is for, without knowing how it was made.

    Raises:
        InternalError: naming the buffers that overlap, lie outside the arena or are misaligned.
    """
    if {b.name for b in buffers} != set(plan.offsets):
        raise InternalError("memory plan: it does not place exactly the buffers it is for")
    begins = list(accumulate(plan.regions, initial=0))
    for b in buffers:
        offset = plan.offsets[b.name]
        if offset < 0 or offset + b.bytes > plan.arena_bytes:
            raise InternalError(f"memory plan: '{b.name}' at {offset} (+{b.bytes}) is outside the arena of "
                                f"{plan.arena_bytes} bytes")
        if offset % max(plan.alignment, b.alignment):
            raise InternalError(f"memory plan: '{b.name}' at {offset} is not aligned to "
                                f"{max(plan.alignment, b.alignment)}")
        if b.on and offset != plan.offsets[b.on]:
            raise InternalError(f"memory plan: '{b.name}' at {offset} is not where '{b.on}' is")
        if plan.regions and b.bytes and not any(begin <= offset and offset + b.bytes <= begin + size
                                                for begin, size in zip(begins, plan.regions, strict=False)):
            raise InternalError(f"memory plan: '{b.name}' at {offset} (+{b.bytes}) lies in no region, or in two")
    # Sweep over time: among the buffers alive at an instruction, neighbours by address must not overlap.
    starts = sorted((b for b in buffers if b.bytes), key=lambda b: b.first)
    alive: list[Buffer] = []
    for b in starts:
        alive = [other for other in alive if other.last >= b.first]
        begin, end = plan.offsets[b.name], plan.offsets[b.name] + b.bytes
        for other in alive:
            if other.name != b.on and begin < plan.offsets[other.name] + other.bytes \
                    and plan.offsets[other.name] < end:
                raise InternalError(f"memory plan: '{b.name}' and '{other.name}' overlap at instruction {b.first}")
        alive.append(b)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _padded(buffer: Buffer, alignment: int) -> int:
    return _round_up(buffer.bytes, alignment)


def _groups(buffers: Sequence[Buffer]) -> list[list[Buffer]]:
    """Returns groups of buffers that take over each other's memory, each in the order of time."""
    successors = {b.on: b for b in buffers if b.on}
    groups = []
    for b in buffers:
        if not b.on:
            group = [b]
            while group[-1].name in successors:
                group.append(successors[group[-1].name])
            groups.append(group)
    return groups


def _as_one_buffer(group: Sequence[Buffer]) -> Buffer:
    """Returns one buffer with the largest size and the whole live range of a group."""
    return replace(group[0], bytes=max(b.bytes for b in group), last=group[-1].last,
                   alignment=max(b.alignment for b in group), traffic=sum(b.traffic for b in group))


@dataclass(frozen=True)
class _Layout:
    """Offsets by buffer index, and the order in which buffers were placed."""

    arena: int
    offsets: tuple[int, ...]
    order: tuple[int, ...]
    name: str = ""


class _Problem:
    """The placement problem with buffers by index; buffers that take over each other's memory count as one.

    buffers: one for each group, with the size and live range of the whole group.
    index_of: name of a buffer -> index of its group.
    sizes, alignments: of each group, in bytes; sizes are padded.
    conflicts: for each group, (index, own bytes, the other's bytes) of the groups that are alive at the same time, with
        the bytes that both have then.
    borders: the ends of regions, which no buffer spans.
    """

    def __init__(self, buffers: Sequence[Buffer], alignment: int, borders: Sequence[int] = ()):
        self.borders = borders
        groups = _groups(buffers)
        self.buffers = [_as_one_buffer(group) for group in groups]
        self.index_of = {b.name: i for i, group in enumerate(groups) for b in group}
        self.sizes = [_padded(b, alignment) for b in self.buffers]
        self.alignments = [max(alignment, b.alignment) for b in self.buffers]
        self.alignment = alignment
        common_sizes: dict[tuple[int, int], int] = {}  # (i, j) -> the bytes of i while both are alive
        alive: list[Buffer] = []
        for b in sorted((b for b in buffers if b.bytes), key=lambda b: b.first):
            alive = [other for other in alive if other.last >= b.first]
            for other in alive:
                i, j = self.index_of[b.name], self.index_of[other.name]
                if i != j:
                    common_sizes[i, j] = max(common_sizes.get((i, j), 0), _padded(b, alignment))
                    common_sizes[j, i] = max(common_sizes.get((j, i), 0), _padded(other, alignment))
            alive.append(b)
        self.conflicts: list[list[tuple[int, int, int]]] = [[] for _ in groups]
        for (i, j), size in common_sizes.items():
            self.conflicts[i].append((j, size, common_sizes[j, i]))

    def place(self, order: Sequence[int], best_fit: bool = False) -> _Layout:
        """Places buffers in this order, each into the lowest gap that it fits into (first fit) or, for `best_fit`, into
        the smallest one."""
        offsets = [-1] * len(self.sizes)
        ends = [0] * len(self.sizes)
        for i in order:
            size, align = self.sizes[i], self.alignments[i]
            # The open intervals of offsets at which the buffer would overlap another one, or a border.
            taken = sorted([*((offsets[j] - own_bytes, offsets[j] + other_bytes)
                              for j, own_bytes, other_bytes in self.conflicts[i] if offsets[j] >= 0),
                            *((border - size, border) for border in self.borders)])
            offset, top, tightest = 0, 0, None
            for begin, end in taken:
                start = _round_up(top, align)
                if begin >= start and (tightest is None or begin - start < tightest):
                    offset, tightest = start, begin - start
                    if not best_fit:
                        break
                top = max(top, end)
            if tightest is None:
                offset = _round_up(top, align)
            offsets[i], ends[i] = offset, offset + size
        return _Layout(_round_up(max(ends, default=0), self.alignment), tuple(offsets), tuple(order))

    def cost(self, layout: _Layout) -> tuple:
        """Returns the value to minimise: bytes after all regions, traffic after the first, after the second, the
        arena."""
        slow_traffic = tuple(sum(b.traffic * b.bytes for b, offset in zip(self.buffers, layout.offsets, strict=True)
                           if offset >= border) for border in self.borders)
        return (*(max(layout.arena - border, 0) for border in self.borders[-1:]), *slow_traffic, layout.arena)

    def sorted(self, key: Callable[[int], tuple]) -> list[int]:
        """Returns indices by a key; ties keep the order of the buffers, so that a plan is reproducible."""
        return sorted(range(len(self.sizes)), key=key)


def _by_size(problem: _Problem, best, bound) -> _Layout:
    return problem.place(problem.sorted(lambda i: (-problem.sizes[i], problem.buffers[i].first)))


def _push_down(problem: _Problem, best, bound) -> _Layout:
    """Places buffers by time, then moves each as far down as those below it allow, until none moves any more."""
    layout = problem.place(problem.sorted(lambda i: (problem.buffers[i].first, -problem.sizes[i])))
    while True:
        lower = problem.place(problem.sorted(lambda i, offsets=layout.offsets: (offsets[i],)))
        if lower.arena >= layout.arena:
            return layout
        layout = lower


def _by_duration(problem: _Problem, best, bound) -> _Layout:
    def key(i: int) -> tuple:
        return problem.buffers[i].first - problem.buffers[i].last, -problem.sizes[i]
    return problem.place(problem.sorted(key))


def _by_traffic(problem: _Problem, best, bound) -> _Layout:
    """Places the buffers first whose bytes are accessed most often."""
    return problem.place(problem.sorted(lambda i: (-problem.buffers[i].traffic, -problem.sizes[i])))


def _by_all_traffic(problem: _Problem, best, bound) -> _Layout:
    """Places the buffers first whose accesses are the most in total: those of a byte, times the bytes."""
    return problem.place(problem.sorted(lambda i: (-problem.buffers[i].traffic * problem.sizes[i],)))


def _by_breadth(problem: _Problem, best, bound) -> _Layout:
    """Places the buffers of the instruction with most bytes alive first, then those of the next one, and so on."""
    live = live_bytes(problem.buffers, problem.alignment)
    fullest = [max(live[b.first:b.last + 1]) for b in problem.buffers]
    return problem.place(problem.sorted(lambda i: (-fullest[i], -problem.sizes[i])))


def _best_fit_by_time(problem: _Problem, best, bound) -> _Layout:
    order = problem.sorted(lambda i: (problem.buffers[i].first, -problem.sizes[i]))
    return problem.place(order, best_fit=True)


def _local_search(problem: _Problem, best: _Layout, bound: int) -> _Layout:
    """Moves a buffer that reaches the top of the arena, or one that it conflicts with, forward in the order.

    A move that does not make the arena larger is kept. The number of moves depends only on the problem.
    """
    rng = random.Random(1)
    current = best
    work = len(problem.sizes) + 2 * sum(map(len, problem.conflicts))
    for _ in range(min(SEARCH_MOVES, SEARCH_STEPS // max(work, 1))):
        if best.arena <= bound:
            break
        offsets, sizes = current.offsets, problem.sizes
        top = [i for i in current.order if offsets[i] + sizes[i] == current.arena]
        mover = top[int(rng.random() * len(top))]
        while problem.conflicts[mover] and rng.random() < 0.5:
            mover = problem.conflicts[mover][int(rng.random() * len(problem.conflicts[mover]))][0]
        order = list(current.order)
        source = order.index(mover)
        order.insert(int(rng.random() * (source + 1)), order.pop(source))
        trial = problem.place(order)
        if trial.arena <= current.arena:
            current = trial
            best = min(best, trial, key=lambda layout: layout.arena)
    return best


#: The algorithms by name, tried in this order; each gets the problem, the best layout so far and the lower bound.
ALGORITHMS: dict[str, Callable[[_Problem, _Layout | None, int], _Layout]] = {
    "greedy by size": _by_size,
    "push-down": _push_down,
    "greedy by breadth": _by_breadth,
    "greedy by duration": _by_duration,
    "best fit by time": _best_fit_by_time,
    "local search": _local_search,
}
#: Additional orders for regions: the most frequently touched buffer gets the first region.
BY_TRAFFIC: dict[str, Callable[[_Problem, _Layout | None, int], _Layout]] = {
    "greedy by traffic": _by_traffic,
    "greedy by all traffic": _by_all_traffic,
}
