# SPDX-License-Identifier: Apache-2.0
"""Formats generated C: indents it by its nesting and breaks long lines. So templates may be indented for their own
readers."""

from __future__ import annotations

import re
from functools import lru_cache

INDENT = "    "
WIDTH = 120

#: The head of a statement whose body, without braces, is on the next line.
_CONTROL = re.compile(r"(?:else\s+)?(?:if|for|while|switch)\b.*\)$|else$|do$")
_LABEL = re.compile(r"case\b|default:")
#: Strings, characters and comments: braces, parentheses and commas in them do not count.
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|/\*.*?\*/|//.*')


def reindent(text: str) -> str:
    """Indents lines by their nesting and breaks long ones after commas. A blank line between functions is kept; further
    ones, and those inside of functions, are dropped. Block comments over several lines keep their inner alignment.
    Preprocessor lines are not indented."""
    result: list[str] = []
    depth, parens = 0, 0    # open braces and parentheses before the line
    pending = 0             # further levels: bodies without braces, and the rest of an expression
    statement = ""          # the lines of a statement whose parentheses are not all closed
    comment_shift: int | None = None  # inside a block comment: the columns by which it is moved
    for raw in text.split("\n"):
        line = raw.strip()
        if comment_shift is not None:
            result.append((" " * (len(raw) - len(raw.lstrip()) + comment_shift)) + line if line else "")
            comment_shift = None if "*/" in line else comment_shift
            continue
        if not line:
            if result and result[-1] and not depth:
                result.append("")
            continue
        if line.startswith("#"):
            result.append(line)
            continue
        code, outdent, braces, opened = _nesting(line)
        # The `{` of a body is as deep as the statement before it, that of an initialiser as the rest of its expression.
        begins_body = code.startswith("{") and not parens
        extra = 0 if begins_body else pending + (parens > 0)
        column = len(INDENT) * (depth - outdent + extra)
        if column + len(line) <= WIDTH:
            result.append(" " * column + line)
        else:
            result += _broken(line, column)
        if line.startswith("/*") and "*/" not in line:
            comment_shift = column - (len(raw) - len(raw.lstrip()))
            continue
        if not code:
            continue
        depth += braces
        parens = max(0, parens + opened)
        statement = f"{statement} {code}" if statement else code
        if not parens:
            pending = _pending(statement, pending)
            statement = ""
    return "\n".join(result)


@lru_cache(maxsize=1 << 14)  # kernels of one template have many lines in common
def _nesting(line: str) -> tuple[str, int, int, int]:
    """Returns the line without literals and comments, the levels by which it is dedented, and the numbers of braces and
    of parentheses that it opens minus those that it closes."""
    code = _LITERAL.sub("", line).strip() if "/" in line or '"' in line or "'" in line else line
    leading = len(code) - len(code.lstrip("}"))
    return (code, leading + (_LABEL.match(code) is not None), code.count("{") - code.count("}"),
            code.count("(") - code.count(")"))


def _broken(line: str, column: int) -> list[str]:
    """Indents a line to a column, and breaks it after the outermost commas if it is too long."""
    lines, inner = [], column + len(INDENT)
    while column + len(line) > WIDTH and not line.startswith(("/*", "*", "for")):
        masked = _LITERAL.sub(lambda match: "." * len(match[0]), line)
        breaks = [match.start() + 1 for match in re.finditer(", ", masked)]
        fits = [index for index in breaks if WIDTH // 3 < column + index <= WIDTH] or breaks[:1]
        if not fits:
            break
        # The break with the fewest open parentheses before it; the last one of these.
        end = min(fits, key=lambda index: (masked.count("(", 0, index) - masked.count(")", 0, index), -index))
        lines.append(" " * column + line[:end])
        line, column = line[end + 1:], inner
    return [*lines, " " * column + line]


def _pending(code: str, pending: int) -> int:
    """Returns the additional levels of the next line, after a statement without braces or an unfinished expression."""
    if _CONTROL.fullmatch(code.lstrip("} ")):
        return pending + 1
    if code.endswith((";", "{", "}", ":", ",")):
        return 0
    return max(pending, 1)
