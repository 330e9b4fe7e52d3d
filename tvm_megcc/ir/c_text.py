# SPDX-License-Identifier: Apache-2.0
"""C expressions as strings, with only the necessary parentheses. (`frontends/tir` and the expressions of this folder
print C with it.)"""

from __future__ import annotations

from typing import NamedTuple

#: Levels of C's operator precedence, ascending.
COMMA, CHOICE, OR, AND, EQUAL, LESS, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(11)
_LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "<": LESS}


class Text(NamedTuple):
    """An expression in C. text: the expression. level: the precedence of its outermost operator."""

    text: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """Returns the text as an operand of an operator of this precedence, in parentheses if necessary."""
        return self.text if self.level >= level else f"({self.text})"


def infix(left: Text, sign: str, right: Text) -> Text:
    """Returns a binary expression. The right operand has parentheses if it has the same precedence, as in
    `a + (b + c)`, which keeps the order of evaluation, or if it is negative, for readability."""
    level = _LEVELS[sign]
    return Text(f"{left.at(level)} {sign} {right.at(ATOM if right.text.startswith('-') else level + 1)}", level)


def called(name: str, *arguments: Text) -> Text:
    """Returns a function call."""
    return Text(f"{name}({', '.join(argument.text for argument in arguments)})")
