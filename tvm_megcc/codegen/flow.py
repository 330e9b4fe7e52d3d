# SPDX-License-Identifier: Apache-2.0
"""Control flow of a program: the instructions besides kernel calls, which are extents that become known, copies and
jumps. Each precedes a step of the plan (plan.py); `inline.inlined` creates them from loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Union

from ..ir.shapes import UnbackedSymbol


@dataclass(frozen=True)
class Move:
    """Copies a value. With `iteration`, a number, copies it to that index of the target along its first axis."""

    source: str
    target: str
    iteration: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.source, self.target, self.iteration)))


@dataclass(frozen=True)
class Jump:
    """Jumps to `mark` if the value, a bool, is `when`."""

    value: str
    when: bool
    mark: str

    @property
    def values(self) -> tuple[str, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Iteration:
    """The begin or the end of a loop.

    The begin (`first`) sets the iteration to 0. If that is not less than `trip_count`, or `condition` is false, it
    jumps to `mark`, after the loop. The end adds 1 to the iteration. If that is less than `trip_count` and `condition`
    is true, it jumps to `mark`, the first step of the body. stacks: tensors that the iterations fill.
    """

    iteration: str
    trip_count: str
    condition: str
    first: bool
    mark: str
    stacks: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        return self.iteration, self.trip_count, self.condition, *self.stacks


@dataclass(frozen=True)
class Mark:
    """A jump target, which is not an instruction."""

    name: str
    values: tuple[str, ...] = ()


Control = Union[UnbackedSymbol, Move, Jump, Iteration, Mark]


def renamed(item: Control, name: Callable[[str], str]) -> Control:
    """Returns an item with other names of values and marks."""
    if isinstance(item, UnbackedSymbol):
        return replace(item, value=name(item.value))
    changed = {field: tuple(map(name, given)) if isinstance(given, tuple) else name(given)
               for field, given in vars(item).items() if given and isinstance(given, (str, tuple))}
    return replace(item, **changed)  # type: ignore[type-var]
