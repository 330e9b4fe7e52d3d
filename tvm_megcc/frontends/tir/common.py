# SPDX-License-Identifier: Apache-2.0
"""Common subexpression elimination: parts that occur several times in a statement become named variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...ir.types import DTYPES
from . import helpers

#: The shortest part, in characters, that gets a name.
_LEAST = 12
#: A placeholder in a text is the number of a part between these, in parentheses where it needs them.
_OPEN, _CLOSE = "\x01", "\x02"
_PART = re.compile(r"(?<!\w)\(\x01(\d+)\x02\)|\x01(\d+)\x02")


@dataclass(frozen=True)
class _Part:
    """A subexpression.

    text: its C, with placeholders for the parts in it.
    is_call: it needs no parentheses anywhere.
    length: length of the text with all parts expanded.
    loads: numbers of the loads in it, or its own if it is a load.
    """

    text: str
    dtype: str
    is_call: bool
    length: int
    loads: frozenset[int]


class Parts:
    """The parts of one statement while it is printed.

    A part that reads memory is named only if the statement always reads it: an element that is read under a condition
    may be out of bounds if the condition does not hold.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._numbers: dict[str, int] = {}
        self._certain: set[int] = set()
        self._conditions = 0

    @contextmanager
    def conditional(self) -> Iterator[None]:
        """Yields a scope whose parts are evaluated conditionally."""
        self._conditions += 1
        yield
        self._conditions -= 1

    def part(self, text: str, dtype: str, is_call: bool) -> str:
        """Returns a placeholder for a part, until the statement is complete. A checked index is returned unchanged,
        since its check has a side effect."""
        if helpers.INDEX in text or self._length(text) < _LEAST:
            return text
        return self._placeholder(text, dtype, is_call, frozenset())

    def load(self, text: str, dtype: str) -> str:
        """Returns a placeholder for an element of a tensor, as `part` does."""
        if helpers.INDEX in text:
            return text
        result = self._placeholder(text, dtype, True, frozenset([len(self._parts)]))
        if not self._conditions:
            self._certain.add(self._numbers[text])
        return result

    def _placeholder(self, text: str, dtype: str, is_call: bool, arguments: frozenset[int]) -> str:
        if text not in self._numbers:
            loads = arguments.union(*(self._parts[number].loads for number in _numbers(text)))
            self._numbers[text] = len(self._parts)
            self._parts.append(_Part(text, dtype, is_call, self._length(text), loads))
        return f"{_OPEN}{self._numbers[text]}{_CLOSE}"

    def _length(self, text: str) -> int:
        """Returns the length of a text with all placeholders expanded."""
        return len(_PART.sub("", text)) + sum(self._parts[number].length for number in _numbers(text))

    def plain(self, text: str) -> str:
        """Expands all placeholders in a text."""
        return self._written(text, {})

    def _written(self, text: str, names: dict[int, str]) -> str:
        def part(match: re.Match[str]) -> str:
            number = int(match[1] or match[2])
            if number in names:
                return names[number]
            found = self._parts[number]
            inner = self._written(found.text, names)
            return f"({inner})" if match[1] and not found.is_call else inner

        return _PART.sub(part, text)

    def named(self, strings: list[str], new_name: Callable[[str], str]) -> tuple[list[str], list[str]]:
        """Returns definitions of the parts that occur at least twice in a statement, and the statement's lines using
        them."""
        uses = Counter(number for text in strings for number in _numbers(text))
        chosen = []
        for number, part in reversed(list(enumerate(self._parts))):  # the parts within a part have smaller numbers
            is_named = uses[number] > 1 and part.length >= _LEAST and part.loads <= self._certain
            chosen += [number] * is_named
            for inner in _numbers(part.text):
                uses[inner] += 1 if is_named else uses[number]
        names: dict[int, str] = {}
        lines = []
        for number in reversed(chosen):
            part = self._parts[number]
            text = self._written(part.text, names)
            names[number] = new_name(_name(part))
            c_type = {"bool": "int", "float16": "float"}.get(part.dtype) or DTYPES[part.dtype].c_type
            lines.append(f"const {c_type} {names[number]} = {text};")
        return lines, [self._written(text, names) for text in strings]


def _numbers(text: str) -> Iterator[int]:
    """Yields the numbers of the parts in a text."""
    return (int(first or second) for first, second in _PART.findall(text))


def _name(part: _Part) -> str:
    """Suggests a name for a part: after its function."""
    called = part.text.partition("(")[0]
    return "part" if not part.is_call else "whole" if "_of_" in called else called.rpartition("_")[0] or called
