# SPDX-License-Identifier: Apache-2.0
"""Parses extents: "past_sequence_length + sequence_length" in a file is the sum of two dimensions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable

from ..errors import ShapeError
from .dims import Dim, Symbol, floordiv

#: The placeholder for a size in messages, and a pattern of dimensions that are mostly 1.
SIZE, _IS_BATCH = "SIZE", re.compile("batch")
#: The longest text that is parsed; longer ones are treated as names.
_LONGEST = 200
_TOKEN = re.compile(r"\s*(?:(\d{1,9})(?![\w.])|([A-Za-z_][\w.]*)|(//|[-+*()]))")


def sizes_wanted(names: Iterable[str], size: str = "") -> str:
    """Returns the command-line options that set these dimensions, for a message. size: the placeholder for numbers."""
    return " ".join(f"--dim {shlex.quote(f'{name}={size or (1 if _IS_BATCH.search(name.lower()) else SIZE)}')}"
                    for name in names)


def parse_dim(text: str, names: Container[str]) -> Dim | None:
    """Parses an expression of sums, differences, products and integer quotients over numbers and these dimensions.
    Returns None for anything else, such as a name."""
    tokens, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or len(text) > _LONGEST or (match[2] and match[2] not in names):
            return None
        tokens.append(match[0].strip())
        position = match.end()
    reader = _Reader(tokens)
    try:
        found = reader.sum()
    except (ShapeError, ValueError):
        return None
    return found if not reader.left() else None


class _Reader:
    """A recursive-descent parser. Raises ValueError for a syntax error."""

    def __init__(self, tokens: list[str]):
        self.tokens = tokens[::-1]

    def left(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def sum(self) -> Dim:
        found = self.product()
        while self.left() in ("+", "-"):
            sign, other = self.tokens.pop(), self.product()
            found = found + other if sign == "+" else found - other
        return found

    def product(self) -> Dim:
        found = self.atom()
        while self.left() in ("*", "//"):
            sign, other = self.tokens.pop(), self.atom()
            if sign == "//" and (not isinstance(other, int) or other < 1):
                raise ValueError
            found = found * other if sign == "*" else floordiv(found, other)
        return found

    def atom(self) -> Dim:
        token = self.tokens.pop() if self.tokens else ""
        if token == "(":
            found = self.sum()
            if not self.tokens or self.tokens.pop() != ")":
                raise ValueError
            return found
        if not token or token in ("+", "-", "*", "//", ")"):
            raise ValueError
        return int(token) if token.isdecimal() else Symbol(token)
