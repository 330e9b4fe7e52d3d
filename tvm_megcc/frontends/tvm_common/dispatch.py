# SPDX-License-Identifier: Apache-2.0
"""The part of graph dispatch that does not need TVM: segments of an extent's values between the limits of buckets, and
the names and messages that both front ends use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ...dispatch import Interval
from ...ir.shapes import Bucket


def clipped(buckets: Sequence[Bucket], limits: Mapping[str, Interval]) -> tuple[Bucket, ...]:
    """Intersects buckets with limits (both ends included) and returns the parts that are left, in order."""
    found: dict[Bucket, None] = {}
    for bucket in buckets:
        bounds = []
        for name, low, high in bucket.bounds:
            least, most = limits.get(name, (0, None))
            low, high = max(low, least), most if high is None else high if most is None else min(high, most)
            bounds.append((name, low, high))
        if all(high is None or low <= high for _, low, high in bounds):
            found[Bucket(tuple(bounds))] = None
    return tuple(found)


def segments(buckets: Sequence[Bucket], symbol: str) -> list[tuple[int | None, tuple[Bucket, ...]]]:
    """Splits the values of a symbol into segments where a bucket begins or ends. Returns (last value, the buckets that
    contain the segment), ascending; the last value of the last segment is None. Values begin at 0 if a bucket does,
    else at 1: the regions themselves refuse 0 then."""
    ranges = [bucket.limits[symbol] for bucket in buckets]
    least = _least(buckets, symbol)
    ends = sorted({end for low, high in ranges for end in (low - 1, high) if end is not None and end >= least})
    found = []
    for first, last in zip([least, *(end + 1 for end in ends)], [*ends, None], strict=True):
        inside = tuple(bucket for bucket, (low, high) in zip(buckets, ranges, strict=True)
                       if low <= first and (high is None or (last is not None and last <= high)))
        found.append((last, inside))
    return found


def _least(buckets: Sequence[Bucket], symbol: str) -> int:
    return min(1, *(bucket.limits[symbol][0] for bucket in buckets))


def joined(buckets: Sequence[Bucket], symbol: str) -> tuple[Interval, ...]:
    """Returns the ranges of a symbol's values that are in some bucket, joining neighbouring segments."""
    ranges: list[Interval] = []
    first = _least(buckets, symbol)
    for last, inside in segments(buckets, symbol):
        if inside and ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        elif inside:
            ranges.append((first, last))
        first = 0 if last is None else last + 1
    return tuple(ranges)


def balanced(leaves: Sequence[tuple], branch: Callable):
    """Returns a balanced binary decision tree over a value.

    Args:
        leaves: (last value, the expression for values up to it), ascending.
        branch: from (last value, expression for values up to it, expression for others) to the deciding expression.
    """
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    return branch(leaves[middle - 1][0], balanced(leaves[:middle], branch), balanced(leaves[middle:], branch))


def outside_text(function: str, name: str, axis: int, symbol: str, ranges: Sequence[Interval]) -> str:
    """Returns the error text for an extent that is in no bucket. symbol: "" if the extent has no name."""
    strings = [f"{low}" if low == high else f"{low} or more" if high is None else f"{low} to {high}"
             for low, high in ranges]
    which = f" ({symbol})" if symbol else ""
    return (f"{function}: input '{name}' has an extent on axis {axis}{which} that no bucket holds; it may be "
            f"{', '.join(strings)}")


#: The most buckets that a log message lists.
_MOST_LISTED = 8


def described(function: str, buckets: Sequence[Bucket]) -> str:
    """Returns a log message with the buckets of a function, and what happens for a shape in none of them."""
    symbols = [symbol for symbol, _, _ in buckets[0].bounds]
    if not symbols:
        return f"{function}: all extents are known, so there is one version"
    more = f"; … {len(buckets) - _MOST_LISTED} more" if len(buckets) > _MOST_LISTED else ""
    missed = [symbol for symbol in symbols if not all(inside for _, inside in segments(buckets, symbol))]
    others = f"another {' or '.join(missed)} is a ValueError" if missed else "every shape is in one"
    return (f"{function}: {len(buckets)} buckets over {', '.join(symbols)} "
            f"({'; '.join(map(str, buckets[:_MOST_LISTED]))}{more}); {others}")


def suffix(bucket: Bucket) -> str:
    """Returns the suffix of the clone's name for a bucket."""
    return "".join(f"_{word(name)}_{low}_{'up' if high is None else high}" for name, low, high in bucket.bounds)


def word(text: str) -> str:
    """Converts a text to a part of an identifier."""
    return re.sub(r"\W", "_", text)
