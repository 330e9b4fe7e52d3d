# SPDX-License-Identifier: Apache-2.0
"""Bounds of the instructions and cycles of each call on an emulated core, from counts of basic blocks.

A call runs the same basic blocks the same number of times whatever the data are, but for those after branches that
depend on data. Inputs are made to drive such branches both ways: extremes, alternating signs, zeros, subnormal numbers,
infinities and NaN. In a function whose counts differ between these runs, the bound is that of the longest path,
whether a run has taken it or not (paths.py). It is no proof: a function whose counts are equal in all of these runs is
taken for one that does not depend on data. scripts/emulated_bounds.py compares it with thousands of other runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...runtime.emulator.counting import Block, Disassembly
from ...runtime.emulator.cycles import Core, cycles, straight
from ...runtime.session import Array, Port, Session
from .loops import Loop
from .paths import Function, Node


def _shape(port: Port) -> tuple[int, ...]:
    """Returns the shape of an input; in the profile all extents are numbers."""
    return tuple(map(int, port.shape))


def limits(dtype: np.dtype) -> tuple[float, float]:
    """Returns the least and the greatest finite number of a dtype."""
    if dtype.kind == "b":
        return False, True
    found = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    return found.min, found.max


def _specials(dtype: np.dtype) -> dict[str, tuple[float, float]]:
    """Returns pairs of numbers of a dtype by name, with which inputs are filled in turn."""
    least, greatest = limits(dtype)
    found = {"least numbers": (least, least), "greatest numbers": (greatest, greatest), "zero numbers": (0, 0),
             "least and greatest numbers": (least, greatest)}
    if dtype.kind in "iu":
        found["zeros and greatest numbers"] = (0, greatest)
    if dtype.kind == "f":
        tiny = float(np.finfo(dtype).smallest_subnormal)
        found |= {"subnormal numbers": (tiny, -tiny), "infinities": (np.inf, -np.inf), "NaN": (np.nan, np.nan),
                  "NaN and numbers": (np.nan, 1.0), "numbers near overflow": (greatest, 1.0)}
    return found


def directed_inputs(session: Session) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yields inputs with a name that drive branches: each element type's special numbers, alone and in turn."""
    kinds = {port.name: _specials(np.dtype(port.dtype)) for port in session.inputs}
    for name in dict.fromkeys(name for pairs in kinds.values() for name in pairs):
        yield name, {port.name: _alternating(port, kinds[port.name].get(name, (0, 1))) for port in session.inputs}


def _alternating(port: Port, pair: tuple[float, float]) -> Array:
    shape = _shape(port)
    flat = np.empty(int(np.prod(shape)), np.dtype(port.dtype))
    flat[0::2], flat[1::2] = pair
    return flat.reshape(shape)


def random_inputs(session: Session, seed: int) -> dict[str, Array]:
    """Returns seeded random inputs: whole numbers over their range, floats of a normal distribution."""
    rng = np.random.default_rng(seed)
    return {port.name: (rng.integers(np.iinfo(port.dtype).min, np.iinfo(port.dtype).max, _shape(port), endpoint=True)
                        if np.dtype(port.dtype).kind in "iu" else rng.standard_normal(_shape(port))).astype(port.dtype)
            for port in session.inputs}


def adversarial_inputs(session: Session, seed: int) -> dict[str, Array]:
    """Returns seeded inputs of which a random part, in runs of random length, are special numbers of their type."""
    rng = np.random.default_rng(seed)
    arrays = random_inputs(session, seed)
    for port in session.inputs:
        flat = arrays[port.name].reshape(-1)
        if np.dtype(port.dtype).kind == "f" and rng.random() < 0.5:
            with np.errstate(over="ignore"):
                flat *= np.dtype(port.dtype).type(10.0) ** rng.integers(-45, 38)
        special = np.array([number for pair in _specials(np.dtype(port.dtype)).values() for number in pair]
                           ).astype(port.dtype)
        length = int(rng.integers(1, flat.size + 1))
        chosen = np.repeat(rng.random(-(-flat.size // length)) < rng.random(), length)[:flat.size]
        flat[chosen] = rng.choice(special, int(chosen.sum()))
        if rng.random() < 0.2:
            flat.sort()
    return arrays


def iterations(session: Session, loops: Mapping[str, Sequence[Loop]]) -> list[int | None]:
    """Returns for each call the most iterations of any loop of its kernel; None: one is unknown. loops: those of each
    kernel."""
    found: list[int | None] = []
    for call in session.calls:
        numbers = [loop.at_most for loop in loops.get(call["kernel"], ())]
        known = [number for number in numbers if number is not None]
        found.append(max(known, default=0) if len(known) == len(numbers) else None)
    return found


@dataclass
class Bounds:
    """Bounds of the calls of a network, from the runs so far.

    code: the instructions of the firmware.
    iterations: for each call, the most iterations of any loop of its kernel (loops.py); None: unknown.
    most: for each call, (address, number of instructions) -> executions, and those that ended in a taken branch.
    varying: for each call, the addresses of blocks whose executions differ between runs.
    counted: for each call, the address of an instruction -> its least and most executions.
    """

    code: Disassembly
    iterations: Sequence[int | None] = ()
    most: list[dict[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    varying: list[set[int]] = field(default_factory=list)
    counted: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    runs: int = 0

    def add(self, calls: Sequence[Sequence[Block]]) -> None:
        """Takes the blocks of a run, for each call."""
        if not self.runs:
            self.most, self.varying, self.counted = [{} for _ in calls], [set() for _ in calls], [{} for _ in calls]
        for call, blocks in enumerate(calls):
            found = {(block.begin, block.instructions): (block.times, block.jumps) for block in blocks}
            most = self.most[call]
            if self.runs:
                self.varying[call] |= {key[0] for key in most.keys() | found.keys() if most.get(key) != found.get(key)}
            for key, (times, jumps) in found.items():
                before = most.get(key, (0, 0))
                most[key] = max(times, before[0]), max(jumps, before[1])
            self._count(self.counted[call], blocks)
        self.runs += 1

    def _count(self, counted: dict[int, tuple[int, int]], blocks: Sequence[Block]) -> None:
        times: dict[int, int] = {}
        for block in blocks:
            first = bisect_left(self.code.addresses, block.begin)
            for address in self.code.addresses[first:first + block.instructions]:
                times[address] = times.get(address, 0) + block.times
        for address in counted.keys() | times.keys():
            now = times.get(address, 0)
            least, most = counted.get(address, (0 if self.runs else now, now))
            counted[address] = min(least, now), max(most, now)

    def blocks(self, call: int) -> list[Block]:
        """Returns the blocks of a call with the most executions of each."""
        return [Block(*key, *counts) for key, counts in self.most[call].items()]

    def instructions(self, call: int) -> int:
        """Returns the instructions of a call, at most."""
        return self._bound(call, lambda blocks: sum(block.instructions * block.times for block in blocks),
                           lambda node: len(node.lines), 0)

    def cycles(self, call: int, core: Core) -> int:
        """Returns the modelled cycles of a call, at most."""
        return self._bound(call, lambda blocks: cycles(core, self.code, blocks),
                           lambda node: straight(core, tuple(node.lines)) + core.load_latency, core.jump)

    def _bound(self, call: int, measured: Callable[[list[Block]], int], cost: Callable[[Node], int], jump: int) -> int:
        """Returns the most instructions or cycles of a call: of functions that depend on data, those of the longest
        path; of others, those of the runs, which are equal. The arguments are those of `Function.longest`, and
        `measured` for the blocks of a run."""
        paths = self._paths(call)
        others: list[Block] = []
        within: dict[int | None, list[Block]] = {begin: [] for begin in paths}
        for block in self.blocks(call):
            within.get(self.code.function_at(block.begin), others).append(block)
        total = measured(others)
        for begin, (function, entries) in paths.items():
            found = function.bound(entries, self.counted[call], self.iterations[call], cost, jump)
            total += measured(within[begin]) if found is None else found
        return total

    def _paths(self, call: int) -> dict[int, tuple[Function, int]]:
        """Returns the functions of a call that depend on data, by address, with the executions of each, as far as their
        paths are known."""
        found: dict[int, tuple[Function, int]] = {}
        for begin in self._varying_functions(call) if self.iterations else ():
            function = Function.read(self.code, begin, self.code.end_of(begin))
            least, most = self.counted[call].get(begin, (0, 0))
            if function is not None and least == most:
                found[begin] = function, most
        return found

    def _varying_functions(self, call: int) -> list[int]:
        found = {self.code.function_at(address) for address in self.varying[call]}
        return sorted(begin for begin in found if begin is not None)

    def functions(self, call: int) -> list[str]:
        """Returns the functions in which the number of executed instructions depends on data."""
        return sorted({self.code.name_of(begin) for begin in self._varying_functions(call)})
