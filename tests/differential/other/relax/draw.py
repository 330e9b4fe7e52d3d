# SPDX-License-Identifier: Apache-2.0
"""What rules of Relax operators draw with, and into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm.relax import op

from ..node import Node

FLOATS = ("float32", "float32", "float32", "float16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
#: With what moves elements only.
ANY = (*FLOATS, *INTEGERS, "bool")


@dataclass
class Draw(Node):
    """make: the expression over operands; without it the operator of that name is called with the attributes."""

    make: Callable | None = None

    def expression(self, operands):
        if self.make is not None:
            return self.make(*operands)
        return function_of(self.kind)(*operands, **self.attributes)

    def shape(self, low: int = 0, high: int = 4, empty: float = 0.02) -> tuple[int, ...]:
        """1 often, 0 seldom."""
        return tuple(0 if self.chance(empty) else 1 if self.chance(0.25) else self.whole(2, 6)
                     for _ in range(self.whole(low, high)))

    def values(self, shape, dtype: str, low: float = -4, high: float = 4) -> np.ndarray:
        kind = np.dtype(dtype).kind
        if kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind == "f":
            return np.asarray(self.rng.uniform(low, high, shape)).astype(dtype)
        low = max(low, np.iinfo(dtype).min)
        return np.asarray(self.rng.integers(int(low), int(high) + 1, shape)).astype(dtype)

    def distinct(self, shape, dtype: str) -> np.ndarray:
        """Numbers none of which is there twice, as far as the dtype has so many."""
        count = int(np.prod(shape))
        return (self.rng.permutation(count) % 120).reshape(shape).astype(dtype)

    def weights(self, *shape: int, dtype: str = "float32", constant: float = 0.6) -> np.ndarray:
        return self.add(self.values(shape, dtype, -1, 1), constant)

    def broadcast(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that goes with another: extents of 1, leading axes left out."""
        kept = shape[self.whole(0, len(shape)):] if self.chance(0.3) else shape
        return tuple(1 if self.chance(0.25) else extent for extent in kept)

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        chosen = self.rng.permutation(rank)[:self.whole(1, rank)]
        return [int(axis) - rank * int(self.chance(0.3)) for axis in chosen]


Rule = Callable[[Draw], None]


def function_of(kind: str) -> Callable:
    """The function that makes a call of an operator."""
    found = op
    for part in kind.split("."):
        found = getattr(found, part)
    return found
