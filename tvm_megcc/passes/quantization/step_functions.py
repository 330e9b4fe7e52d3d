# SPDX-License-Identifier: Apache-2.0
"""Finds float factors that make rounded products equal to another monotone integer function.

Two monotone functions with integer values are equal if they agree on both sides of each step. So for 8-bit results a
few hundred numbers prove equality for all inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...ir.expr import FUSED_ZERO

#: Changes of the factors that are tried, in units in the last place.
_NUDGES = (0, 1, -1, 2, -2)
#: Integers to subtract after the product that are tried, in chunks. The number that is added before the product
#: compensates for them except for a fraction, which varies with them.
_MOVES = np.array(sorted(range(-2048, 2049), key=abs), np.float64)
_AT_A_TIME = 128
#: The largest magnitude of the fused product's result.
_MOST = 2.0**22 - 2


class Found(NamedTuple):
    """The result as arrays [C, 1], for each channel: the function is nearest(factors * (x + moves)) minus an integer
    that `added` includes (ir/expr.py)."""

    factors: np.ndarray
    moves: np.ndarray
    added: np.ndarray


class Steps(NamedTuple):
    """The steps of a monotone function of int32, as arrays [C, levels]. reached: the first argument whose result is at
    least a level; below: the last one before it; infinite if there is none within the limits."""

    levels: np.ndarray
    reached: np.ndarray
    below: np.ndarray

    @staticmethod
    def of(function: Callable[[np.ndarray], np.ndarray], levels: np.ndarray, guess: np.ndarray, least: np.ndarray,
           most: np.ndarray) -> Steps | None:
        """Finds the steps of a function. guess: their positions without rounding. least, most: the range of arguments,
        below the greatest int32."""
        first = np.clip(np.ceil(guess), least, most + 1).astype(np.int64)
        for _ in range(3):
            late = (first > least) & (function(np.maximum(first - 1, least).astype(np.int32)) >= levels)
            early = (first <= most) & (function(np.minimum(first, most).astype(np.int32)) < levels)
            if not (late.any() or early.any()):
                return Steps(levels, np.where(first <= most, first, np.inf),
                             np.where(first > least, first - 1, -np.inf))
            first += early.astype(np.int64) - late
        return None

    def magnitudes(self) -> Steps:
        """Returns the steps of the magnitudes of results, if f(-x) = -f(x)."""
        reached, below = np.where(self.levels > 0, (self.reached, self.below), (-self.below, -self.reached))
        return Steps(np.where(self.levels > 0, self.levels, 1 - self.levels), reached, below)

    def are_of(self, function: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Returns whether a monotone function has these steps."""
        reached, below = (function(np.where(np.isfinite(inputs), inputs, 0).astype(np.int32)) for inputs in self[1:])
        return bool((np.isinf(self.reached) | (reached >= self.levels)).all()
                    and (np.isinf(self.below) | (below < self.levels)).all())


def searched(steps: Steps, factors: np.ndarray) -> Found | None:
    """Searches parameters of a function with these steps, near float32 factors [C, 1]; None if a channel has none. The
    multiply-add is fused: products are not rounded before they are rounded to integers."""
    factors, moves, taken = factors.copy(), np.zeros(factors.shape, np.float64), np.zeros(factors.shape, np.float64)
    unsolved = np.arange(len(factors))
    for nudge in _NUDGES:
        nudged = (factors[unsolved].view(np.int32) + np.int32(nudge)).view(np.float32)
        exact = nudged.astype(np.float64)
        levels, reached, below = (np.broadcast_to(array, (len(factors), array.shape[1]))[unsolved] for array in steps)
        low = np.max(levels - 0.5 - reached * exact, axis=1, keepdims=True, initial=-0.5)
        high = np.min(levels - 0.5 - below * exact, axis=1, keepdims=True, initial=0.5)
        for offsets in np.split(_MOVES, range(_AT_A_TIME, _MOVES.size, _AT_A_TIME)):
            first, last = np.floor((low + offsets) / exact) + 1, np.ceil((high + offsets) / exact) - 1
            fits = first <= last
            at = np.argmax(fits, axis=1)[:, None]
            done = np.take_along_axis(fits, at, 1)[:, 0]
            move = np.take_along_axis(np.minimum(np.maximum(first, 0), last), at, 1)
            solved = unsolved[done]
            factors[solved], moves[solved], taken[solved] = nudged[done], move[done], offsets[at][done]
            unsolved, low, high, nudged, exact = (array[~done] for array in (unsolved, low, high, nudged, exact))
            if not unsolved.size:
                return _within(steps, Found(factors, moves.astype(np.int32), (FUSED_ZERO - taken).astype(np.float32)))
    return None


def _within(steps: Steps, found: Found) -> Found | None:
    """Returns `found`, or None if results may be too large."""
    furthest = max(np.abs(inputs[np.isfinite(inputs)]).max(initial=0) for inputs in (steps.reached, steps.below))
    most = (furthest + np.abs(found.moves, dtype=np.float64)) * found.factors + np.abs(found.added - FUSED_ZERO) + 2**10
    return found if most.max() <= _MOST else None
