# SPDX-License-Identifier: Apache-2.0
"""Chooses register tiles of 8-bit products and the size of tasks."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, likely
from ...target import Isa, Target
from ..site import Site

# Cycles are rough estimates, which rank tiles (kernels/base.py, `Kernel.cost`).

#: Latency of a sum in steps: with fewer independent sums the CPU waits.
_LATENCY = 8
#: Cycles of a tile in addition to its products.
_TILE_CYCLES = 25
#: The cost of longer rows is estimated from this many pixels, which suffices to compare tiles.
_MAX_PIXELS = 1 << 15
#: Vector registers of 64-bit Arm.
_ARM_REGISTERS = 32
#: The most vectors of channels in a tile, by the value of `sums` (neon_sums.py): `sdot` uses SDOT, `smmla` SMMLA,
#: `smull` SMULL and SMLAL on 16 bytes, `smull_in_c` the same in C.
_MAX_VECTORS = {"pmaddubsw": 1, "sdot": 6, "smmla": 4, "smull": 2, "smull_in_c": 1}


@dataclass(frozen=True)
class Tile:
    """A register tile.

    vectors: vectors of channels in a tile.
    rest: vectors of channels after the last whole tile, 0 if there are none.
    heights: pixels of the tiles, tallest first.
    balanced: there are two heights, h and h - 1; a row uses the lower one as rarely as possible.
    """

    vectors: int
    rest: int
    heights: tuple[int, ...]
    balanced: bool = False

    @property
    def name(self) -> str:
        """Returns the tile's part of a kernel's name: vectors x heights _ rest. Balanced heights are joined by "e"."""
        between = "e" if self.balanced else "x"
        return f"{self.vectors}x{between.join(map(str, self.heights))}" + f"_{self.rest}" * bool(self.rest)

    @staticmethod
    def of(site: Site, sums: str, steps: int, channels: int, pixels: Dim, may_balance: bool = True) -> Tile:
        """Returns the tile for rows of pixels. sums: how products are summed, a key of `_MAX_VECTORS` or "". steps: the
        length of the reduction. channels: those of a group. may_balance: whether the tile may be `balanced`."""
        isa, needed = site.isa, -(-channels // site.isa.lanes)
        if site.compact or not isinstance(pixels, int):
            # At -O size, many calls should share a tile. Four vectors leave registers for several pixels if there are
            # more than 16, or if vectors are groups of them.
            vectors = min(needed, _MAX_VECTORS.get(sums, 4), 4 if isa.registers > 16 or isa.wide else 2)
            height = _tallest(isa, sums, vectors)
            return Tile(vectors, needed % vectors, tuple(dict.fromkeys((height, max(1, height // 2), 1))))
        widest = min(needed, _MAX_VECTORS.get(sums) or isa.registers // 4)
        widths = [w for w in range(1, widest + 1) if _tallest(isa, sums, w) >= 1]
        tiles = (tile for width in reversed(widths) for tile in _fitting(isa, sums, width, needed, pixels)
                 if may_balance or not tile.balanced)
        return min(tiles, key=lambda tile: _cycles(tile, isa, sums, steps, needed, pixels))

    def per_row(self, pixels: int) -> list[int]:
        """Returns the heights of the tiles that cover a row."""
        found = []
        if self.balanced:
            lower_tiles = -pixels % self.heights[0]
            taller_tiles = (pixels - lower_tiles * self.heights[1]) // self.heights[0]
            return [self.heights[0]] * taller_tiles + [self.heights[1]] * lower_tiles
        for height in self.heights:
            found += [height] * (pixels // height)
            pixels %= height
        return found

    def pixels(self, target: Target, pixel: int, some_channels: bool, total: Dim) -> int:
        """Returns the pixels of a task, in whole tiles of the first height; 0 if the tiles cannot cover the rest in the
        last task.

        pixel: bytes of a pixel. some_channels: a task uses only the weights of some channels. total: pixels of all
        tasks.
        """
        height = self.heights[0]
        max_pixels = max(1, _budget(target, some_channels) // pixel // height) * height
        if not self.balanced or not isinstance(total, int) or total <= max_pixels:
            return max_pixels
        candidates = range(max_pixels, max_pixels // 2, -height)
        return next((pixels for pixels in candidates if _are_covered(height, total % pixels)), 0)

    @staticmethod
    def rows(target: Target, row_bytes: int, row_step: int, window_rows: int, output_rows: int,
             some_channels: bool) -> int:
        """Returns the output rows of a task.

        row_bytes: bytes of a packed row of x. row_step: packed rows of x from one output row to the next. window_rows:
        rows of x that one output row reads. output_rows: all rows of the output. some_channels: as in `pixels`.
        """
        return max(1, min(output_rows, (_budget(target, some_channels) // row_bytes - window_rows) // row_step + 1))


def block(target: Target, tile: Tile, depth: int, channels: int) -> int:
    """Returns the channels of a task: their weights stay in L2 from pixel to pixel. All channels, if their weights take
    up to half of it; otherwise as many as a quarter holds, which leaves space for x and y.

    depth: bytes of weights of a channel. channels: those of a group.
    """
    width = tile.vectors * target.isa.lanes
    if not target.l2 or depth * channels <= target.l2 // 2:
        return -(-channels // width) * width
    return max(1, target.l2 // 4 // (depth * width)) * width


def _budget(target: Target, some_channels: bool) -> int:
    """Returns the bytes of x that a task packs: more if it uses the weights of some channels only, so that weights are
    read from memory less often."""
    if not target.l1:
        return 4 << 10  # a CPU without caches, where packed x takes RAM
    # 24 KB: most of an L1 of 32 KB.
    return target.l2 // 8 if some_channels else 24 << 10


def _tallest(isa: Isa, sums: str, vectors: int) -> int:
    """Returns the most pixels of a tile, whose sums, pixels and weights are in registers.

    In assembler (neon_sums.py) a register holds each pixel, and x9 to x16 the addresses of at most eight. In C one
    register holds a pixel at a time.
    """
    if sums == "smull_in_c":
        return 2
    if sums == "pmaddubsw":
        # One vector of sums a pixel. Three registers: weights, a pixel, and a product before it is added.
        return min(16, isa.registers - 3)
    if sums == "smull":
        # Four vectors of sums for each vector of channels. Five registers: weights of two channels, waiting products.
        return (isa.registers - 5) // (4 * vectors + 1)
    if sums == "smmla":
        # Two pixels share a register and, for each vector of channels, two vectors of sums. Two registers: weights.
        return min(8, (isa.registers - 2) // (2 * vectors + 1) * 2)
    if sums == "sdot":
        # Two registers: weights.
        return min(8, (isa.registers - 2) // (vectors + 1))
    if isa.wide:
        # int8 weights and their int16 form take three quarters of a sum's registers.
        return max(1, (4 * isa.registers - 3 * vectors) // (4 * vectors))
    # All vectors of weights. Two registers: a pixel, and a product before it is added.
    return min(16, (isa.registers - vectors - 2) // vectors)


def _fitting(isa: Isa, sums: str, vectors: int, needed: int, pixels: int) -> list[Tile]:
    """Returns tiles of this width whose heights divide a row as evenly as possible: the fewest tiles, the last of which
    may be lower; and, if the sums have such kernels, each pair of heights h and h - 1 that covers the row."""
    tallest, rest = _tallest(isa, sums, vectors), needed % vectors
    count = -(-pixels // tallest)
    height = -(-pixels // count)
    heights = dict.fromkeys(h for h in (height, pixels % height) if h)
    found = [Tile(vectors, rest, tuple(heights))]
    if sums in ("sdot", "pmaddubsw"):
        found += [Tile(vectors, rest, (taller, taller - 1), balanced=True) for taller in range(3, tallest + 1)
                  if _are_covered(taller, pixels)]
    return found


def _are_covered(height: int, pixels: int) -> bool:
    """Returns whether tiles of both heights, `height` and `height` - 1, cover the pixels exactly."""
    lower_tiles = -pixels % height
    return 0 < lower_tiles and lower_tiles * (height - 1) < pixels


def _cycles(tile: Tile, isa: Isa, sums: str, steps: int, needed: int, pixels: int) -> float:
    """Estimates the cycles of a row of pixels over all channels, or of a part that suffices to compare tiles."""
    widths = [tile.vectors] * (needed // tile.vectors) + [tile.rest] * bool(tile.rest)
    # RISC-V with registers of 128 bits: a vector of four registers takes twice as long as one of two.
    product_cycles = 2 if isa.wide and isa.registers < 16 else 1
    # 3: a vector of results is requantized and stored.
    return sum(_TILE_CYCLES + steps * max(_LATENCY, product_cycles * p * v + _loads(isa, sums, p, v)) + 3 * p * v
               for p in tile.per_row(min(likely(pixels), _MAX_PIXELS)) for v in widths)


def _loads(isa: Isa, sums: str, pixels: int, vectors: int) -> float:
    """Estimates the cycles of the loads of a step. Assembler loads four steps at once, and as many weights as there are
    registers for. Converting weights to int16 uses the units that multiply and add."""
    # SIMD of x86 and WebAssembly without 8-bit dot products.
    if isa.int16_step > 1 and not isa.dot_dtype:
        # 0.05: a pixel is loaded; 0.5: a vector of weights is loaded and converted.
        return pixels * 0.05 + vectors * 0.5
    if sums != "sdot":
        # 0.3: a load of a pixel or of a vector of weights, which overlaps with products.
        return (pixels + vectors) * 0.3
    # A vector of weights takes 1/4, 1/2 or 1, as so many are loaded at once (`Sdot`). 0.4: the loop and its addresses.
    spare = _ARM_REGISTERS - pixels * (vectors + 1)
    return pixels / 4 + vectors / (4 if spare >= 4 else 2 if spare >= 2 else 1) + 0.4
