# SPDX-License-Identifier: Apache-2.0
"""Where each buffer lies in the arena: lifetimes in, offsets out. A pure function; `verify` checks it separately.

A buffer lives from the instruction that writes it (`first`) to the last one that touches it (`last`), both
included: two buffers may share an address only if no instruction touches both. All but the last of the algorithms
place buffers one after the other, each at an address that suits it best among those already placed; they differ in
the order. The local search then permutes the best order found. All are tried, cheapest first, until one meets the
lower bound.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..errors import InternalError

#: Steps of work the local search may do; one step is one pair of buffers alive together looked at.
SEARCH_STEPS = 12_000_000
#: Most moves it tries.
SEARCH_MOVES = 4_000


@dataclass(frozen=True)
class Buffer:
    """Memory that one tensor or workspace needs for a while.

    bytes: size without padding. first, last: instruction indices, both included.
    alignment: of this buffer alone, where it is more than the plan's; a power of two.
    kind: "activation", "input", "output" or "workspace", for pictures and reports; or "state", which comes first.
    on: the buffer whose place it takes: it begins at the same address, in the instruction that is the last one of the
        other, which only makes room for it while it is read.
    """

    name: str
    bytes: int
    first: int
    last: int
    alignment: int = 1
    kind: str = "activation"
    on: str = ""


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets by buffer name. `lower_bound` is the largest sum of sizes alive at once, padding included."""

    arena_bytes: int
    offsets: Mapping[str, int]
    lower_bound: int
    algorithm: str
    alignment: int

    def __post_init__(self):
        object.__setattr__(self, "offsets", MappingProxyType(dict(self.offsets)))

    @property
    def ratio(self) -> float:
        """Arena over lower bound; 1.0 is the best that any plan can reach."""
        return self.arena_bytes / self.lower_bound if self.lower_bound else 1.0


def plan(buffers: Sequence[Buffer], alignment: int = 16) -> MemoryPlan:
    """The smallest arena that the algorithms find. Every offset and the arena's size are multiples of `alignment`.

    States, which live for ever, lie below everything else: the runtime compares one address to know that nothing is
    written there.

    Raises:
        InternalError: if two buffers have one name, a lifetime ends before it begins, or a buffer takes the place of
            one that does not end as it begins.
    """
    named = {b.name: b for b in buffers}
    if len(named) != len(buffers):
        raise InternalError("memory plan: two buffers have the same name")
    if any(b.on and (b.on not in named or not named[b.on].first < named[b.on].last == b.first) for b in buffers):
        raise InternalError("memory plan: a buffer takes the place of one that does not end as it begins")
    if any(b.last < b.first or b.bytes < 0 for b in buffers):
        raise InternalError("memory plan: a buffer ends before it begins, or has a negative size")
    offsets, states = {}, 0
    for state in (b for b in buffers if b.kind == "state"):
        offsets[state.name] = _round_up(states, max(alignment, state.alignment))
        states = offsets[state.name] + _padded(state, alignment)
    buffers = [b for b in buffers if b.kind != "state"]
    states = _round_up(states, max((b.alignment for b in buffers), default=1))
    problem = _Problem(buffers, alignment)
    bound = lower_bound(buffers, alignment)
    best: _Layout | None = None
    for name, algorithm in ALGORITHMS.items():
        layout = algorithm(problem, best, bound)
        if best is None or layout.arena < best.arena:
            best = _Layout(layout.arena, layout.offsets, layout.order, name)
        if best.arena <= bound:
            break
    offsets |= {name: states + best.offsets[place] for name, place in problem.place_of.items()}
    return MemoryPlan(states + best.arena, offsets, states + bound, best.name, alignment)


def live_bytes(buffers: Sequence[Buffer], alignment: int = 1) -> list[int]:
    """Bytes alive at each instruction, padded to `alignment`."""
    if not buffers:
        return []
    change = [0] * (max(b.last for b in buffers) + 2)
    named = {b.name: b for b in buffers}
    for b in buffers:
        change[b.first] += _padded(b, alignment)
        change[b.last + 1] -= _padded(b, alignment)
        if b.on:
            shared = min(_padded(b, alignment), _padded(named[b.on], alignment))
            change[b.first] -= shared
            change[b.first + 1] += shared
    live, total = [], 0
    for delta in change[:-1]:
        total += delta
        live.append(total)
    return live


def lower_bound(buffers: Sequence[Buffer], alignment: int = 1) -> int:
    """The largest sum of sizes alive at one instruction: no plan needs less."""
    return max(live_bytes(buffers, alignment), default=0)


def verify(buffers: Sequence[Buffer], plan: MemoryPlan) -> None:
    """Checks a plan against the buffers it is for, without knowing how it was made.

    Raises:
        InternalError: naming the buffers that overlap, lie outside the arena or are misaligned.
    """
    if {b.name for b in buffers} != set(plan.offsets):
        raise InternalError("memory plan: it does not place exactly the buffers it is for")
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


def _members(buffers: Sequence[Buffer]) -> list[list[Buffer]]:
    """The buffers of each place, in the order of the first ones."""
    following = {b.on: b for b in buffers if b.on}
    groups = []
    for b in buffers:
        if not b.on:
            groups.append([b])
            while groups[-1][-1].name in following:
                groups[-1].append(following[groups[-1][-1].name])
    return groups


def _span(group: Sequence[Buffer]) -> Buffer:
    """One buffer as large and as long as all of them."""
    return replace(group[0], bytes=max(b.bytes for b in group), last=group[-1].last,
                   alignment=max(b.alignment for b in group))


@dataclass(frozen=True)
class _Layout:
    """A placement by buffer index, and the order of placing that led to it."""

    arena: int
    offsets: tuple[int, ...]
    order: tuple[int, ...]
    name: str = ""


class _Problem:
    """Places by index: buffers that follow each other in one place are one.

    buffers: of each place its first one, as large and as long as all of them. sizes, alignments: padded. rivals: of
    each place the others that are in use at the same time, with the bytes that this one and that one have then.
    """

    def __init__(self, buffers: Sequence[Buffer], alignment: int):
        members = _members(buffers)
        self.buffers = [_span(group) for group in members]
        self.place_of = {b.name: i for i, group in enumerate(members) for b in group}
        self.sizes = [_padded(b, alignment) for b in self.buffers]
        self.alignments = [max(alignment, b.alignment) for b in self.buffers]
        self.alignment = alignment
        heights: dict[tuple[int, int], int] = {}
        alive: list[Buffer] = []
        for b in sorted((b for b in buffers if b.bytes), key=lambda b: b.first):
            alive = [other for other in alive if other.last >= b.first]
            for other in alive:
                i, j = self.place_of[b.name], self.place_of[other.name]
                if i != j:
                    heights[i, j] = max(heights.get((i, j), 0), _padded(b, alignment))
                    heights[j, i] = max(heights.get((j, i), 0), _padded(other, alignment))
            alive.append(b)
        self.rivals: list[list[tuple[int, int, int]]] = [[] for _ in members]
        for (i, j), height in heights.items():
            self.rivals[i].append((j, height, heights[j, i]))

    def place(self, order: Sequence[int], best_fit: bool = False) -> _Layout:
        """Places buffers in this order, each into the lowest gap it fits into, or the tightest one."""
        offsets = [-1] * len(self.sizes)
        ends = [0] * len(self.sizes)
        for i in order:
            size, align = self.sizes[i], self.alignments[i]
            # Where it may not begin: from behind the last address below a rival to before the rival's end.
            taken = sorted((offsets[j] - own, offsets[j] + other)
                           for j, own, other in self.rivals[i] if offsets[j] >= 0)
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

    def sorted(self, key: Callable[[int], tuple]) -> list[int]:
        """Indices by a key; ties keep the order of the buffers, so that a plan is reproducible."""
        return sorted(range(len(self.sizes)), key=key)


def _by_size(problem: _Problem, best, bound) -> _Layout:
    return problem.place(problem.sorted(lambda i: (-problem.sizes[i], problem.buffers[i].first)))


def _push_down(problem: _Problem, best, bound) -> _Layout:
    """By time, then each buffer falls as far as those below it allow, until none moves any more."""
    layout = problem.place(problem.sorted(lambda i: (problem.buffers[i].first, -problem.sizes[i])))
    while True:
        lower = problem.place(problem.sorted(lambda i, at=layout.offsets: (at[i],)))
        if lower.arena >= layout.arena:
            return layout
        layout = lower


def _by_duration(problem: _Problem, best, bound) -> _Layout:
    def key(i: int) -> tuple:
        return problem.buffers[i].first - problem.buffers[i].last, -problem.sizes[i]
    return problem.place(problem.sorted(key))


def _by_breadth(problem: _Problem, best, bound) -> _Layout:
    """The buffers of the fullest instruction first, then those of the next one."""
    live = live_bytes(problem.buffers, problem.alignment)
    fullest = [max(live[b.first:b.last + 1]) for b in problem.buffers]
    return problem.place(problem.sorted(lambda i: (-fullest[i], -problem.sizes[i])))


def _best_fit_by_time(problem: _Problem, best, bound) -> _Layout:
    order = problem.sorted(lambda i: (problem.buffers[i].first, -problem.sizes[i]))
    return problem.place(order, best_fit=True)


def _local_search(problem: _Problem, best: _Layout, bound: int) -> _Layout:
    """Moves a buffer that reaches the top of the arena, or one that it rests on, forward in the order.

    A move that does not make the arena larger is kept. The number of moves depends only on the problem.
    """
    rng = random.Random(1)
    current = best
    work = len(problem.sizes) + 2 * sum(map(len, problem.rivals))
    for _ in range(min(SEARCH_MOVES, SEARCH_STEPS // max(work, 1))):
        if best.arena <= bound:
            break
        at, sizes = current.offsets, problem.sizes
        top = [i for i in current.order if at[i] + sizes[i] == current.arena]
        mover = top[int(rng.random() * len(top))]
        while problem.rivals[mover] and rng.random() < 0.5:
            mover = problem.rivals[mover][int(rng.random() * len(problem.rivals[mover]))][0]
        order = list(current.order)
        source = order.index(mover)
        order.insert(int(rng.random() * (source + 1)), order.pop(source))
        trial = problem.place(order)
        if trial.arena <= current.arena:
            current = trial
            best = min(best, trial, key=lambda layout: layout.arena)
    return best


#: Tried in this order; each gets the best layout so far and the lower bound.
ALGORITHMS: dict[str, Callable[[_Problem, _Layout | None, int], _Layout]] = {
    "greedy by size": _by_size,
    "push-down": _push_down,
    "greedy by breadth": _by_breadth,
    "greedy by duration": _by_duration,
    "best fit by time": _best_fit_by_time,
    "local search": _local_search,
}
