# SPDX-License-Identifier: Apache-2.0
"""Expressions of C as text, with the parentheses that their meaning wants and no others."""

from __future__ import annotations

from typing import NamedTuple

#: How tightly operators of C bind.
COMMA, CHOICE, OR, AND, EQUAL, LESS, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(11)
_LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "<": LESS}


class Text(NamedTuple):
    """An expression in C. level: how tightly its outermost operator binds."""

    text: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """Returns the text as an operand of something that binds this tightly."""
        return self.text if self.level >= level else f"({self.text})"


def infix(left: Text, sign: str, right: Text) -> Text:
    """Two operands of an operator, computed in this order: `a + (b + c)` keeps its parentheses. A sign on the right has
    some too, for readers."""
    level = _LEVELS[sign]
    return Text(f"{left.at(level)} {sign} {right.at(ATOM if right.text.startswith('-') else level + 1)}", level)


def called(name: str, *arguments: Text) -> Text:
    return Text(f"{name}({', '.join(argument.text for argument in arguments)})")
