# SPDX-License-Identifier: Apache-2.0
"""The window of a convolution or pool along its axes: which taps lie inside the input, and which columns of the input
the pixels of a tile share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Taps:
    """A window along one axis: `count` taps, `dilation` elements apart; results are `stride` elements apart."""

    count: int
    stride: int
    dilation: int

    def extent(self, results: int) -> int:
        """Returns the number of elements from the first to the last that `results` neighbouring results read."""
        return (results - 1) * self.stride + (self.count - 1) * self.dilation + 1

    def reads(self, results: int, missing: Collection[int] = ()) -> list[tuple[int, list[tuple[int, int]]]]:
        """Returns the elements that `results` neighbouring results read, each with its (result, tap) pairs. missing:
        elements to leave out, because they are outside the input."""
        found = []
        for element in range(self.extent(results)):
            uses = [(result, (element - result * self.stride) // self.dilation) for result in range(results)
                    if 0 <= element - result * self.stride < self.count * self.dilation
                    and (element - result * self.stride) % self.dilation == 0]
            if uses and element not in missing:
                found.append((element, uses))
        return found

    def used(self, results: int, missing: Collection[int] = ()) -> set[int]:
        """Returns the taps that some result multiplies by an element that is not missing."""
        return {tap for _, uses in self.reads(results, missing) for _, tap in uses}

    def inside(self, first: str, end: str, position: str, extent: str) -> str:
        """Returns C that declares `first` and `end`: taps [first, end) lie inside an axis of x. The range is empty if
        the window lies in the padding. position: C, the index of tap 0 along the axis, which may be negative
        or after the end. extent: C, that of the axis."""
        count, dilation = self.count, self.dilation
        return f"""\
const int32_t {first} = {position} < 0 ? (-{position} + {dilation - 1}) / {dilation} : 0;
const int32_t {end}_of_x = {position} < {extent} ? ({extent} - {position} + {dilation - 1}) / {dilation} : 0;
const int32_t {end}_of_both = {end}_of_x < {count} ? {end}_of_x : {count};
const int32_t {end} = {end}_of_both > {first} ? {end}_of_both : {first};"""


@dataclass(frozen=True)
class Window:
    """The window as templates use it: its rows and its columns."""

    rows: Taps
    columns: Taps

    @property
    def taps(self) -> list[tuple[int, int]]:
        """Returns (row, column) of each tap."""
        return list(product(range(self.rows.count), range(self.columns.count)))
