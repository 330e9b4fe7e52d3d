# SPDX-License-Identifier: Apache-2.0
"""Register tiles of convolutions and matrix products: which tiles a kernel unrolls for an ISA and a shape.

A tile keeps pixels x vectors accumulators in registers, where a vector holds neighbouring output channels. Each step of
the reduction loads `vectors` weights and `pixels` inputs, so large, square tiles load least per product. The best tile
also covers the shape at hand with little waste. The layout is nchw<c>c or nhwc; tiles for the plain layout, whose
vectors hold pixels, are those of the methods `pixel_…`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ..target import Isa, Target
from .microkernel.window import Taps
from .packing import BLOCK

ANY_ROW = 64
"""Pixels of a row that tiles are chosen for if its length is known at run time only."""
ANY_PIXELS = 1024
"""Pixels of a row in plain layout that tiles are chosen for if its length is known at run time only."""

WITHOUT_FMA = ("c", "sse2", "wasm32", "simd128")
"""ISAs for which a multiply-add is two instructions."""


@dataclass(frozen=True)
class ChannelRange:
    """Output channels [start, end) that tiles of equally many vectors cover.

    vectors: vectors of channels in a tile; tiles begin every `vectors * lanes` channels.
    width: channels in a block of packed weights.
    tiles: (pixels of a tile, number of such tiles) along a row, in order. The number is 0 if the row's length is known
        at run time only.
    """

    vectors: int
    start: int
    end: int
    width: int
    tiles: tuple[tuple[int, int], ...]

    @property
    def min_even_pixels(self) -> int:
        """The minimum of pixels in a tile if a row longer than the tallest tile is split into equal tiles."""
        return (self.tiles[0][0] + 1) // 2

    @property
    def short_tiles(self) -> tuple[int, ...]:
        """Pixels of the tiles for shorter rows: powers of two."""
        return tuple(p for p, _ in self.tiles if p < self.min_even_pixels)


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

    lanes: float32 values of a vector. registers: vectors that a kernel may keep in registers.
    lane_fma: an instruction multiplies a vector by one lane of another (NEON), so inputs are loaded as vectors.
    fused: a multiply-add is one instruction.
    vectors: vectors of channels in the main tile; 0: chosen for the shape.
    assembler: the loop over input channels is in assembler, which uses every register.
    scalar_inputs: an instruction multiplies a vector by a general register (Helium), so inputs need no vectors.
    hoists_loads: the compiler loads all operands of a step before the first product (`Isa.hoists_loads`).
    lmul_vectors: vectors that one instruction takes at most, as a register group of RISC-V (LMUL); 0: no groups.
    rows_in_l1: pixels of which L1 holds a line each, so a tile has no more of them (`Target.rows_in_l1`); 0: unknown.
    """

    lanes: int
    registers: int
    lane_fma: bool
    fused: bool
    vectors: int = 0
    assembler: bool = False
    scalar_inputs: bool = False
    hoists_loads: bool = False
    lmul_vectors: int = 0
    rows_in_l1: int = 0

    def __str__(self) -> str:
        return f"{self.lanes}x{self.registers}" + (f"v{self.vectors}" if self.vectors else "")

    def for_rows(self, stride: int, target: Target) -> Tiling:
        """Returns the tiling for pixels that are `stride` bytes apart in memory."""
        rows = target.rows_in_l1(stride)
        return replace(self, rows_in_l1=rows) if 0 < rows < self.max_pixels(1) else self

    @staticmethod
    def of(isa: Isa, lane_fma: bool = False, vectors: int = 0, assembler: bool = False) -> Tiling:
        """Returns the tiling of an ISA. The arguments are as the fields; `assembler` counts only if the ISA has it."""
        return Tiling(lanes=isa.lanes, registers=isa.registers, lane_fma=lane_fma, fused=isa.name not in WITHOUT_FMA,
                      vectors=vectors, assembler=assembler and isa.assembler, scalar_inputs=isa.helium,
                      hoists_loads=isa.hoists_loads, lmul_vectors=isa.registers // 8 if isa.wide else 0)

    def tile_vectors(self, pixels: int = 0) -> tuple[int, ...]:
        """Returns the numbers of vectors that a tile may have. A tile covers whole blocks of channels or divides one.

        pixels: of a row; 0: any. A single pixel has wider tiles, because nothing else fills the registers.
        """
        # Vectors of 4 and 8 lanes cover at most one block of channels; with 32 registers those of 16 lanes cover four.
        widest = 8 if pixels == 1 and self.lanes > 1 else {16: 4, 8: 2}.get(self.lanes, 4)
        widest = min(widest, self.registers - 2)
        if self.lmul_vectors:
            # For one pixel, the weights of two register groups are loaded ahead, else of one.
            return tuple(v for v in (1, 2, 4, 8) if v <= min(widest, self.lmul_vectors * (4 if pixels == 1 else 1)))
        return tuple(v for v in range(1, widest + 1) if (v * self.lanes) % BLOCK == 0 or BLOCK % (v * self.lanes) == 0)

    def max_pixels(self, vectors: int) -> int:
        """Returns the maximum of pixels in a tile that neither spills nor evicts its inputs from L1."""
        fitting = self._max_pixels_in_registers(vectors)
        return min(fitting, self.rows_in_l1) if self.rows_in_l1 else fitting

    def _max_pixels_in_registers(self, vectors: int) -> int:
        """Compilers load some inputs early, so a tile in C leaves more registers free than it needs."""
        if self.lane_fma:
            # NEON, by the number of vectors.
            return {1: 12, 2: 10 if self.assembler else 9, 4: 5}.get(vectors, 1)
        if self.hoists_loads:
            # Sums and the operands of a step: V8 manages one more than `registers` without spilling.
            return max(1, (self.registers - vectors + 1) // (vectors + 1))
        if self.lmul_vectors:
            return min(28, (self.registers - min(vectors, self.lmul_vectors)) // vectors)
        input_registers = 0 if self.scalar_inputs else 1 if self.fused else 2
        max_sums = 28 if self.lanes == 16 else self.registers - 8 if self.registers > 16 else self.registers
        return max(1, min((self.registers - vectors - input_registers) // vectors, max_sums // vectors))

    def row_tiles(self, pixels: int | None, vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns (pixels of a tile, number of such tiles) for a row, as equal as possible. pixels: of the row; None:
        any, and numbers are 0."""
        tallest = self.max_pixels(vectors)
        if pixels is None:
            # Taller tiles of one vector are bound by loads as well, so they are not worth their code.
            tallest = min(tallest, max(8, self.lanes)) if vectors == 1 else tallest
            return tuple((p, 0) for p in range(tallest, 0, -1) if 2 * p >= tallest or p & (p - 1) == 0)
        return equal_parts(pixels, tallest)

    def cost(self, pixels: int, vectors: int) -> float:
        """Estimates the cycles of a row of pixels for one step of the reduction."""
        if self.assembler:
            return sum(n * self.assembler_step(p, vectors) for p, n in self.row_tiles(pixels, vectors))
        load = 0.5 if self.lanes > 1 else 1.0
        # AVX-512 broadcasts inputs within the multiply-add, and NEON loads four at once.
        input_loads = 0.25 if self.lanes == 16 or self.lane_fma else 1.0
        products = -(-vectors // self.lmul_vectors) if self.lmul_vectors else vectors
        return sum(n * (p * products + load * (products + input_loads * p) + 0.5)
                   for p, n in self.row_tiles(pixels, vectors))

    @staticmethod
    def assembler_step(pixels: int, vectors: int) -> float:
        """Returns the instructions of a tile in assembler for one step. A row of weights is one load, four channels of
        up to four pixels are another, and eight steps share a decrement and a branch."""
        return pixels * vectors + 1 + (pixels + 3) // 4 / 4 + 0.25

    def total_cost(self, pixels: int, channels: int, vectors: int) -> float:
        """Estimates the cycles of a row of pixels for one step of the reduction and all channels."""
        return sum((part.end - part.start + part.vectors * self.lanes - 1) // (part.vectors * self.lanes)
                   * self.cost(pixels, part.vectors) for part in self.channel_ranges(pixels, channels, vectors))

    def best_vectors(self, pixels: int | None, channels: int) -> int:
        """Returns the number of vectors in the main tile of least cost. pixels: of a row; None: unknown."""
        if self.vectors:
            return self.vectors
        pixels = ANY_ROW if pixels is None else pixels
        return min(self.tile_vectors(pixels), key=lambda v: (self.total_cost(pixels, channels, v), -v))

    def other_tile_vectors(self, pixels: int, channels: int) -> tuple[int, ...]:
        """Returns the other numbers of vectors whose tiles differ from the best one's, for tuning to try."""
        known = [self.channel_ranges(pixels, channels, self.best_vectors(pixels, channels))]
        found = []
        for vectors in self.tile_vectors(pixels):
            if (ranges := self.channel_ranges(pixels, channels, vectors)) not in known:
                known.append(ranges)
                found.append(vectors)
        return tuple(found)

    def block(self, pixels: int | None, vectors: int) -> int:
        """Returns the number of output channels in a block of packed weights. pixels: of a row; None: unknown.

        A single pixel uses each weight once and waits for memory. Its tiles take two blocks, because CPUs prefetch two
        long streams better than many short ones, or than one twice as fast. A register group lies in one block.
        """
        if self.lmul_vectors:
            return max(BLOCK, min(vectors, self.lmul_vectors) * self.lanes)
        block = vectors // 2 * self.lanes
        return block if pixels == 1 and vectors % 2 == 0 and block > BLOCK else BLOCK

    def channel_ranges(self, pixels: int | None, channels: int, vectors: int,
                       block: int = BLOCK) -> tuple[ChannelRange, ...]:
        """Returns the ranges of tiles that cover `channels` output channels: the main tiles, then the tail. If blocks
        of weights have more than `BLOCK` channels, the tail is one block and one tile.

        pixels: of a row; None: unknown. vectors: of the main tile. block: channels in a block of weights.
        """
        return _channel_ranges(self, pixels, channels, vectors, block)

    def parts(self, vectors: int, width: int) -> tuple[tuple[int, int], ...]:
        """Returns the register groups of a tile as (first vector, number of vectors): powers of two that do not cross a
        block of weights of `width` channels. Without register groups, each is one vector."""
        groups, first, block = [], 0, max(1, width // self.lanes)
        while first < vectors:
            count = min(max(1, self.lmul_vectors), vectors - first, block - first % block)
            groups.append((first, 1 << count.bit_length() - 1))
            first += groups[-1][1]
        return tuple(groups)

    def runs(self, pixels: int, extent: int, pad: int, window: Taps, max_pixels: int) -> tuple[Run, ...]:
        """Returns a row of `pixels` windows over `extent` input columns as tiles of at most `max_pixels`. Tiles whose
        windows reach into the padding are runs of their own. window: columns of the window. pad: before the row."""
        runs: list[Run] = []
        first = 0
        for p, count in equal_parts(pixels, max_pixels):
            for _ in range(count):
                start = first * window.stride - pad
                missing = tuple(j for j in range(window.extent(p)) if not 0 <= start + j < extent)
                if runs and (runs[-1].pixels, runs[-1].missing) == (p, missing):
                    runs[-1] = Run(p, runs[-1].count + 1, missing)
                else:
                    runs.append(Run(p, 1, missing))
                first += p
        return tuple(runs)

    @staticmethod
    def any_length_runs(max_pixels: int) -> tuple[Run, ...]:
        """Returns the tiles, with counts of 0, for the windows inside a row of any length."""
        return tuple(Run(p, count, ()) for p, count in _tiles_of_any_row(max_pixels))

    def keeps_weights(self, taps: int) -> bool:
        """Returns whether the weights of a depthwise window stay in registers beside the sums of a few pixels. Only
        register groups (RISC-V) would spill: other CPUs multiply by operands in memory."""
        return not self.lmul_vectors or taps + 6 <= self.registers

    def max_window_pixels(self, taps: int, columns: int = 0) -> int:
        """Returns the maximum of pixels in a depthwise tile that keeps the weights of `taps` taps in registers. If they
        do not fit, the tile keeps those of one row of the window, which are `columns`."""
        if not self.keeps_weights(taps):
            return max(1, min(8, self.registers - columns - 1))
        return min(8, max(4, self.registers - taps - 2))

    def pixel_tile(self, pixels: int | None, channels: int) -> tuple[int, int]:
        """Returns (vectors of pixels, output channels) of the tile of least cost for a row of pixels in plain layout.
        pixels: None if unknown."""
        return _pixel_tile(self, ANY_PIXELS if pixels is None else pixels, channels)

    def pixel_cost(self, pixels: int, channels: int, vectors: int, max_channels: int) -> float:
        """Estimates the cycles of a row of pixels in plain layout for one step of the reduction, in tiles of at most
        `vectors` of pixels and `max_channels`."""
        sizes = [size for width, tiles in self.pixel_blocks(channels, max_channels)
                 for size, _ in tiles for _ in range(channels // BLOCK if width == BLOCK else 1)]
        if self.assembler:
            # Tiles of 4 or 8 channels: the pixels are one load and the weights another, and eight steps share a
            # decrement and a branch (0.25). Other tiles are in C, where each weight is a load.
            return sum(count * (p * o + (2.25 if o % 4 == 0 else o + 3))
                       for p, count in self.pixel_runs(pixels, vectors) for o in sizes)
        return sum(count * (p * o + 0.5 * (p + o) + 1) for p, count in self.pixel_runs(pixels, vectors) for o in sizes)

    def pixel_runs(self, pixels: int, vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns (vectors of a tile, number of such tiles) along a row. The last vector may pass the row's end."""
        return equal_parts(-(-pixels // self.lanes), vectors)

    @staticmethod
    def any_length_pixel_runs(vectors: int) -> tuple[tuple[int, int], ...]:
        """Returns (vectors of a tile, 0) for a row of any length in plain layout."""
        return _tiles_of_any_row(vectors)

    def pixel_blocks(self, channels: int, max_channels: int) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
        """Returns (channels, tiles) of a full block of weights, if there is one, and of the last, if it is not full. A
        tile is (channels, first channel in the block)."""
        widths = [BLOCK] * (channels >= BLOCK) + [channels % BLOCK] * (channels % BLOCK > 0)
        found = []
        for width in widths:
            sizes = [size for size, count in equal_parts(width, max_channels) for _ in range(count)]
            found.append((width, tuple((size, sum(sizes[:i])) for i, size in enumerate(sizes))))
        return tuple(found)

    def compact_pixel_tile(self) -> tuple[int, int]:
        """Returns (vectors of pixels, output channels) of the only large tile in plain layout at `-O size`."""
        return 3 if self.registers > 16 else 2, 4

    def compact_tile(self, pixels: int | None = None, channels: int | None = None) -> tuple[int, int]:
        """Returns (pixels, vectors) of the only large tile at `-O size`, which lies within a block of channels.

        pixels, channels: of a row, if known. A tile that divides the row is preferred if it is at least half as tall,
        because then no pixels are left over.
        """
        vectors = {16: 1, 8: 2}.get(self.lanes, 4)
        tallest = min(self.max_pixels(vectors), 8)
        if channels is not None:
            vectors = min(vectors, -(-channels // self.lanes))
        if pixels is not None:
            divisors = [p for p in range(1, tallest + 1) if pixels % p == 0 and (2 * p >= tallest or p == pixels)]
            tallest = max(divisors, default=min(tallest, pixels))
        return tallest, vectors


def equal_parts(total: int, max_size: int) -> tuple[tuple[int, int], ...]:
    """Returns (size, number of such parts) of as few and as equal parts as possible, none larger than `max_size`."""
    parts = -(-total // max_size)
    small = total // parts
    larger_parts = total - small * parts
    return tuple((size, count) for size, count in ((small + 1, larger_parts), (small, parts - larger_parts)) if count)


def _tiles_of_any_row(max_size: int) -> tuple[tuple[int, int], ...]:
    """Returns (size, 0) of the tiles for a row of unknown length: the largest, then powers of two."""
    return tuple((size, 0) for size in range(max_size, 0, -1) if size == max_size or size & (size - 1) == 0)


@lru_cache(maxsize=4096)
def _pixel_tile(tiling: Tiling, pixels: int, channels: int) -> tuple[int, int]:
    # The sums, a vector of each pixel and the weights have to fit in registers.
    options = [(vectors, outputs) for outputs in range(1, 9) for vectors in range(1, 9)
               if vectors * (outputs + 1) + (outputs - 1 if tiling.hoists_loads else 2) <= tiling.registers]
    if tiling.assembler:
        options = [(3, 8), (2, 8), (4, 4)]  # those of `NeonLanes.pixel_sums`
    return min(options, key=lambda tile: (tiling.pixel_cost(pixels, channels, *tile), tile))


@lru_cache(maxsize=4096)
def _channel_ranges(tiling: Tiling, pixels: int | None, channels: int, vectors: int,
                    block: int) -> tuple[ChannelRange, ...]:
    lanes, step = tiling.lanes, vectors * tiling.lanes
    # The channels in full blocks of weights: they are padded to whole vectors, and to a block if a vector is one.
    in_full_blocks = -(-channels // lanes) * lanes // BLOCK * BLOCK if lanes < BLOCK else -(-channels // BLOCK) * BLOCK
    ranges: list[ChannelRange] = []

    def add(vectors: int, start: int, end: int, width: int) -> int:
        if end > start:
            ranges.append(ChannelRange(vectors, start, end, width, tiling.row_tiles(pixels, vectors)))
        return end

    done = add(vectors, 0, in_full_blocks // step * step, block)
    if block > BLOCK:
        rest = -(-(channels - done) // lanes)
        add(rest, done, done + rest * lanes, rest * lanes)
        return tuple(ranges)
    if in_full_blocks > done:
        done = add((in_full_blocks - done) // lanes, done, in_full_blocks, BLOCK)
    rest = -(-(channels - done) // lanes)
    width = rest * lanes
    while rest > 0:
        part = max(v for v in tiling.tile_vectors() if v <= min(rest, vectors))
        done = add(part, done, done + part * lanes, width)
        rest -= part
    return tuple(ranges)
