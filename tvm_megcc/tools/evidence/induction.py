# SPDX-License-Identifier: Apache-2.0
"""Variables that a loop only adds to: their ranges while it runs and after it.

A variable of signed integers whose every change in the body adds a number that is never negative is never less than
before the loop. In an iteration it grows at most by the sum of these numbers, each times the iterations of the loops
around it. Whether a number is never negative may depend on such variables themselves, so it is assumed at first, and
the body is walked until the assumption holds of all that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pycparser import c_ast

from .changes import LOOPS, nodes, step_of
from .conditions import integer_limits
from .ranges import Range, known

if TYPE_CHECKING:
    from .loops import Walk

@dataclass(frozen=True)
class Induction:
    """A variable that a loop only adds to, or only subtracts from (an induction variable).

    begin: its range before the loop.
    any_time: its range while the loop runs, whatever the number of iterations.
    steps: the range of each change.
    iteration: the range of all changes of an iteration together; None: unknown.
    condition: that of those in the loop's condition, which is computed once more than the body.
    """

    begin: tuple[int, int]
    any_time: tuple[int, int]
    steps: tuple[Range, ...]
    iteration: Range
    condition: Range = (0, 0)

    def after(self, most: int | None) -> Range:
        """Returns the range during and after at most so many iterations, and the condition after them."""
        if most is None or self.iteration is None or self.condition is None:
            return self.any_time
        found = known(self.begin[0] + self.iteration[0] * most + self.condition[0],
                      self.begin[1] + self.iteration[1] * most + self.condition[1])
        return None if found is None else (max(found[0], self.any_time[0]), min(found[1], self.any_time[1]))

    def next(self, start: Range) -> Range:
        """Returns the range after the loop, by that at the start of every iteration."""
        if start is None or self.iteration is None or self.condition is None:
            return None
        return known(min(self.begin[0], start[0] + self.iteration[0]) + self.condition[0],
                     max(self.begin[1], start[1] + self.iteration[1]) + self.condition[1])


def induction_variables(walk: Walk, node: c_ast.Node, begin: Mapping[Any, Range], inner: Mapping[Any, Range],
            changers: Mapping[str, Sequence[c_ast.Node]]) -> dict[str, Induction]:
    """Returns the variables that a loop only adds to.

    Args:
        begin: the ranges before the first iteration.
        inner: those in every iteration, in which variables that the loop changes are unknown.
        changers: the expressions that change each variable.
    """
    if any(isinstance(part, c_ast.Goto) for part in nodes(node.stmt)):
        return {}
    found: dict[str, Induction] = {}
    for name, parts in changers.items():
        first, limits = begin.get(name), integer_limits(walk.types.get(name))
        steps = [step_of(part) for part in parts]
        if first is None or limits is None or limits[0] > -(2**31) or name in walk.exposed:
            continue    # unsigned and narrow integers wrap
        if not all(map(_adds, parts)):
            continue
        numbers = [step for step in steps if step is not None]
        if min(numbers, default=0) >= 0:
            found[name] = Induction(first, (first[0], limits[1]), (), None)
        elif max(numbers) <= 0:
            found[name] = Induction(first, (limits[0], first[1]), (), None)
    while found:
        steps_of, iterations = _walked(walk, node, {**inner, **{name: row.any_time for name, row in found.items()}})
        rows = {name: _with_steps(row, [(part, _step(part, steps_of)) for part in changers[name]], node, iterations)
                for name, row in found.items()}
        if all(rows.values()):
            return {name: row for name, row in rows.items() if row is not None}
        found = {name: row for name, row in found.items() if rows[name] is not None}
    return {}


def _adds(part: c_ast.Node) -> bool:
    return part.op in ("+=", "-=") if isinstance(part, c_ast.Assignment) else part.op != "&"


def _step(part: c_ast.Node, steps: Mapping[int, Range]) -> Range:
    """Returns the range that an expression adds; (0, 0) if the walk did not reach it."""
    number = step_of(part)
    return steps.get(id(part), (0, 0)) if number is None else (number, number)


def _with_steps(row: Induction, steps: Sequence[tuple[c_ast.Node, Range]], loop: c_ast.Node,
                iterations: Mapping[int, int | None]) -> Induction | None:
    """Returns an induction variable with its steps; None if one of them may go the other way. iterations: the most of
    each loop within."""
    rises = row.any_time[0] == row.begin[0]
    if any(step is None or (step[0] < 0 if rises else step[1] > 0) for _, step in steps):
        return None
    in_condition = {id(part) for part in nodes(loop.cond)}

    def total(parts: Sequence[tuple[c_ast.Node, Range]]) -> Range:
        low, high = 0, 0
        for part, step in parts:
            count = _times(loop, part, iterations)
            if step is None or count is None:
                return None
            low, high = low + min(0, step[0]) * count, high + max(0, step[1]) * count
        return known(low, high)

    return Induction(row.begin, row.any_time, tuple(step for _, step in steps), total(steps),
                  total([row for row in steps if id(row[0]) in in_condition]))


def _walked(walk: Walk, node: c_ast.Node, ranges: dict[Any, Range]) -> tuple[dict[int, Range], dict[int, int | None]]:
    """Walks an iteration of a loop without a trace in the results. Returns the ranges that changes add, and the most
    iterations of the loops in it."""
    kept = walk.found, walk.seen, walk.steps, list(walk.returned)
    walk.found, walk.seen, walk.steps = {}, {}, {}
    walk.iteration(node, ranges)
    steps, iterations = walk.steps, {key: row.at_most for key, row in walk.found.items()}
    walk.found, walk.seen, walk.steps, walk.returned = kept
    return steps, iterations


def _times(loop: c_ast.Node, part: c_ast.Node, iterations: Mapping[int, int | None]) -> int | None:
    """Returns how often an iteration of a loop computes an expression, at most: once, or as often as the loops in the
    body that it stands in say."""
    times: int | None = 1
    for inner in _around(loop, part):
        most = iterations.get(id(inner), 0)
        again = any(each is part for each in nodes(inner.cond))     # the condition is computed once more than the body
        times = None if most is None or times is None else times * (most + again)
    return times


def _around(loop: c_ast.Node, part: c_ast.Node) -> Iterator[c_ast.Node]:
    """Yields the loops within a loop that an expression stands in."""
    for inner in nodes(loop):
        if inner is not loop and isinstance(inner, LOOPS) and any(each is part for each in nodes(inner)):
            yield inner


def joined(first: Range, second: Range) -> Range:
    """Returns the numbers of both ranges; the first if the second is unknown or they have none in common."""
    if first is None or second is None:
        return first if second is None else second
    low, high = max(first[0], second[0]), min(first[1], second[1])
    return (low, high) if low <= high else first
