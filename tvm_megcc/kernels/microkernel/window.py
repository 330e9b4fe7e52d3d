# SPDX-License-Identifier: Apache-2.0
"""Which taps of a window lie inside the input, and which columns of it the pixels of a tile share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Taps:
    """A window along one axis: `count` taps, `dilation` apart, and `stride` from one result to the next."""

    count: int
    stride: int
    dilation: int

    def extent(self, results: int) -> int:
        """Returns the elements from the first to the last that so many neighbouring results read."""
        return (results - 1) * self.stride + (self.count - 1) * self.dilation + 1

    def reads(self, results: int, missing: Collection[int] = ()) -> list[tuple[int, list[tuple[int, int]]]]:
        """Returns the elements that so many neighbouring results read, each with the (result, tap) that it is for, but
        for those that are `missing`: outside the input."""
        found = []
        for element in range(self.extent(results)):
            uses = [(result, (element - result * self.stride) // self.dilation) for result in range(results)
                    if 0 <= element - result * self.stride < self.count * self.dilation
                    and (element - result * self.stride) % self.dilation == 0]
            if uses and element not in missing:
                found.append((element, uses))
        return found

    def used(self, results: int, missing: Collection[int] = ()) -> set[int]:
        """Returns the taps that some result multiplies with an element that is not missing."""
        return {tap for _, uses in self.reads(results, missing) for _, tap in uses}

    def inside(self, first: str, end: str, at: str, extent: str) -> str:
        """C that says which taps lie inside an axis of x: from the one that is declared as `first` up to, but without,
        `end`. They are the same where the window lies wholly in the padding, whichever tap that is. at: C, where tap 0
        lies, before x, in it or after it."""
        count, dilation = self.count, self.dilation
        return f"""\
const int32_t {first} = {at} < 0 ? (-{at} + {dilation - 1}) / {dilation} : 0;
const int32_t {end}_of_x = {at} < {extent} ? ({extent} - {at} + {dilation - 1}) / {dilation} : 0;
const int32_t {end}_of_both = {end}_of_x < {count} ? {end}_of_x : {count};
const int32_t {end} = {end}_of_both > {first} ? {end}_of_both : {first};"""


@dataclass(frozen=True)
class Window:
    """As templates have it: of the rows, and of the columns."""

    rows: Taps
    columns: Taps
