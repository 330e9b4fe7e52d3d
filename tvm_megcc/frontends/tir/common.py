# SPDX-License-Identifier: Apache-2.0
"""Parts that occur several times in one statement are computed once, and have a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ...ir.types import DTYPES
from . import helpers

#: Shorter parts stay where they are.
_LEAST = 12
#: A part in a text is its number between these; in parentheses, where it needs them.
_OPEN, _CLOSE = "\x01", "\x02"
_PART = re.compile(r"(?<!\w)\(\x01(\d+)\x02\)|\x01(\d+)\x02")


@dataclass(frozen=True)
class _Part:
    """text: with the parts in it as numbers. is_call: it needs no parentheses anywhere."""

    text: str
    dtype: str
    is_call: bool


class Parts:
    """The parts of one statement while it is printed."""

    def __init__(self):
        self._parts: list[_Part] = []
        self._numbers: dict[str, int] = {}

    def part(self, text: str, dtype: str, is_call: bool) -> str:
        """Returns a placeholder for a part, until the statement is complete. What reads memory stays as it is: it may
        be read under a condition only."""
        if "[" in text or helpers.INDEX in text or len(self.plain(text)) < _LEAST:
            return text
        if text not in self._numbers:
            self._numbers[text] = len(self._parts)
            self._parts.append(_Part(text, dtype, is_call))
        return f"{_OPEN}{self._numbers[text]}{_CLOSE}"

    def plain(self, text: str) -> str:
        """Returns a text with all parts written out."""
        return self._written(text, {})

    def _written(self, text: str, names: dict[int, str]) -> str:
        def part(match: re.Match) -> str:
            number = int(match[1] or match[2])
            if number in names:
                return names[number]
            found = self._parts[number]
            inner = self._written(found.text, names)
            return f"({inner})" if match[1] and not found.is_call else inner

        return _PART.sub(part, text)

    def named(self, strings: list[str], new_name: Callable[[str], str]) -> tuple[list[str], list[str]]:
        """Definitions of the parts that occur at least twice in a statement's texts, and the texts with their names."""
        uses: dict[int, int] = {}
        waiting = list(strings)
        while waiting:
            for first, second in _PART.findall(waiting.pop()):
                number = int(first or second)
                uses[number] = uses.get(number, 0) + 1
                if uses[number] == 1:
                    waiting.append(self._parts[number].text)
        names: dict[int, str] = {}
        lines = []
        for number in sorted(number for number, count in uses.items() if count > 1):
            part = self._parts[number]
            text = self._written(part.text, names)
            names[number] = new_name(_name(part))
            c_type = {"bool": "int", "float16": "float"}.get(part.dtype) or DTYPES[part.dtype].c_type
            lines.append(f"const {c_type} {names[number]} = {text};")
        return lines, [self._written(text, names) for text in strings]


def _name(part: _Part) -> str:
    """Suggests a name for a part: after its function."""
    called = part.text.partition("(")[0]
    return "part" if not part.is_call else "whole" if "_of_" in called else called.rpartition("_")[0] or called
