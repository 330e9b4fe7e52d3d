# SPDX-License-Identifier: Apache-2.0
"""Lower and upper bounds of extents, by interval arithmetic over the ranges of their symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping

from .dims import Dim, Extreme, FloorDiv, Sum, Symbol, symbols_of


def interval(dim: Dim, bounds: Mapping[str, tuple[int, int | None]]) -> tuple[int | None, int | None]:
    """Returns an interval that contains all values of the dim for symbols within their bounds, by interval arithmetic.

    Args:
        bounds: symbol -> (least, greatest) value; None for no upper limit.

    Returns:
        (least, greatest); None for no limit. The interval may be wider than necessary, never narrower.
    """
    least, greatest = _interval(dim, {name: (lower, math.inf if upper is None else upper)
                                for name, (lower, upper) in bounds.items()})
    return _finite(least), _finite(greatest)


def _finite(end: float) -> int | None:
    """Returns an end of an interval; None for infinity."""
    return None if abs(end) == math.inf else int(end)


def limits(dim: Dim) -> tuple[int | None, int | None]:
    """Returns the least and greatest value over all values of symbols; None for no limit."""
    return interval(dim, free(dim))


def is_at_most(dim: Dim, limit: Dim) -> bool:
    """Returns whether `dim <= limit` for all values of symbols; False if that cannot be proven."""
    difference, _ = limits(limit - dim)
    return difference is not None and difference >= 0


def free(*dims: Dim) -> dict[str, tuple[int, int | None]]:
    """Returns the full ranges of the symbols of some extents: from the lower bound without an upper one."""
    return {symbol.name: (symbol.least, None) for dim in dims for symbol in symbols_of(dim)}


def _interval(dim: Dim, bounds: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Returns the result of `interval` with infinities instead of None; other bounds are ints."""
    if isinstance(dim, int):
        return dim, dim
    if isinstance(dim, Symbol):
        return bounds[dim.name]
    if isinstance(dim, FloorDiv):
        # Denominators are positive, even if the interval of one is too wide to show it.
        denominators = [max(end, 1) for end in _interval(dim.denominator, bounds)]
        corners = [_quotient(a, b) for a in _interval(dim.numerator, bounds) for b in denominators]
        return min(corners), max(corners)
    if isinstance(dim, Extreme):
        choose = min if dim.name == "min" else max
        (lhs_lower, lhs_upper), (rhs_lower, rhs_upper) = _interval(dim.lhs, bounds), _interval(dim.rhs, bounds)
        return choose(lhs_lower, rhs_lower), choose(lhs_upper, rhs_upper)
    assert isinstance(dim, Sum)
    lower: float = dim.constant
    upper: float = dim.constant
    for factors, coefficient in dim.terms:
        product_lower: float = coefficient
        product_upper: float = coefficient
        for factor in factors:
            corners = [_times(a, b) for a in (product_lower, product_upper) for b in _interval(factor, bounds)]
            product_lower, product_upper = min(corners), max(corners)
        lower, upper = lower + product_lower, upper + product_upper
    return lower, upper


def _times(a: float, b: float) -> float:
    """Returns a product of numbers or infinities, in which 0 times infinity is 0."""
    return 0 if a == 0 or b == 0 else a * b


def _quotient(a: float, b: float) -> float:
    """Returns a / b, rounded down, for numbers or infinities a and b > 0."""
    if abs(a) == math.inf:
        return a
    if b == math.inf:
        return 0 if a >= 0 else -1
    return a // b
