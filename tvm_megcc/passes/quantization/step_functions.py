# SPDX-License-Identifier: Apache-2.0
"""Finds the parameters of a float multiply-add and rounding that equals a given monotone integer function.

Two monotone functions with integer values are equal if they agree on both sides of each step. So for 8-bit results,
comparing them on a few hundred arguments proves that they are equal for all. `rescale_real.py` uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...ir.expr import FUSED_ZERO

#: The changes of a factor that are tried, in units in the last place.
_FACTOR_STEPS = (0, 1, -1, 2, -2)
#: The integers that are tried as a number to subtract from the rounded product, `_SUBTRAHENDS_AT_A_TIME` at a time. The
#: offset that is added before the product compensates for them except for a fraction, which differs for each.
_SUBTRAHENDS = np.array(sorted(range(-2048, 2049), key=abs), np.float64)
_SUBTRAHENDS_AT_A_TIME = 128
#: The largest magnitude of the fused product's result: `_nearest_fused` of ir/expr.py requires less than 2^22.
_MAX_RESULT = 2.0**22 - 2
#: A margin for the zero point that `rescale_real.py` adds to the addends.
_ZERO_POINT_MARGIN = 2.0**10


class RoundingParameters(NamedTuple):
    """The parameters of the function `_nearest_fused(x + offsets, factors, addends)` of ir/expr.py, which is
    round(factors * (x + offsets)) + (addends - FUSED_ZERO): arrays [C, 1], for C channels.

    factors: float32. offsets: int32. addends: float32.
    """

    factors: np.ndarray
    offsets: np.ndarray
    addends: np.ndarray


class Steps(NamedTuple):
    """The steps of C monotone functions of int32, as arrays [C, number of levels].

    levels: integers, which are results of the function.
    reached: the smallest argument whose result is at least the level; infinity if there is none in the range.
    below: the argument before it; -infinity if there is none in the range.
    """

    levels: np.ndarray
    reached: np.ndarray
    below: np.ndarray

    @staticmethod
    def of(function: Callable[[np.ndarray], np.ndarray], levels: np.ndarray, guess: np.ndarray, smallest: np.ndarray,
           largest: np.ndarray) -> Steps | None:
        """Finds the steps of a function; None if the guesses are too far from them.

        Args:
            function: the functions of C channels, on arrays [C, number of levels].
            guess: an estimate of `reached`.
            smallest, largest: the range of arguments of each channel, [C, 1]; less than the largest int32.
        """
        first = np.clip(np.ceil(guess), smallest, largest + 1).astype(np.int64)
        for _ in range(3):
            is_late = (first > smallest) & (function(np.maximum(first - 1, smallest).astype(np.int32)) >= levels)
            is_early = (first <= largest) & (function(np.minimum(first, largest).astype(np.int32)) < levels)
            if not (is_late.any() or is_early.any()):
                return Steps(levels, np.where(first <= largest, first, np.inf),
                             np.where(first > smallest, first - 1, -np.inf))
            first += is_early.astype(np.int64) - is_late
        return None

    def magnitudes(self) -> Steps:
        """Returns the steps of an odd function as steps of its magnitude: the levels become positive."""
        # The function reaches a level L <= 0 at `reached` and is at most L - 1 at `below`. So its magnitude reaches
        # 1 - L at -below, and is at most -L at -reached.
        reached, below = np.where(self.levels > 0, (self.reached, self.below), (-self.below, -self.reached))
        return Steps(np.where(self.levels > 0, self.levels, 1 - self.levels), reached, below)

    def are_of(self, function: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Returns whether a monotone function has these steps."""
        reached, below = (function(np.where(np.isfinite(inputs), inputs, 0).astype(np.int32)) for inputs in self[1:])
        return bool((np.isinf(self.reached) | (reached >= self.levels)).all()
                    and (np.isinf(self.below) | (below < self.levels)).all())


def search_rounding(steps: Steps, factors: np.ndarray) -> RoundingParameters | None:
    """Searches parameters of a fused multiply-add and rounding with these steps, near float32 factors [C, 1].

    For a factor and a number that is subtracted from the product, each step gives a lower and an upper bound of the
    offset; a solution is an integer within all bounds.

    Returns:
        The parameters; None if a channel has no solution.
    """
    factors = factors.copy()
    offsets, subtracted = np.zeros(factors.shape, np.float64), np.zeros(factors.shape, np.float64)
    unsolved = np.arange(len(factors))
    for nudge in _FACTOR_STEPS:
        nudged = (factors[unsolved].view(np.int32) + np.int32(nudge)).view(np.float32)
        exact = nudged.astype(np.float64)
        levels, reached, below = (np.broadcast_to(array, (len(factors), array.shape[1]))[unsolved] for array in steps)
        # Bounds of factor * offset - subtrahend. `initial` limits it where the sums reach no step.
        lower = np.max(levels - 0.5 - reached * exact, axis=1, keepdims=True, initial=-0.5)
        upper = np.min(levels - 0.5 - below * exact, axis=1, keepdims=True, initial=0.5)
        parts = range(_SUBTRAHENDS_AT_A_TIME, _SUBTRAHENDS.size, _SUBTRAHENDS_AT_A_TIME)
        for subtrahends in np.split(_SUBTRAHENDS, parts):
            first, last = np.floor((lower + subtrahends) / exact) + 1, np.ceil((upper + subtrahends) / exact) - 1
            fits = first <= last
            chosen = np.argmax(fits, axis=1)[:, None]
            done = np.take_along_axis(fits, chosen, 1)[:, 0]
            nearest_to_zero = np.take_along_axis(np.minimum(np.maximum(first, 0), last), chosen, 1)
            solved = unsolved[done]
            factors[solved], offsets[solved] = nudged[done], nearest_to_zero[done]
            subtracted[solved] = subtrahends[chosen][done]
            unsolved, lower, upper, nudged, exact = (array[~done] for array in (unsolved, lower, upper, nudged, exact))
            if not unsolved.size:
                addends = (FUSED_ZERO - subtracted).astype(np.float32)
                return _if_in_range(steps, RoundingParameters(factors, offsets.astype(np.int32), addends))
    return None


def _if_in_range(steps: Steps, found: RoundingParameters) -> RoundingParameters | None:
    """Returns `found`, or None if results may be too large."""
    furthest = max(np.abs(inputs[np.isfinite(inputs)]).max(initial=0) for inputs in (steps.reached, steps.below))
    largest = (furthest + np.abs(found.offsets, dtype=np.float64)) * found.factors \
        + np.abs(found.addends - FUSED_ZERO) + _ZERO_POINT_MARGIN
    return found if largest.max() <= _MAX_RESULT else None
