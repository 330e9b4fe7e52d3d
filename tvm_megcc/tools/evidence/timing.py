# SPDX-License-Identifier: Apache-2.0
"""Bounds of the instructions and cycles of each call on an emulated core, from counts of basic blocks.

A call runs the same basic blocks the same number of times whatever the data are, but for those after branches that
depend on data. Inputs are made to drive such branches both ways: extremes, alternating signs, zeros, subnormal numbers,
infinities and NaN. The bound of a call takes the most executions of each block over all these runs, so it holds for a
run that takes the longest way at every branch, even if none of the inputs does so. It is no proof: a branch that no
input has driven is not in it. scripts/emulated_bounds.py compares it with thousands of other runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...runtime.emulator.counting import Block, Disassembly
from ...runtime.emulator.cycles import Core, cycles
from ...runtime.session import Array, Port, Session


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


@dataclass
class Bounds:
    """The most executions of each basic block in the runs so far.

    most: for each call, (address, number of instructions) -> executions, and those that ended in a taken branch.
    varying: for each call, the addresses of blocks whose executions differ between runs.
    """

    most: list[dict[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    varying: list[set[int]] = field(default_factory=list)
    runs: int = 0

    def add(self, calls: Sequence[Sequence[Block]]) -> None:
        """Takes the blocks of a run, for each call."""
        if not self.runs:
            self.most, self.varying = [{} for _ in calls], [set() for _ in calls]
        for most, varying, blocks in zip(self.most, self.varying, calls, strict=True):
            found = {(block.begin, block.instructions): (block.times, block.jumps) for block in blocks}
            if self.runs:
                varying |= {key[0] for key in most.keys() | found.keys() if most.get(key) != found.get(key)}
            for key, (times, jumps) in found.items():
                before = most.get(key, (0, 0))
                most[key] = max(times, before[0]), max(jumps, before[1])
        self.runs += 1

    def blocks(self, call: int) -> list[Block]:
        """Returns the blocks of a call with the most executions of each."""
        return [Block(*key, *counts) for key, counts in self.most[call].items()]

    def instructions(self, call: int) -> int:
        return sum(block.instructions * block.times for block in self.blocks(call))

    def cycles(self, call: int, core: Core, code: Disassembly) -> int:
        """Returns the modelled cycles of a call, at most."""
        return cycles(core, code, self.blocks(call))

    def functions(self, call: int, code: Disassembly) -> list[str]:
        """Returns the functions in which the number of executed instructions depends on data."""
        names = sorted((address, name) for name, address in code.functions.items())
        places = [address for address, _ in names]
        return sorted({names[bisect_right(places, address) - 1][1] for address in self.varying[call]
                       if address >= places[0]})
