# SPDX-License-Identifier: Apache-2.0
"""What tiles of 8-bit products are made of, and how much of a product a task is."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, likely
from ...target import Isa, Target
from ..site import Site

#: Steps that a sum takes to be there: fewer sums at a time leave the CPU waiting.
_LATENCY = 8
#: Cycles of a tile beside its products.
_TILE = 25
#: Vectors of channels in tiles of assembler.
_WIDEST = {"by_fours": 4, "by_eights": 4, "by_sixteens": 2, "by_sixteens_in_c": 1}


@dataclass(frozen=True)
class Tile:
    """vectors: of channels in a tile; rest: of those after the last whole tile, 0 if there are none. heights: pixels of
    the tiles, tallest first."""

    vectors: int
    rest: int
    heights: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.vectors}x{'x'.join(map(str, self.heights))}" + f"_{self.rest}" * bool(self.rest)

    @staticmethod
    def of(site: Site, sums: str, steps: int, channels: int, pixels: Dim) -> Tile:
        """For sums of some steps over so many channels of rows of pixels. sums: how they are added up (`Isa`)."""
        isa, needed = site.isa, -(-channels // site.isa.lanes)
        if site.compact or not isinstance(pixels, int):
            # Tiles that many calls can share.
            vectors = min(needed, _WIDEST.get(sums) or (4 if isa.registers > 16 else 2))
            height = _tallest(isa, sums, vectors)
            return Tile(vectors, needed % vectors, tuple(dict.fromkeys((height, max(1, height // 2), 1))))
        widest = min(needed, _WIDEST.get(sums) or isa.registers // 4)
        widths = [w for w in range(1, widest + 1) if _tallest(isa, sums, w) >= 1]
        made = (_fitting(isa, sums, width, needed, pixels) for width in reversed(widths))
        return min(made, key=lambda tile: _cycles(tile, steps, needed, pixels))

    def per_row(self, pixels: int) -> list[int]:
        """The heights of the tiles that cover a row."""
        found = []
        for height in self.heights:
            found += [height] * (pixels // height)
            pixels %= height
        return found

    def pixels(self, target: Target, pixel: int, apart: bool) -> int:
        """Pixels of so many bytes in a task, in whole tiles. apart: its weights are not those of all channels."""
        height = self.heights[0]
        return max(1, _room(target, apart) // pixel // height) * height

    @staticmethod
    def rows(target: Target, row: int, down: int, reach: int, most: int, apart: bool) -> int:
        """Rows of the output in a task, of which each is `down` of x, of so many bytes, below the one before, and
        reads `reach`."""
        return max(1, min(most, (_room(target, apart) // row - reach) // down + 1))


def block(target: Target, tile: Tile, depth: int, channels: int) -> int:
    """Channels in a task, of so many bytes of weights each: these stay in the second cache between pixels."""
    width = tile.vectors * target.isa.lanes
    if not target.l2 or depth * channels <= target.l2 // 2:
        return -(-channels // width) * width
    return max(1, target.l2 // 4 // (depth * width)) * width


def _room(target: Target, apart: bool) -> int:
    """Bytes of x that a task lays out. apart: more of them, so that weights come from afar less often."""
    if not target.l1:
        return 4 << 10
    return target.l2 // 8 if apart else 24 << 10


def _tallest(isa: Isa, sums: str, vectors: int) -> int:
    """Sums, weights and one pixel, and what a product is before it is added, in registers. In assembler all pixels, two
    weights, and four lanes of each sum, or as many addresses as there are registers for."""
    if sums == "by_sixteens_in_c":
        return 2
    if sums == "by_sixteens":
        return (isa.registers - 5) // (4 * vectors + 1)
    if sums == "by_eights":
        return min(8, (isa.registers - 2) // (2 * vectors + 1) * 2)
    if sums == "by_fours":
        return min(8, (isa.registers - 2) // (vectors + 1))
    return min(16, (isa.registers - vectors - 2) // vectors)


def _fitting(isa: Isa, sums: str, vectors: int, needed: int, pixels: int) -> Tile:
    """The tiles that divide a row most evenly."""
    count = -(-pixels // _tallest(isa, sums, vectors))
    height = -(-pixels // count)
    heights = dict.fromkeys(h for h in (height, pixels % height) if h)
    return Tile(vectors, needed % vectors, tuple(heights))


def _cycles(tile: Tile, steps: int, needed: int, pixels: int) -> float:
    """Of a row of pixels over all channels."""
    widths = [tile.vectors] * (needed // tile.vectors) + [tile.rest] * bool(tile.rest)
    return sum(_TILE + steps * max(_LATENCY, p * v + (p + v) * 0.3) + 3 * p * v
               for p in tile.per_row(likely(pixels)) for v in widths)
