# SPDX-License-Identifier: Apache-2.0
"""Patterns of operators in the style of TVM's `relax.dpl`, for passes that rewrite subgraphs.

    x = wildcard()
    transpose = is_op("transpose", x)
    undone = is_op("transpose", is_op("softmax", transpose))
    found = undone.match(edit, op.outputs[0])
    if found is not None:
        found[x], found.op(transpose).attrs.perm   # a value, an attribute of an operator
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ..ir.graph import Op
from ..ops.base import operator
from .edit import Editor

Bindings = Mapping["Pattern", str]


class Match:
    """A match of a pattern: `match[pattern]` is the value that a pattern inside it matched."""

    def __init__(self, edit: Editor, bindings: Bindings):
        self._edit, self._bound = edit, bindings

    def __getitem__(self, pattern: Pattern) -> str:
        return self._bound[pattern]

    def op(self, pattern: Operation) -> Op:
        """Returns the operator that computes the value that the pattern matched."""
        op = self._edit.producer(self._bound[pattern])
        assert op is not None
        return op


class Pattern:
    """A pattern that matches any value. A pattern that occurs several times has to match the same value each time."""

    def match(self, edit: Editor, value: str) -> Match | None:
        """Returns the first match of the pattern with a value; None if it does not match."""
        return next((Match(edit, bindings) for bindings in self.matches(edit, value, MappingProxyType({}))), None)

    def matches(self, edit: Editor, value: str, bindings: Bindings) -> Iterator[Bindings]:
        """Yields the bindings of each possible match with a value. bindings: patterns that already have a value."""
        if self.accepts(edit, value) and bindings.get(self, value) == value:
            yield {**bindings, self: value}

    def accepts(self, edit: Editor, value: str) -> bool:
        """Returns whether the pattern matches a value if other patterns are ignored; "" is an absent operand."""
        return value != ""


class Constant(Pattern):
    """A pattern that matches a constant. size: its number of elements; None: any number."""

    def __init__(self, size: int | None = None):
        self.size = size

    def accepts(self, edit: Editor, value: str) -> bool:
        return value in edit.constants and self.size in (None, edit.constants[value].size)


class Operation(Pattern):
    """A pattern that matches the only result of an operator of one of these kinds, without an epilogue, with exactly
    these operands, in any order if it is commutative. once: the result must have only one reader."""

    def __init__(self, kinds: Sequence[str], operands: Sequence[Pattern], once: bool = False):
        self.kinds, self.operands, self.once = tuple(kinds), tuple(operands), once

    def matches(self, edit: Editor, value: str, bindings: Bindings) -> Iterator[Bindings]:
        op = edit.producer(value) if value else None
        if op is None or op.kind not in self.kinds or op.epilogue is not None or len(op.outputs) != 1 \
                or len(op.inputs) != len(self.operands) or (self.once and not edit.is_read_once(value)):
            return
        for match in super().matches(edit, value, bindings):
            yield from _match_operands(edit, self.operands, op.inputs, match)
            if getattr(operator(op.kind), "commutative", False):
                yield from _match_operands(edit, self.operands, op.inputs[::-1], match)


def _match_operands(edit: Editor, patterns: Sequence[Pattern], values: Sequence[str], bindings: Bindings
                    ) -> Iterator[Bindings]:
    """Yields the bindings of each possible match of patterns with the values at their positions."""
    if not patterns:
        yield bindings
        return
    for first in patterns[0].matches(edit, values[0], bindings):
        yield from _match_operands(edit, patterns[1:], values[1:], first)


def wildcard() -> Pattern:
    """Returns a pattern that matches any value."""
    return Pattern()


def is_const(size: int | None = None) -> Constant:
    """Returns a pattern that matches a constant. size: its number of elements; None: any number."""
    return Constant(size)


def is_op(kind: str | Sequence[str], *operands: Pattern, once: bool = False) -> Operation:
    """Returns a pattern that matches the result of an operator with these operands. kind: one kind or several. once:
    the result must have only one reader."""
    return Operation((kind,) if isinstance(kind, str) else kind, operands, once)
