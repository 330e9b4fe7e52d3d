# SPDX-License-Identifier: Apache-2.0
"""Indentation of generated C, from its braces: templates need not count the columns of what they nest."""

from __future__ import annotations

import re

INDENT = "    "

_CONTROL = re.compile(r"(?:else\s+)?(?:if|for|while|switch)\b.*\)$|else$|do$")
_QUIET = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|/\*.*?\*/|//.*')


def reindent(text: str) -> str:
    """The same lines at the columns that their nesting asks for; runs of blank lines become one,
    and none is left at the borders of a block.

    Block comments over several lines keep their inner alignment. Preprocessor lines stay at the margin.
    """
    result: list[str] = []
    depth, parens, pending = 0, 0, 0
    statement = ""
    comment_shift: int | None = None
    for raw in text.split("\n"):
        line = raw.strip()
        if comment_shift is not None:
            result.append((" " * (len(raw) - len(raw.lstrip()) + comment_shift)) + line if line else "")
            comment_shift = None if "*/" in line else comment_shift
            continue
        if not line:
            if result and result[-1] and not result[-1].endswith("{"):
                result.append("")
            continue
        if result and not result[-1] and line.startswith(("}", "else")):
            result.pop()
        if line.startswith("#"):
            result.append(line)
            continue
        code = _QUIET.sub("", line) if "/" in line or '"' in line or "'" in line else line
        leading = len(code) - len(code.lstrip("}"))
        level = depth - leading
        extra = pending + (parens > 0) if not code.startswith("{") or parens else 0
        column = len(INDENT) * (level + extra)
        result.append(" " * column + line)
        if line.startswith("/*") and "*/" not in line:
            comment_shift = column - (len(raw) - len(raw.lstrip()))
            continue
        if not code.strip():
            continue
        depth += code.count("{") - code.count("}")
        parens = max(0, parens + code.count("(") - code.count(")"))
        statement = f"{statement} {code.strip()}".strip()
        if not parens:
            pending = _pending(statement, pending)
            statement = ""
    return "\n".join(result)


def _pending(code: str, pending: int) -> int:
    """Levels that the next line is in by statements without braces, or by an unfinished expression."""
    if _CONTROL.fullmatch(code.lstrip("} ")):
        return pending + 1
    if code.endswith((";", "{", "}", ":", ",")):
        return 0
    return 1 if not pending else pending
