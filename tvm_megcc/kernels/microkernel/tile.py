# SPDX-License-Identifier: Apache-2.0
"""The shape of a register tile, and the vectors and products that it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from ..tiling import Tiling

#: A number, or C for one that is known at run time only.
Count = int | str


def per(count: Count, size: int) -> Count:
    return count // size if isinstance(count, int) else f"{count} / {size}"


def rest_of(count: Count, size: int) -> Count:
    return count % size if isinstance(count, int) else f"{count} % {size}"


def times(number: int, count: Count) -> Count:
    return number * count if isinstance(count, int) else f"{number} * (ptrdiff_t){count}"


@dataclass(frozen=True)
class Vectors:
    """`count` neighbouring vectors that one instruction takes. suffix: of types and functions, as of `mgc_fma_by4`."""

    count: int

    @property
    def suffix(self) -> str:
        return str(self.count) if self.count > 1 else ""

    def load(self, address: str) -> str:
        return f"mgc_load{self.suffix}({address})" if address else f"mgc_zero{self.suffix}()"

    def declared(self, values: Iterable[str]) -> str:
        return f"mgc_v{self.suffix} {', '.join(values)};"


@dataclass(frozen=True)
class Multiply:
    """Adds products of vectors and a number. number: its C type if it is a scalar; empty: it is broadcast."""

    number: str = ""

    def load(self, name: str, element: str) -> str:
        return f"const {self.number or 'mgc_v'} {name} = {element if self.number else f'mgc_set1({element})'};"

    def add(self, total: str, vector: str, name: str, suffix: str = "") -> str:
        return f"{total} = mgc_fma{'_by' * bool(self.number)}{suffix}({vector}, {name}, {total});"


class Tile:
    """`pixels` x `vectors` sums. width: channels in a block of weights; None: known at run time.

    parts: (first vector, vectors) of what one instruction takes. types: each with its first vectors.
    accumulators: (pixel, vector) of each sum.
    """

    def __init__(self, tiling: Tiling, pixels: int, vectors: int, width: int | None):
        self.pixels, self.vectors, self.width = pixels, vectors, width
        self.name = f"tile_{pixels}x{vectors}" + (f"_w{width}" if width not in (None, 16) else "")
        self.parts = [(first, Vectors(count)) for first, count in tiling.parts(vectors, width or 16)]
        self.types = [(Vectors(count), [first for first, part in self.parts if part.count == count])
                      for count in sorted({part.count for _, part in self.parts})]
        self.accumulators = list(product(range(pixels), range(vectors)))

    def rows(self, count: int = 1) -> Count:
        """Returns the elements of rows of a block of weights."""
        return count * self.width if self.width else f"{count} * width" if count > 1 else "width"
