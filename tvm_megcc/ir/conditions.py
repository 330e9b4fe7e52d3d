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
from .dims import Dim, free, interval, substitute, symbols, to_c


@dataclass(frozen=True)
class Condition:
    """`lhs <= rhs` or `lhs == rhs`, over shape symbols.

    why: what it is about, for messages. origin: the operator of the model that states it.
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
        """Returns the condition as text that is safe for a terminal, whatever names it holds."""
        return "".join(c if c.isprintable() else "_" for c in str(self))

    @property
    def symbols(self) -> frozenset[str]:
        return symbols(self.lhs) | symbols(self.rhs)

    def holds(self, bounds: Mapping[str, tuple[int, int | None]]) -> bool | None:
        """Returns whether it holds for all symbols within bounds (True), for none (False), or depends (None)."""
        low, high = interval(self.rhs - self.lhs, bounds)
        if self.relation == "<=":
            return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
        if low == high == 0:
            return True
        return False if (low is not None and low > 0) or (high is not None and high < 0) else None

    def with_symbols(self, values: Mapping[str, Dim]) -> Condition:
        return replace(self, lhs=substitute(self.lhs, values), rhs=substitute(self.rhs, values))

    def to_c(self, names: Mapping[str, str]) -> str:
        return f"{to_c(self.lhs, names)} {self.relation} {to_c(self.rhs, names)}"


_recorded: ContextVar[list[Condition] | None] = ContextVar("conditions", default=None)


@contextmanager
def recording(origin: str = "") -> Iterator[list[Condition]]:
    """Collects the conditions that shape rules state within the block, except those within an inner block."""
    found: list[Condition] = []
    token = _recorded.set(found)
    try:
        yield found
    finally:
        _recorded.reset(token)
        found[:] = distinct(replace(condition, origin=condition.origin or origin) for condition in found)


def distinct(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Removes duplicate conditions, keeping the first one's text."""
    return tuple(dict.fromkeys(conditions))


def require_at_most(lhs: Dim, rhs: Dim, why: str) -> None:
    """Requires `lhs <= rhs`.

    Raises:
        ShapeError: with `why`, if it is impossible.
    """
    _require(Condition(lhs, "<=", rhs, why))


def require_equal(lhs: Dim, rhs: Dim, why: str) -> None:
    """Requires `lhs == rhs`.

    Raises:
        ShapeError: with `why`, if it is impossible.
    """
    _require(Condition(lhs, "==", rhs, why))


def require_shape(shape: Sequence[Dim], wanted: Sequence[Dim], why: str) -> None:
    """Requires that two shapes are equal.

    Raises:
        ShapeError: with `why`, if it is impossible.
    """
    if len(shape) != len(wanted):
        raise ShapeError(why)
    for dim, other in zip(shape, wanted, strict=True):
        require_equal(dim, other, why)


def _require(condition: Condition) -> None:
    verdict = condition.holds(free(condition.lhs, condition.rhs))
    if verdict is False:
        raise ShapeError(condition.why)
    found = _recorded.get()
    if verdict is None and found is not None:
        found.append(condition)


def undecided(conditions: Iterable[Condition], bounds: Mapping[str, tuple[int, int | None]]) -> tuple[Condition, ...]:
    """Returns the conditions that symbols within bounds can violate.

    Raises:
        ShapeError: for a condition that no symbols within the bounds satisfy.
    """
    found = []
    for condition in distinct(conditions):
        verdict = condition.holds(bounds)
        if verdict is False:
            raise ShapeError(f"none of the shapes asked for fits the model: {condition}")
        if verdict is None:
            found.append(condition)
    return tuple(found)
