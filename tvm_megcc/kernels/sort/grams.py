# SPDX-License-Identifier: Apache-2.0
"""Counts n-grams, found by bisection in a sorted table."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class GramParameters(Parameters):
    """Parameters of `grams.c.j2`.

    sizes: for each n: (n, index of its first n-gram, offset of their words in the table, number of n-grams, largest
        distance between neighbouring words of one).
    """

    sizes: tuple[tuple[int, int, int, int, int], ...]


class GramSearch(Kernel):
    """Counts the n-grams of one row in a task."""

    name = "bisection"
    dtypes = (("int64",), ("int64",), ("int32",))

    def lower(self, site: Site) -> Lowered:
        rows, length, columns, words, grams = extent_symbols("N", "C", "COLUMNS", "WORDS", "GRAMS")
        sizes, first, word = [], 0, 0
        for size, count in site.attrs.sizes:
            max_step = 1 if size == 1 else site.attrs.skips + 1
            sizes.append((size, first, word, count, max_step))
            first, word = first + count, word + size * count
        extents = {"N": site.x.shape[0], "C": site.x.shape[1], "COLUMNS": site.attrs.columns, "WORDS": word,
                   "GRAMS": first}
        what = "count_grams" + "".join(f"_{size}x{count}" for size, count in site.attrs.sizes)
        return Lowered("sort/grams", GramParameters(tuple(sizes)), extents,
                       (Operand("x", 0, rows * length), Operand("table", 1, words), Operand("column", 2, grams)),
                       (Operand("y", 0, rows * columns),), rows, f"{what}_{site.attrs.skips}", self.name)
