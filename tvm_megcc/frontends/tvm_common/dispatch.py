# SPDX-License-Identifier: Apache-2.0
"""The part of graph dispatch that does not need TVM: segments of an extent's values between the limits of buckets, and
the names and messages that both front ends use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ...dispatch import Interval
from ...ir.shapes import Bucket


def intersect(buckets: Sequence[Bucket], limits: Mapping[str, Interval]) -> tuple[Bucket, ...]:
    """Intersects buckets with limits of their symbols and returns the buckets that are not empty, in order, each once.

    Args:
        limits: symbol -> (smallest, largest value), both included; None for no largest value.
    """
    found: dict[Bucket, None] = {}
    for bucket in buckets:
        bounds = []
        for name, lower, upper in bucket.bounds:
            minimum, maximum = limits.get(name, (0, None))
            uppers = [end for end in (upper, maximum) if end is not None]
            bounds.append((name, max(lower, minimum), min(uppers) if uppers else None))
        if all(upper is None or lower <= upper for _, lower, upper in bounds):
            found[Bucket(tuple(bounds))] = None
    return tuple(found)


def segments(buckets: Sequence[Bucket], symbol: str) -> list[tuple[int | None, tuple[Bucket, ...]]]:
    """Splits the values of a symbol into segments where a bucket begins or ends. Returns (last value, the buckets that
    contain the segment), ascending; the last value of the last segment is None. The values begin at 0 if a bucket does,
    else at 1: then dispatch does not need to refuse 0, because the regions do."""
    ranges = [bucket.limits[symbol] for bucket in buckets]
    smallest = _smallest_value(buckets, symbol)
    ends = sorted({end for lower, upper in ranges for end in (lower - 1, upper)
                   if end is not None and end >= smallest})
    found = []
    for first, last in zip([smallest, *(end + 1 for end in ends)], [*ends, None], strict=True):
        inside = tuple(bucket for bucket, (lower, upper) in zip(buckets, ranges, strict=True)
                       if lower <= first and (upper is None or (last is not None and last <= upper)))
        found.append((last, inside))
    return found


def _smallest_value(buckets: Sequence[Bucket], symbol: str) -> int:
    """Returns the first value of the first segment: 0 or 1."""
    return min(1, *(bucket.limits[symbol][0] for bucket in buckets))


def covered_ranges(buckets: Sequence[Bucket], symbol: str) -> tuple[Interval, ...]:
    """Returns the ranges of a symbol's values that are in some bucket, ascending. Neighbouring segments are joined.
    Both ends are included; the last end is None if there is no largest value."""
    ranges: list[Interval] = []
    first = _smallest_value(buckets, symbol)
    for last, inside in segments(buckets, symbol):
        if inside and ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        elif inside:
            ranges.append((first, last))
        first = 0 if last is None else last + 1
    return tuple(ranges)


def decision_tree(leaves: Sequence[tuple], branch: Callable):
    """Returns an expression that selects among others by a value, as a balanced binary decision tree.

    Args:
        leaves: (last value, the expression for values up to it), ascending.
        branch: `branch(last, up_to, beyond)` returns the expression that is `up_to` for values up to `last`, and
            `beyond` for others.
    """
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    return branch(leaves[middle - 1][0], decision_tree(leaves[:middle], branch), decision_tree(leaves[middle:], branch))


def no_bucket_error(function: str, name: str, axis: int, symbol: str, ranges: Sequence[Interval]) -> str:
    """Returns the error text for an extent that is in no bucket. symbol: "" if the extent has no name."""
    strings = [f"{lower}" if lower == upper else f"{lower} or more" if upper is None else f"{lower} to {upper}"
               for lower, upper in ranges]
    which = f" ({symbol})" if symbol else ""
    return (f"{function}: input '{name}' has an extent on axis {axis}{which} that no bucket holds; it may be "
            f"{', '.join(strings)}")


#: The most buckets that a log message lists.
_MAX_LISTED = 8


def buckets_message(function: str, buckets: Sequence[Bucket]) -> str:
    """Returns a log message with the buckets of a function, and what happens for a shape in none of them."""
    symbols = [symbol for symbol, _, _ in buckets[0].bounds]
    if not symbols:
        return f"{function}: all extents are known, so there is one version"
    more = f"; … {len(buckets) - _MAX_LISTED} more" if len(buckets) > _MAX_LISTED else ""
    missed = [symbol for symbol in symbols if not all(inside for _, inside in segments(buckets, symbol))]
    others = f"another {' or '.join(missed)} is a ValueError" if missed else "every shape is in one"
    return (f"{function}: {len(buckets)} buckets over {', '.join(symbols)} "
            f"({'; '.join(map(str, buckets[:_MAX_LISTED]))}{more}); {others}")


def clone_suffix(bucket: Bucket) -> str:
    """Returns the suffix of the clone's name for a bucket, such as "_n_1_128" or "_n_129_up"."""
    return "".join(f"_{identifier_part(name)}_{lower}_{'up' if upper is None else upper}"
                   for name, lower, upper in bucket.bounds)


def identifier_part(text: str) -> str:
    """Converts a text to a part of an identifier."""
    return re.sub(r"\W", "_", text)
