# SPDX-License-Identifier: Apache-2.0
"""Register tiles of convolutions and products: pixels by vectors of output channels.

A tile keeps pixels x vectors accumulators in registers. Each step of the reduction loads `vectors` weights and `pixels`
inputs, so large, square tiles load least per product. The best tile also covers the shape at hand with little waste.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..target import Isa
from .packing import BLOCK

ANY_ROW = 64
"""Pixels that tiles are chosen for where the length of a row is known at run time only."""
ANY_PIXELS = 1024
"""The same for rows in plain layout."""


@dataclass(frozen=True)
class Group:
    """Neighbouring output channels that tiles of one width cover.

    vectors: vectors of a tile.
    start, end: range of channels; tiles begin every `vectors * lanes`.
    width: channels in a block of weights.
    tiles: (pixels, how many in a row), in order; 0: decided at run time, when the row's length is known.
    """

    vectors: int
    start: int
    end: int
    width: int
    tiles: tuple[tuple[int, int], ...]

    @property
    def least_even(self) -> int:
        """Least pixels of a tile when a row that is longer than the tallest tile is split evenly."""
        return (self.tiles[0][0] + 1) // 2

    @property
    def short_tiles(self) -> tuple[int, ...]:
        """Pixels of the tiles for shorter rows, powers of two."""
        return tuple(p for p, _ in self.tiles if p < self.least_even)


@dataclass(frozen=True)
class Run:
    """Equal tiles along a row of a depthwise convolution or pool.

    missing: columns of a tile's window, counted from its first, that lie outside the input.
    """

    pixels: int
    count: int
    missing: tuple[int, ...]


@dataclass(frozen=True)
class Tiling:
    """The register tiles of a reduction on an ISA.

    lane_fma: inputs are loaded as vectors, and weights are multiplied by their lanes.
    by_number: inputs are scalars in general registers.
    vectors: of channels in the main tile; 0: chosen for the shape.
    assembler: the loop over input channels is in assembler, which uses every register.
    hoists_loads: the compiler loads all operands of a step before the first product (`Isa.hoists_loads`).
    joined: vectors of neighbouring channels, in four registers, that one instruction takes (RISC-V); 0: none.
    """

    lanes: int
    registers: int
    lane_fma: bool
    fused: bool
    vectors: int = 0
    assembler: bool = False
    by_number: bool = False
    hoists_loads: bool = False
    joined: int = 0

    def __str__(self) -> str:
        return f"{self.lanes}x{self.registers}" + (f"v{self.vectors}" if self.vectors else "")

    @staticmethod
    def of(isa: Isa, lane_fma: bool = False, vectors: int = 0, assembler: bool = False) -> Tiling:
        return Tiling(isa.lanes, isa.registers, lane_fma, isa.name not in ("c", "sse2", "wasm32", "simd128"), vectors,
                      assembler and isa.assembler, isa.helium, isa.hoists_loads, isa.registers // 8 if isa.wide else 0)

    def widths(self, pixels: int = 0) -> tuple[int, ...]:
        """Returns the vectors that a tile may have: it covers whole blocks or divides one. One pixel wants many."""
        most = 8 if pixels == 1 and self.lanes > 1 else {16: 4, 8: 2}.get(self.lanes, 4)
        most = min(most, self.registers - 2)
        if self.joined:
            # For one pixel, weights in two groups of registers are loaded ahead, else in one.
            return tuple(v for v in (1, 2, 4, 8) if v <= min(most, self.joined * (4 if pixels == 1 else 1)))
        return tuple(v for v in range(1, most + 1) if (v * self.lanes) % BLOCK == 0 or BLOCK % (v * self.lanes) == 0)

    def most_pixels(self, vectors: int) -> int:
        """Returns the most pixels of a tile that does not spill; compilers load some inputs early."""
        if self.lane_fma:
            return {1: 12, 2: 10 if self.assembler else 9, 4: 5}.get(vectors, 1)
        if self.hoists_loads:
            # Sums and the operands of a step: V8 manages one more than `registers` without spilling.
            return max(1, (self.registers - vectors + 1) // (vectors + 1))
        if self.joined:
            return min(28, (self.registers - min(vectors, self.joined)) // vectors)
        spare = 0 if self.by_number else 1 if self.fused else 2
        most = 28 if self.lanes == 16 else self.registers - 8 if self.registers > 16 else self.registers
        return max(1, min((self.registers - vectors - spare) // vectors, most // vectors))

    def rows(self, pixels: int | None, vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns the tiles, (pixels, count), of a row, as equal as possible; None: those for rows of any length."""
        most = self.most_pixels(vectors)
        if pixels is None:
            # Taller tiles of one vector are bound by loads as well, so they are not worth their code.
            most = min(most, max(8, self.lanes)) if vectors == 1 else most
            return tuple((p, 0) for p in range(most, 0, -1) if 2 * p >= most or p & (p - 1) == 0)
        return _even(pixels, most)

    def cost(self, pixels: int, vectors: int) -> float:
        """Estimates the cycles of a row of pixels for one step of the reduction."""
        if self.assembler:
            return sum(n * self.assembler_step(p, vectors) for p, n in self.rows(pixels, vectors))
        load = 0.5 if self.lanes > 1 else 1.0
        inputs = 0.25 if self.lanes == 16 or self.lane_fma else 1.0
        taken = -(-vectors // self.joined) if self.joined else vectors
        return sum(n * (p * taken + load * (taken + inputs * p) + 0.5) for p, n in self.rows(pixels, vectors))

    @staticmethod
    def assembler_step(pixels: int, vectors: int) -> float:
        """Returns the instructions of a tile in assembler for one step. A row of weights is one load, four channels of
        up to four pixels are another, and eight steps share a decrement and a branch."""
        return pixels * vectors + 1 + (pixels + 3) // 4 / 4 + 0.25

    def total(self, pixels: int, channels: int, vectors: int) -> float:
        return sum((g.end - g.start + g.vectors * self.lanes - 1) // (g.vectors * self.lanes)
                   * self.cost(pixels, g.vectors) for g in self.plan(pixels, channels, vectors))

    def best(self, pixels: int | None, channels: int) -> int:
        """Returns the vectors of the main tile for this shape. pixels: None for long rows."""
        if self.vectors:
            return self.vectors
        pixels = ANY_ROW if pixels is None else pixels
        return min(self.widths(pixels), key=lambda v: (self.total(pixels, channels, v), -v))

    def others(self, pixels: int, channels: int) -> tuple[int, ...]:
        """Returns the other widths, in vectors, whose tiles cover this shape differently from the best one's."""
        covers = [self.plan(pixels, channels, self.best(pixels, channels))]
        found = []
        for vectors in self.widths(pixels):
            if (cover := self.plan(pixels, channels, vectors)) not in covers:
                covers.append(cover)
                found.append(vectors)
        return tuple(found)

    def block(self, pixels: int | None, vectors: int) -> int:
        """Returns the output channels in a block of weights for rows of this length. A single pixel uses each weight
        once and waits for memory. Its tiles take two blocks, because CPUs prefetch two long streams better than many
        short ones, or than one twice as fast. Joined vectors lie in one block."""
        if self.joined:
            return max(BLOCK, min(vectors, self.joined) * self.lanes)
        block = vectors // 2 * self.lanes
        return block if pixels == 1 and vectors % 2 == 0 and block > BLOCK else BLOCK

    def plan(self, pixels: int | None, channels: int, vectors: int, block: int = BLOCK) -> tuple[Group, ...]:
        """Returns the tiles that cover `channels` output channels: the main ones, then the tail, which is one block and
        one tile if blocks are larger than `BLOCK`."""
        return _plan(self, pixels, channels, vectors, block)

    def parts(self, vectors: int, width: int) -> tuple[tuple[int, int], ...]:
        """Returns (first, count) of the vectors of a tile that one instruction takes, for blocks of weights of `width`
        channels."""
        found, done, block = [], 0, max(1, width // self.lanes)
        while done < vectors:
            registers = min(max(1, self.joined), vectors - done, block - done % block)
            found.append((done, 1 << registers.bit_length() - 1))
            done += found[-1][1]
        return tuple(found)

    def runs(self, pixels: int, extent: int, pad: int, stride: int, kernel: int, dilation: int,
             most: int) -> tuple[Run, ...]:
        """Returns a row of windows over `extent` columns as tiles of at most `most` pixels, with edges apart."""
        runs: list[Run] = []
        first = 0
        for p, count in _even(pixels, most):
            width = (p - 1) * stride + (kernel - 1) * dilation + 1
            for _ in range(count):
                start = first * stride - pad
                missing = tuple(j for j in range(width) if not 0 <= start + j < extent)
                if runs and (runs[-1].pixels, runs[-1].missing) == (p, missing):
                    runs[-1] = Run(p, runs[-1].count + 1, missing)
                else:
                    runs.append(Run(p, 1, missing))
                first += p
        return tuple(runs)

    @staticmethod
    def any_runs(most: int) -> tuple[Run, ...]:
        """Returns the tiles, without counts, for the inside of a row of any length: the widest, then powers of two."""
        return tuple(Run(p, 0, ()) for p in range(most, 0, -1) if p == most or p & (p - 1) == 0)

    def holds(self, taps: int) -> bool:
        """Returns whether the weights of a depthwise window stay in registers besides the sums of a few pixels. Only
        vectors that take several registers would spill: other CPUs multiply by operands in memory."""
        return not self.joined or taps + 6 <= self.registers

    def most_windows(self, taps: int, columns: int = 0) -> int:
        """Returns the pixels of a depthwise tile whose `taps` weights stay in registers; if they do not fit, of one
        that keeps those of one row, `columns`."""
        if not self.holds(taps):
            return max(1, min(8, self.registers - columns - 1))
        return min(8, max(4, self.registers - taps - 2))

    def pixel_tile(self, pixels: int | None, channels: int) -> tuple[int, int]:
        """Returns (vectors of pixels, output channels) of the best tile for a row of pixels in plain layout. pixels:
        None for long rows."""
        return _pixel_tile(self, ANY_PIXELS if pixels is None else pixels, channels)

    def pixel_cost(self, pixels: int, channels: int, vectors: int, most: int) -> float:
        """Estimates the cycles of a row of pixels for one step of the reduction in such tiles."""
        sizes = [size for width, sizes in self.pixel_blocks(channels, most)
                 for size, _ in sizes for _ in range(channels // BLOCK if width == BLOCK else 1)]
        if self.assembler:
            # The pixels are one load and the weights another; in C, each weight is a load.
            return sum(count * (p * o + (2.25 if o % 4 == 0 else o + 3))
                       for p, count in self.pixel_runs(pixels, vectors) for o in sizes)
        return sum(count * (p * o + 0.5 * (p + o) + 1) for p, count in self.pixel_runs(pixels, vectors) for o in sizes)

    def pixel_runs(self, pixels: int, vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns (vectors, count) of the tiles along a row; the last vector may pass its end."""
        return _even(-(-pixels // self.lanes), vectors)

    @staticmethod
    def any_pixel_runs(vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns (vectors, 0) of the tiles for a row of any length: the widest, then powers of two."""
        return tuple((p, 0) for p in range(vectors, 0, -1) if p == vectors or p & (p - 1) == 0)

    def pixel_blocks(self, channels: int, most: int) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """Returns (channels, tiles) of full blocks of weights and of the last one; a tile: (channels, first
        channel)."""
        widths = [BLOCK] * (channels >= BLOCK) + [channels % BLOCK] * (channels % BLOCK > 0)
        found = []
        for width in widths:
            sizes = [size for size, count in _even(width, most) for _ in range(count)]
            found.append((width, tuple((size, sum(sizes[:i])) for i, size in enumerate(sizes))))
        return tuple(found)

    def small_pixels(self) -> tuple[int, int]:
        """Returns (vectors of pixels, output channels) of the only large tile in plain layout at `-O size`."""
        return 3 if self.registers > 16 else 2, 4

    def small(self, pixels: int | None = None, channels: int | None = None) -> tuple[int, int]:
        """Returns (pixels, vectors) of the only large tile at `-O size`, which lies within a block of channels.

        pixels, channels: of a row, if known. A tile that divides the row is preferred if it is at least half as tall,
        because then no pixels are left over.
        """
        vectors = {16: 1, 8: 2}.get(self.lanes, 4)
        most = min(self.most_pixels(vectors), 8)
        if channels is not None:
            vectors = min(vectors, -(-channels // self.lanes))
        if pixels is not None:
            even = [p for p in range(1, most + 1) if pixels % p == 0 and (2 * p >= most or p == pixels)]
            most = max(even, default=min(most, pixels))
        return most, vectors


def _even(pixels: int, most: int) -> tuple[tuple[int, int], ...]:
    """Returns (size, count) of as few and as equal parts as possible, none larger than `most`."""
    count = -(-pixels // most)
    small = pixels // count
    tall = pixels - small * count
    return tuple((p, n) for p, n in ((small + 1, tall), (small, count - tall)) if n)


@lru_cache(maxsize=4096)
def _pixel_tile(tiling: Tiling, pixels: int, channels: int) -> tuple[int, int]:
    options = [(vectors, most) for most in range(1, 9) for vectors in range(1, 9)
               if vectors * (most + 1) + (most - 1 if tiling.hoists_loads else 2) <= tiling.registers]
    if tiling.assembler:
        options = [(3, 8), (2, 8), (4, 4)]
    return min(options, key=lambda tile: (tiling.pixel_cost(pixels, channels, *tile), tile))


@lru_cache(maxsize=4096)
def _plan(tiling: Tiling, pixels: int | None, channels: int, vectors: int, block: int) -> tuple[Group, ...]:
    lanes, step = tiling.lanes, vectors * tiling.lanes
    full = -(-channels // lanes) * lanes // BLOCK * BLOCK if lanes < BLOCK else -(-channels // BLOCK) * BLOCK
    groups: list[Group] = []

    def add(vectors: int, start: int, end: int, width: int) -> int:
        if end > start:
            groups.append(Group(vectors, start, end, width, tiling.rows(pixels, vectors)))
        return end

    done = add(vectors, 0, full // step * step, block)
    if block > BLOCK:
        rest = -(-(channels - done) // lanes)
        add(rest, done, done + rest * lanes, rest * lanes)
        return tuple(groups)
    if full > done:
        done = add((full - done) // lanes, done, full, BLOCK)
    rest = -(-(channels - done) // lanes)
    width = rest * lanes
    while rest > 0:
        part = max(v for v in tiling.widths() if v <= min(rest, vectors))
        done = add(part, done, done + part * lanes, width)
        rest -= part
    return tuple(groups)
