# SPDX-License-Identifier: Apache-2.0
"""Common subexpression elimination: what occurs several times in a statement becomes a named variable.

Printers of expressions return text with placeholders for subexpressions. When the statement is complete, placeholders
are replaced by the subexpressions' text, or by the names of variables that are defined before the statement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...ir.types import DTYPES
from . import helpers

#: The shortest subexpression, in characters, that gets a name.
_MIN_LENGTH = 12
#: A placeholder in a text is the number of a subexpression between these characters.
_OPEN, _CLOSE = "\x01", "\x02"
#: A placeholder. If it is the only thing in parentheses that are not those of a call, they are matched too, with the
#: number in group 1: a name in place of the subexpression needs no parentheses.
_PLACEHOLDER = re.compile(r"(?<!\w)\(\x01(\d+)\x02\)|\x01(\d+)\x02")


@dataclass(frozen=True)
class _Subexpression:
    """A subexpression.

    text: its C, with placeholders for the subexpressions in it.
    is_call: whether it is a call or an element of a tensor, which needs no parentheses anywhere.
    length: the length of the text with all placeholders expanded.
    loads: the numbers of the loads in it, or its own if it is a load.
    """

    text: str
    dtype: str
    is_call: bool
    length: int
    loads: frozenset[int]


class Subexpressions:
    """The subexpressions of one statement while it is printed.

    One that reads memory is named only if the statement always reads it: an element that is read under a condition may
    be out of bounds if the condition does not hold.
    """

    def __init__(self) -> None:
        self._all: list[_Subexpression] = []
        self._number_of: dict[str, int] = {}
        self._always_read: set[int] = set()
        self._conditions = 0

    @contextmanager
    def conditional(self) -> Iterator[None]:
        """Yields a scope whose subexpressions are evaluated conditionally."""
        self._conditions += 1
        yield
        self._conditions -= 1

    def subexpression(self, text: str, dtype: str, is_call: bool) -> str:
        """Returns a placeholder for a subexpression. A short one is returned unchanged, and so is a checked index: its
        check has a side effect."""
        if helpers.INDEX in text or self._length(text) < _MIN_LENGTH:
            return text
        return self._placeholder(text, dtype, is_call, own_load=frozenset())

    def load(self, text: str, dtype: str) -> str:
        """Returns a placeholder for an element of a tensor, as `subexpression` does."""
        if helpers.INDEX in text:
            return text
        next_number = len(self._all)  # the load's own, if it is the first of this element
        result = self._placeholder(text, dtype, is_call=True, own_load=frozenset([next_number]))
        if not self._conditions:
            self._always_read.add(self._number_of[text])
        return result

    def _placeholder(self, text: str, dtype: str, is_call: bool, own_load: frozenset[int]) -> str:
        if text not in self._number_of:
            loads = own_load.union(*(self._all[number].loads for number in _placeholder_numbers(text)))
            self._number_of[text] = len(self._all)
            self._all.append(_Subexpression(text, dtype, is_call, self._length(text), loads))
        return f"{_OPEN}{self._number_of[text]}{_CLOSE}"

    def _length(self, text: str) -> int:
        """Returns the length of a text with all placeholders expanded."""
        return len(_PLACEHOLDER.sub("", text)) + sum(self._all[number].length for number in _placeholder_numbers(text))

    def expand(self, text: str) -> str:
        """Expands all placeholders in a text."""
        return self._expand(text, {})

    def _expand(self, text: str, names: dict[int, str]) -> str:
        """Replaces placeholders: those in `names` by these names, the others by their text."""
        def replacement(match: re.Match[str]) -> str:
            number = int(match[1] or match[2])
            if number in names:
                return names[number]
            found = self._all[number]
            inner = self._expand(found.text, names)
            return f"({inner})" if match[1] and not found.is_call else inner

        return _PLACEHOLDER.sub(replacement, text)

    def extract_common(self, strings: list[str], new_name: Callable[[str], str]) -> tuple[list[str], list[str]]:
        """Returns the definitions of what occurs at least twice in a statement, and the statement without placeholders.

        Args:
            strings: the strings that the statement is made of, with placeholders.
            new_name: returns an unused identifier for a suggested one.
        """
        uses = Counter(number for text in strings for number in _placeholder_numbers(text))
        chosen: list[int] = []
        # Inner subexpressions have smaller numbers, so the uses of each are complete when it is reached. One with a
        # name is printed once, so it counts as one use of those in it; one without a name counts as often as it is
        # used.
        for number, part in reversed(list(enumerate(self._all))):
            is_named = uses[number] > 1 and part.length >= _MIN_LENGTH and part.loads <= self._always_read
            if is_named:
                chosen.append(number)
            for inner in _placeholder_numbers(part.text):
                uses[inner] += 1 if is_named else uses[number]
        names: dict[int, str] = {}
        lines = []
        for number in reversed(chosen):
            part = self._all[number]
            text = self._expand(part.text, names)
            names[number] = new_name(_name(part))
            c_type = {"bool": "int", "float16": "float"}.get(part.dtype) or DTYPES[part.dtype].c_type
            lines.append(f"const {c_type} {names[number]} = {text};")
        return lines, [self._expand(text, names) for text in strings]


def _placeholder_numbers(text: str) -> Iterator[int]:
    """Yields the numbers of the placeholders in a text."""
    return (int(first or second) for first, second in _PLACEHOLDER.findall(text))


def _name(part: _Subexpression) -> str:
    """Suggests the name of a variable: after the function that is called, such as "exp" for exp_f32(…)."""
    if not part.is_call:
        return "part"
    called = part.text.partition("(")[0]
    if "_of_" in called:  # a conversion from a float to an integer
        return "whole"
    return called.rpartition("_")[0] or called
