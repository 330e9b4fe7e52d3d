# SPDX-License-Identifier: Apache-2.0
"""Control flow of a program: the instructions besides kernel calls, which are extents that become known, copies and
jumps. Each precedes a step of the plan (plan.py); `inline.inlined` creates them from loops and branches. They refer to
values by name; a `mark` is the name of a jump target. The property `values` has the values that an instruction
accesses, for live ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Union

from ..ir.shapes import UnbackedSymbol


@dataclass(frozen=True)
class Move:
    """Copies the value `source` to `target`. If `iteration` names a value, that is the index, along the first axis of
    `target`, of the row that `source` is copied to; "": `source` becomes the whole target."""

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
    is true, it jumps to `mark`, the first step of the body.

    stacks: the tensors that the iterations fill row by row; the begin names them, so that they are alive from there on.
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
    """Returns an item with other names of values and marks; an absent iteration ("") stays absent."""
    if isinstance(item, UnbackedSymbol):
        return replace(item, value=name(item.value))
    changed = {field: tuple(map(name, given)) if isinstance(given, tuple) else name(given)
               for field, given in vars(item).items() if given and isinstance(given, (str, tuple))}
    return replace(item, **changed)  # type: ignore[type-var]
