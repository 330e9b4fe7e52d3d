# SPDX-License-Identifier: Apache-2.0
"""The settings of a step of a program that is a function: reads and checks the value of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from ...errors import MegccError
from .steps import Function, NamedFunction

#: The maximum number of weights of mel filters, fft * mels, and of a resampling filter.
MAX_WEIGHTS = 1 << 25


class Settings:
    """The settings of a step. Methods check the value of a key and return it. A key without a default is required.

    Raises:
        MegccError: by the constructor for an unknown function or key; by methods for a missing or invalid value.
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

    def with_defaults(self, defaults: Mapping[str, Any]) -> Settings:
        """Returns the settings, completed by defaults for the keys that are missing."""
        completed = copy(self)
        completed._values = {**defaults, **self._values}
        return completed

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def integer(self, key: str, minimum: int, maximum: int, default: int | None = None) -> int:
        value = self._values.get(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            raise MegccError(f"'{key}' is a number from {minimum} to {maximum}")
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

    def integers(self, key: str, maximum: int, default: Sequence[int] | None = None, minimum: int = 1
                 ) -> tuple[int, ...]:
        """Returns 1 to 16 integers from `minimum` to `maximum`."""
        found = self._values.get(key, default)
        if not isinstance(found, Sequence) or isinstance(found, str) or not 1 <= len(found) <= 16 or not all(
                type(element) is int and minimum <= element <= maximum for element in found):
            raise MegccError(f"'{key}' is a list of numbers from {minimum} to {maximum}")
        return tuple(found)

    def table(self, key: str, columns: int) -> list[tuple[float, ...]]:
        """Returns 1 to 256 rows of `columns` positive numbers."""
        return self._table(key, self._values.get(key), columns)

    def tables(self, key: str, columns: int) -> list[list[tuple[float, ...]]]:
        """Returns 1 to 64 lists of rows, each as `table` returns them."""
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

    def sides(self, key: str, maximum: int) -> tuple[int, int]:
        """Returns height and width, from 1 to `maximum` each."""
        sides = self._values.get(key)
        if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 2 or not all(
                type(side) is int and 1 <= side <= maximum for side in sides):
            raise MegccError(f"'{key}' is [height, width], two numbers from 1 to {maximum}")
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
        """Returns strings that UTF-8 can encode."""
        found = self._values.get(key, default)
        if not isinstance(found, Sequence) or isinstance(found, str) or not all(
                _is_unicode(string) for string in found):
            raise MegccError(f"'{key}' is a list of strings")
        return tuple(found)

    def string(self, key: str) -> str | None:
        """Returns a string, None without the key."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise MegccError(f"'{key}' is a string")
        return value

    def name(self, key: str) -> str | None:
        """Returns the name of a value; None for a setting that is not a string, which may have numbers instead."""
        value = self._values.get(key)
        return value if isinstance(value, str) else None


def _is_unicode(value: object) -> bool:
    """Returns whether a value is a string that UTF-8 can encode: one without surrogates."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e30  # type: ignore[arg-type]
