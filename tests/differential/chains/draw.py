# SPDX-License-Identifier: Apache-2.0
"""Graphs of three to ten operators. The same seed and number make the same graph."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..cases import OPSETS, SAME_OPSET, Case
from ..draw import Undrawn
from . import quantised, recipes, rewrites, runtime
from .builder import OPEN, Builder, Value

#: Ranges of the open dimension, and its sizes in the runs: one in the middle first, then the ends of each range.
DISPATCH = (("1..4,5..9", (7, 1, 4, 5, 9)), ("2..8", (7, 2, 8)), ("1..*", (7, 1, 13)),
            ("1..2,3..7,8..*", (7, 1, 2, 3, 8, 12)), ("7..7,8..16", (7, 8, 16)), ("0..8", (7, 0, 8)),
            ("0..0,1..7,8..*", (7, 0, 1, 8, 11)))
MODES = ("static", "static", "open", "values")
#: Of tries to add to a graph.
TRIES = 40


@dataclass(frozen=True, eq=False)
class Chain(Case):
    """feeds: of the first run. runs: of all. wanted: outputs of all, each operator computed by itself."""

    runs: tuple[Mapping[str, np.ndarray], ...] = ()
    wanted: tuple[Mapping[str, np.ndarray], ...] = ()


def family(seed: int, number: int) -> tuple[int, str, Mapping[str, str], tuple[int, ...]]:
    """What `SAME_OPSET` graphs in a row have in common: opset, mode, ranges of dimensions, sizes in the runs."""
    rng = np.random.default_rng([seed, number // SAME_OPSET, 1])
    opset, mode = int(rng.choice([7, 8, 9, 10, *2 * list(OPSETS)[4:]])), str(rng.choice(MODES))
    ranges, sizes = DISPATCH[int(rng.integers(len(DISPATCH)))]
    return opset, mode, *(({OPEN: ranges}, sizes) if mode == "open" else ({}, ()))


def drawn(seed: int, number: int, only: str = "") -> Chain:
    """only: a recipe that each step follows; "" for any.

    Raises:
        Undrawn: too little was found that fits.
    """
    opset, mode, dims, sizes = family(seed, number)
    rng = np.random.default_rng([seed, number, zlib.crc32(only.encode()), 1])
    reals = str(rng.choice(["float32"] * 8 + ["float16", "float64"]))
    b = Builder(rng, opset, len(sizes) or (3 if mode == "values" else 1), sizes, reals)
    least, steps = b.whole(3, 10), recipes.RECIPES + rewrites.RECIPES
    if rng.random() < 0.25 and opset >= 10:
        steps, b.reals = steps[::4] + quantised.RECIPES * 6, "float32"
    if mode == "values":
        steps = steps + runtime.RECIPES * 3
    elif rng.random() < 0.15:
        steps = steps + runtime.CONTROL * 2
    for _ in range(TRIES):
        if len(b.nodes) >= least:
            break
        step = next((each for each in steps if each.__name__ == only), b.one(steps))
        try:
            with b.all_or_nothing():
                step(b)
        except (Undrawn, IndexError, ValueError):  # the last two of values without elements, or of another rank
            continue
    if len(b.nodes) < 2:
        raise Undrawn("fewer than two operators")
    return _chain(b, seed, number, mode, dims)


def _chain(b: Builder, seed: int, number: int, mode: str, dims: Mapping[str, str]) -> Chain:
    outputs = b.outputs()

    def told(values: list[Value], run: int) -> dict[str, np.ndarray]:
        return {value.name: value.arrays[run] for value in values}

    if not any(array.shape != value.shape for value in b.inputs for array in value.arrays):
        dims = {}  # nothing is open
    runs = tuple(told(b.inputs, run) for run in range(b.runs))
    label = f"{seed}:{number} {mode}-{b.opset} {' '.join(node.op_type for node in b.nodes)} {''.join(dims.values())}"
    return Chain(seed, number, mode, b.opset, label, b.model(outputs), runs[0], runs=runs,
                 wanted=tuple(told(outputs, run) for run in range(b.runs)), dims=dims)
