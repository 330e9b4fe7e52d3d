# SPDX-License-Identifier: Apache-2.0
"""Patterns of operators in the style of `relax.dpl`. A match tests kinds, numbers of operands and producers before a
pass reads them.

    x = wildcard()
    transpose = is_op("transpose", x)
    undone = is_op("transpose", is_op("softmax", transpose))
    found = undone.match(edit, op.outputs[0])
    if found is not None:
        found[x], found.op(transpose).attrs.perm
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ..ir.graph import Op
from ..ops.base import operator
from .edit import Editor

Bound = Mapping["Pattern", str]


class Match:
    """A match of a pattern: values by the patterns within it."""

    def __init__(self, edit: Editor, bound: Bound):
        self._edit, self._bound = edit, bound

    def __getitem__(self, pattern: Pattern) -> str:
        return self._bound[pattern]

    def op(self, pattern: Operation) -> Op:
        """Returns the operator that the pattern matched."""
        op = self._edit.producer(self._bound[pattern])
        assert op is not None
        return op


class Pattern:
    """Matches any value. A pattern that occurs several times has to match the same value each time."""

    def match(self, edit: Editor, value: str) -> Match | None:
        """Returns the first match of the pattern on a value."""
        return next((Match(edit, bound) for bound in self.ways(edit, value, MappingProxyType({}))), None)

    def ways(self, edit: Editor, value: str, bound: Bound) -> Iterator[Bound]:
        """Yields the values that each way of matching adds to those bound already."""
        if self.accepts(edit, value) and bound.get(self, value) == value:
            yield {**bound, self: value}

    def accepts(self, edit: Editor, value: str) -> bool:
        return value != ""


class Constant(Pattern):
    """A constant, of `size` elements if that is given."""

    def __init__(self, size: int | None = None):
        self.size = size

    def accepts(self, edit: Editor, value: str) -> bool:
        return value in edit.constants and self.size in (None, edit.constants[value].size)


class Operation(Pattern):
    """Matches the only result of an operator of one of these kinds, without an epilogue, with exactly these operands,
    in any order if it is commutative. once: it must have only one reader."""

    def __init__(self, kinds: Sequence[str], operands: Sequence[Pattern], once: bool = False):
        self.kinds, self.operands, self.once = tuple(kinds), tuple(operands), once

    def ways(self, edit: Editor, value: str, bound: Bound) -> Iterator[Bound]:
        op = edit.producer(value) if value else None
        if op is None or op.kind not in self.kinds or op.epilogue is not None or len(op.outputs) != 1 \
                or len(op.inputs) != len(self.operands) or (self.once and not edit.is_read_once(value)):
            return
        for match in super().ways(edit, value, bound):
            yield from _all(edit, self.operands, op.inputs, match)
            if getattr(operator(op.kind), "commutative", False):
                yield from _all(edit, self.operands, op.inputs[::-1], match)


def _all(edit: Editor, patterns: Sequence[Pattern], values: Sequence[str], bound: Bound) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for first in patterns[0].ways(edit, values[0], bound):
        yield from _all(edit, patterns[1:], values[1:], first)


def wildcard() -> Pattern:
    """Returns a pattern that matches any value."""
    return Pattern()


def is_const(size: int | None = None) -> Constant:
    """Returns a pattern that matches a constant, with `size` elements if that is given."""
    return Constant(size)


def is_op(kind: str | Sequence[str], *operands: Pattern, once: bool = False) -> Operation:
    """Returns a pattern that matches the result of an operator of this kind, or one of several, with these operands.
    once: it must have only one reader."""
    return Operation((kind,) if isinstance(kind, str) else kind, operands, once)
