# SPDX-License-Identifier: Apache-2.0
"""Conditions on extents under which operators fit their operands.

A shape rule states each condition with `require_…`. A condition that the numbers, or the lower bounds of
symbols, decide holds or raises a ShapeError at once. The others are recorded with the graph; the shape function checks
them on the device whenever input shapes are set or a run has computed a symbol. Kernels rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from ..errors import ShapeError
from .dims import Dim, substitute, symbols, to_c
from .extent_bounds import free, interval


@dataclass(frozen=True)
class Condition:
    """A condition `lhs <= rhs` or `lhs == rhs` over shape symbols.

    relation: "<=" or "==".
    why: the meaning of the condition, for messages.
    origin: the name of the model's operator whose shape rule states it.
    """

    lhs: Dim
    relation: str
    rhs: Dim
    why: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.origin, self.why, f"{self.lhs} {self.relation} {self.rhs}")))

    @property
    def printable(self) -> str:
        """The condition as text without control characters, which names of the model may contain."""
        return "".join(c if c.isprintable() else "_" for c in str(self))

    @property
    def symbols(self) -> frozenset[str]:
        return symbols(self.lhs) | symbols(self.rhs)

    def holds(self, bounds: Mapping[str, tuple[int, int | None]]) -> bool | None:
        """Returns whether the condition holds for all values of symbols within their bounds (True), for no values
        (False), or for some (None)."""
        lower, upper = interval(self.rhs - self.lhs, bounds)
        never_negative, always_negative = lower is not None and lower >= 0, upper is not None and upper < 0
        if self.relation == "<=":
            return True if never_negative else False if always_negative else None
        if lower == upper == 0:
            return True
        return False if always_negative or (lower is not None and lower > 0) else None

    def with_symbols(self, values: Mapping[str, Dim]) -> Condition:
        """Returns the condition with some symbols replaced."""
        return replace(self, lhs=substitute(self.lhs, values), rhs=substitute(self.rhs, values))

    def to_c(self, names: Mapping[str, str]) -> str:
        """Returns the condition as C. names: symbol -> C expression of its value."""
        return f"{to_c(self.lhs, names)} {self.relation} {to_c(self.rhs, names)}"


_recorded: ContextVar[list[Condition] | None] = ContextVar("conditions", default=None)


@contextmanager
def recording(origin: str = "") -> Iterator[list[Condition]]:
    """Yields a list to which shape rules append their conditions inside the block, except inside an inner block.

    origin: the operator that the conditions are attributed to.
    """
    collected: list[Condition] = []
    token = _recorded.set(collected)
    try:
        yield collected
    finally:
        _recorded.reset(token)
        collected[:] = distinct(replace(condition, origin=condition.origin or origin) for condition in collected)


def distinct(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Removes duplicate conditions, keeping the first one's text."""
    return tuple(dict.fromkeys(conditions))


def require_at_most(lhs: Dim, rhs: Dim, why: str) -> None:
    """Requires `lhs <= rhs`.

    Raises:
        ShapeError: with the message `why`, if no values of symbols satisfy it.
    """
    _require(Condition(lhs, "<=", rhs, why))


def require_equal(lhs: Dim, rhs: Dim, why: str) -> None:
    """Requires `lhs == rhs`.

    Raises:
        ShapeError: with the message `why`, if no values of symbols satisfy it.
    """
    _require(Condition(lhs, "==", rhs, why))


def require_shape(shape: Sequence[Dim], expected: Sequence[Dim], why: str) -> None:
    """Requires that two shapes are equal.

    Raises:
        ShapeError: with the message `why`, if no values of symbols satisfy it.
    """
    if len(shape) != len(expected):
        raise ShapeError(why)
    for dim, other in zip(shape, expected, strict=True):
        require_equal(dim, other, why)


def _require(condition: Condition) -> None:
    """Records a condition unless it always holds. Raises ShapeError if it never holds."""
    verdict = condition.holds(free(condition.lhs, condition.rhs))
    if verdict is False:
        raise ShapeError(condition.why)
    collected = _recorded.get()
    if verdict is None and collected is not None:
        collected.append(condition)


def undecided(conditions: Iterable[Condition], bounds: Mapping[str, tuple[int, int | None]]) -> tuple[Condition, ...]:
    """Returns the conditions that some values of symbols within their bounds may violate.

    Raises:
        ShapeError: for a condition that all values within the bounds violate.
    """
    collected = []
    for condition in distinct(conditions):
        verdict = condition.holds(bounds)
        if verdict is False:
            raise ShapeError(f"none of the shapes asked for fits the model: {condition}")
        if verdict is None:
            collected.append(condition)
    return tuple(collected)
