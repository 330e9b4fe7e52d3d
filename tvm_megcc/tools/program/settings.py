# SPDX-License-Identifier: Apache-2.0
"""Settings of steps that are functions, checked as they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from ...errors import MegccError
from .description import Function, NamedFunction

#: The most weights of triangles, fft * mels, and of a filter that resamples.
MOST_WEIGHTS = 1 << 25


class Settings:
    """The settings of a step. A key without a default has to be there.

    Raises:
        MegccError: for a function or a key that is none; methods, for a value of another kind or range.
    """

    def __init__(self, step: Function | NamedFunction, functions: Mapping[str, tuple[str, ...]]):
        """functions: each function of the step's kind with its keys."""
        known = functions.get(step.function)
        if known is None:
            raise MegccError(f"there is no {step.kind} function '{step.function}'; there are {', '.join(functions)}")
        for key in step.settings:
            if key not in known:
                raise MegccError(f"'{key}' is no key of {step.function}; there are {', '.join(known)}")
        self._values = step.settings

    def over(self, defaults: Mapping[str, Any]) -> Settings:
        """Returns the settings with others where keys are missing."""
        found = copy(self)
        found._values = {**defaults, **self._values}
        return found

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self._values.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise MegccError(f"'{key}' is a number from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if not _is_number(value):
            raise MegccError(f"'{key}' is a number")
        return float(value)

    def numbers(self, key: str, count: int, default: Sequence[float] | None = None) -> tuple[float, ...]:
        found = self._values.get(key, default)
        if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != count \
                or not all(map(_is_number, found)):
            raise MegccError(f"'{key}' is a list of {count} numbers")
        return tuple(map(float, found))

    def integers(self, key: str, most: int, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Returns some numbers from 1 on, at most 16."""
        found = self._values.get(key, default)
        if not isinstance(found, Sequence) or isinstance(found, str) or not 1 <= len(found) <= 16 or not all(
                type(element) is int and 1 <= element <= most for element in found):
            raise MegccError(f"'{key}' is a list of numbers from 1 to {most}")
        return tuple(found)

    def table(self, key: str, columns: int) -> list[tuple[float, ...]]:
        """Returns rows of so many positive numbers, at most 256."""
        return self._table(key, self._values.get(key), columns)

    def tables(self, key: str, columns: int) -> list[list[tuple[float, ...]]]:
        """Returns lists of such rows."""
        found = self._values.get(key)
        if not isinstance(found, Sequence) or isinstance(found, str) or not 1 <= len(found) <= 64:
            raise MegccError(f"'{key}' is a list of lists of rows of {columns} numbers")
        return [self._table(key, row, columns) for row in found]

    @staticmethod
    def _table(key: str, found: object, columns: int) -> list[tuple[float, ...]]:
        if not isinstance(found, Sequence) or isinstance(found, str) or not 1 <= len(found) <= 256 or not all(
                isinstance(row, Sequence) and len(row) == columns and all(_is_number(x) and x > 0 for x in row)
                for row in found):
            raise MegccError(f"'{key}' has rows of {columns} positive numbers")
        return [tuple(map(float, row)) for row in found]

    def sides(self, key: str, most: int) -> tuple[int, int]:
        """Returns height and width."""
        sides = self._values.get(key)
        if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 2 or not all(
                type(side) is int and 1 <= side <= most for side in sides):
            raise MegccError(f"'{key}' is [height, width], two numbers from 1 to {most}")
        return sides[0], sides[1]

    def one_of(self, key: str, words: Sequence[Any], default: Any = None) -> Any:
        value = self._values.get(key, default)
        if not any(type(value) is type(word) and value == word for word in words):
            raise MegccError(f"'{key}' is {', '.join(map(str, words[:-1]))} or {words[-1]}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._values.get(key, default)
        if type(value) is not bool:
            raise MegccError(f"'{key}' is true or false")
        return value

    def strings(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Returns a list of strings of Unicode."""
        found = self._values.get(key, default)
        if not isinstance(found, Sequence) or isinstance(found, str) or not all(
                _is_unicode(string) for string in found):
            raise MegccError(f"'{key}' is a list of strings")
        return tuple(found)

    def name(self, key: str) -> str | None:
        """Returns the name of a value, None if the key has something else."""
        value = self._values.get(key)
        return value if isinstance(value, str) else None


def _is_unicode(value: object) -> bool:
    """Whether UTF-8 has it: a string without parts of surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30  # type: ignore[arg-type]
