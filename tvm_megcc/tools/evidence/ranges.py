# SPDX-License-Identifier: Apache-2.0
"""Ranges of C's integer expressions: pairs of the least and the greatest value, None if they are unknown.

The results are those of integers of any size. `loops` makes them unknown where the type of C does not hold them; a
result beyond 64 bits is unknown here already.
"""

from __future__ import annotations

from typing import Union

Range = Union[tuple[int, int], None]
BOOLEAN = (0, 1)
_LIMIT = 1 << 63


def known(lower: int, upper: int) -> Range:
    """Returns the range, or None if 64 bits do not hold it."""
    return (lower, upper) if -_LIMIT <= lower <= upper < _LIMIT else None


def union(a: Range, b: Range) -> Range:
    """Returns the least range that contains two."""
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def divided(a: int, b: int) -> int:
    """Returns the quotient as C rounds it, towards zero. b: not 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def binary(operator: str, a: Range, b: Range) -> Range:
    """Returns the range of `a operator b`, such as "+" or "<"."""
    if operator in ("<", "<=", ">", ">=", "==", "!="):
        return _comparison(operator, a, b) if a and b else BOOLEAN
    if operator == "%" and b and b[0] == b[1] > 0:
        return _remainder(a, b[0])
    if operator == "&" and b and b[0] == b[1] >= 0:
        return known(0, min(b[0], a[1]) if a and a[0] >= 0 else b[0])
    if a is None or b is None:
        return None
    return _arithmetic(operator, a, b)


def _comparison(operator: str, a: tuple[int, int], b: tuple[int, int]) -> Range:
    if operator in (">", ">="):
        return _comparison({">": "<", ">=": "<="}[operator], b, a)
    if operator in ("==", "!="):
        if a[1] < b[0] or b[1] < a[0]:
            return (0, 0) if operator == "==" else (1, 1)
        equal = a == b and a[0] == a[1]
        return ((1, 1) if operator == "==" else (0, 0)) if equal else BOOLEAN
    strict = operator == "<"
    if a[1] < b[0] or (not strict and a[1] == b[0]):
        return 1, 1
    return (0, 0) if a[0] > b[1] or (strict and a[0] == b[1]) else BOOLEAN


def _remainder(a: Range, divisor: int) -> Range:
    if a is None:
        return None
    if a[0] == a[1]:
        value = a[0] - divided(a[0], divisor) * divisor
        return value, value
    return known(0 if a[0] >= 0 else 1 - divisor, min(a[1], divisor - 1) if a[0] >= 0 else divisor - 1)


def _arithmetic(operator: str, a: tuple[int, int], b: tuple[int, int]) -> Range:
    if operator == "+":
        return known(a[0] + b[0], a[1] + b[1])
    if operator == "-":
        return known(a[0] - b[1], a[1] - b[0])
    if operator in ("/", "*") and not (operator == "/" and b[0] <= 0 <= b[1]):
        corners = [x * y if operator == "*" else divided(x, y) for x in a for y in b]
        return known(min(corners), max(corners))
    if operator in ("<<", ">>") and 0 <= b[0] and b[1] < 63:
        corners = [x << y if operator == "<<" else x >> y for x in a for y in b]
        return known(min(corners), max(corners))
    if operator == "&" and a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    return None
