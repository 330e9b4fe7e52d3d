# SPDX-License-Identifier: Apache-2.0
"""Parses extents of models: the dimension "past_sequence_length + sequence_length" of an ONNX file is a sum of two
symbols."""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable

from ..errors import ShapeError
from .dims import Dim, Symbol, floordiv

#: The placeholder for a size in messages, and a pattern of names of dimensions for which messages propose 1.
SIZE, _IS_BATCH = "SIZE", re.compile("batch")
#: The largest number of characters that are parsed; a longer text is treated as a name.
_MAX_TEXT = 200
_TOKEN = re.compile(r"\s*(?:(\d{1,9})(?![\w.])|([A-Za-z_][\w.]*)|(//|[-+*()]))")


def sizes_wanted(names: Iterable[str], size: str = "") -> str:
    """Returns the command-line options that set these dimensions, such as `--dim batch=1 --dim n=SIZE`, for a message.
    size: the value of all; default: 1 for batch dimensions, `SIZE` for others."""
    return " ".join(f"--dim {shlex.quote(f'{name}={size or (1 if _IS_BATCH.search(name.lower()) else SIZE)}')}"
                    for name in names)


def parse_dim(text: str, names: Container[str]) -> Dim | None:
    """Parses an expression of sums, differences, products and integer quotients over numbers and these dimensions.

    Args:
        text: such as "2*n + 1".
        names: the dimensions that may occur.

    Returns:
        The extent; None for any other text, such as an unknown name.
    """
    tokens, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or len(text) > _MAX_TEXT or (match[2] and match[2] not in names):
            return None
        tokens.append(match[0].strip())
        position = match.end()
    reader = _Reader(tokens)
    try:
        result = reader.sum()
    except (ShapeError, ValueError):
        return None
    return result if not reader.left() else None


class _Reader:
    """A recursive-descent parser of sums of products of atoms. Its methods raise ValueError for a syntax error."""

    def __init__(self, tokens: list[str]):
        self.tokens = tokens[::-1]

    def left(self) -> str:
        """Returns the next token; "" at the end."""
        return self.tokens[-1] if self.tokens else ""

    def sum(self) -> Dim:
        result = self.product()
        while self.left() in ("+", "-"):
            sign, other = self.tokens.pop(), self.product()
            result = result + other if sign == "+" else result - other
        return result

    def product(self) -> Dim:
        result = self.atom()
        while self.left() in ("*", "//"):
            sign, other = self.tokens.pop(), self.atom()
            if sign == "//" and (not isinstance(other, int) or other < 1):
                raise ValueError
            result = result * other if sign == "*" else floordiv(result, other)
        return result

    def atom(self) -> Dim:
        token = self.tokens.pop() if self.tokens else ""
        if token == "(":
            result = self.sum()
            if not self.tokens or self.tokens.pop() != ")":
                raise ValueError
            return result
        if not token or token in ("+", "-", "*", "//", ")"):
            raise ValueError
        return int(token) if token.isdecimal() else Symbol(token)
