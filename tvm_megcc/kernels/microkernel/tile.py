# SPDX-License-Identifier: Apache-2.0
"""The shape of a register tile of `conv2d/direct`, and the loads and products that a printer composes it of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from ..packing import BLOCK
from ..tiling import Tiling

#: A number, or C for one that is known at run time only.
Count = int | str


def quotient(count: Count, size: int) -> Count:
    """Returns the number of whole parts of `size`."""
    return count // size if isinstance(count, int) else f"{count} / {size}"


def remainder(count: Count, size: int) -> Count:
    """Returns the remainder of the division by `size`."""
    return count % size if isinstance(count, int) else f"{count} % {size}"


def times(number: int, count: Count) -> Count:
    """Returns the product."""
    return number * count if isinstance(count, int) else f"{number} * (ptrdiff_t){count}"


@dataclass(frozen=True)
class Vectors:
    """`count` neighbouring vectors that one instruction takes. suffix: that of their types and functions in C, such as
    4 in `mgc_fma_by4`; none for one vector."""

    count: int

    @property
    def suffix(self) -> str:
        return str(self.count) if self.count > 1 else ""

    def load(self, address: str, dtype: str = "") -> str:
        """Returns C that loads the vectors from an address (C); zeros if it is empty. dtype: "f16" or "bf16" for 16-bit
        floats, which are widened."""
        name = f"mgc_load{self.suffix}" + f"_{dtype}" * bool(dtype)
        return f"{name}({address})" if address else f"mgc_zero{self.suffix}()"

    def declared(self, values: Iterable[str]) -> str:
        """Returns the declaration of variables. values: `name` or `name = value` of each."""
        return f"mgc_v{self.suffix} {', '.join(values)};"


@dataclass(frozen=True)
class Multiply:
    """Multiply-adds of vectors with an element. number: the C type of the element if an instruction takes it from a
    general register; empty: it is broadcast to a vector."""

    number: str = ""

    def load(self, name: str, element: str) -> str:
        """Returns C that declares variable `name` with the value of `element` (C)."""
        return f"const {self.number or 'mgc_v'} {name} = {element if self.number else f'mgc_set1({element})'};"

    def add(self, total: str, vector: str, name: str, suffix: str = "") -> str:
        """Returns C that adds `vector` times the element in variable `name` to `total`. suffix: `Vectors.suffix`."""
        return f"{total} = mgc_fma{'_by' * bool(self.number)}{suffix}({vector}, {name}, {total});"


class Tile:
    """The shape of a tile: sums of `pixels` pixels x `vectors` vectors of output channels.

    width: channels in a block of packed weights, usually `BLOCK`; None: known at run time.
    parts: (first vector, Vectors) of the groups of vectors that one instruction takes.
    types: each distinct `Vectors` of the parts, with the first vectors of its groups.
    accumulators: (pixel, vector) of each sum.
    """

    def __init__(self, tiling: Tiling, pixels: int, vectors: int, width: int | None):
        self.pixels, self.vectors, self.width = pixels, vectors, width
        self.name = f"tile_{pixels}x{vectors}" + (f"_w{width}" if width not in (None, BLOCK) else "")
        self.parts = [(first, Vectors(count)) for first, count in tiling.parts(vectors, width or BLOCK)]
        self.types = [(Vectors(count), [first for first, part in self.parts if part.count == count])
                      for count in sorted({part.count for _, part in self.parts})]
        self.accumulators = list(product(range(pixels), range(vectors)))

    def rows(self, count: int = 1) -> Count:
        """Returns the elements of `count` rows of a block of weights. A row holds one step of the reduction."""
        return count * self.width if self.width else f"{count} * width" if count > 1 else "width"
