# SPDX-License-Identifier: Apache-2.0
"""The kernel `pixels`: convolution with vectors along the row of an image. A lane is a pixel, and weights are scalars.

A 1x1 convolution reads its pixels in place; it copies only the last pixels of a row, if they are fewer than a tile has.
Others copy the input rows that a task needs, with padding, and with the columns of each stride phase (column modulo
stride) next to each other, so that all loads are of neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...ir.dims import Dim, ceildiv, dim_max, number, round_up
from ...target import Isa, Target
from ..base import CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Scope
from ..sharing import is_large, load_imbalance
from ..site import Site
from ..tiling import Tiling
from .geometry import ConvParameters, Geometry
from .pixel_tile import MAX_ROW_TAPS, MIN_ROW_TAPS, PixelTile


@dataclass(frozen=True)
class PixelParameters(ConvParameters):
    """Parameters of `pixels.c.j2`.

    in_place: whether pixels are read from x, not from a copy of its rows.
    tiling: how the ISA tiles the convolution.
    """

    in_place: bool
    tiling: Tiling

    def microkernel(self, scope: Scope) -> PixelTile:
        return PixelTile(self, scope)


class PixelConv(Kernel):
    """Convolution in plain layout, for any number of groups and channels, vectorised over pixels."""

    name = "pixels"
    dtypes = (FLOAT32,)
    fuses_epilogue = True
    constants = (1, 2)
    #: A task has as many output rows as need a copy of at most this many bytes, and at least one.
    COPY_BYTES = 32 << 10
    #: The maximum of bytes that a task copies for a single output row.
    MAX_COPY_BYTES = 128 << 10

    def refuse(self, site):
        if site.isa.lanes == 1:
            return "has nothing to gain without vectors"
        s = Geometry.of(site)
        if not s.is_pointwise:
            if not isinstance(s.oh, int) or not isinstance(s.ow, int):
                return "copies rows of a known length only"
            if number(self._copied(s, site.isa, 1, s.ic, self._columns(s, site.isa))) > self.MAX_COPY_BYTES:
                return f"a copy of the rows that {s.ic} channels need is too large"
        return None

    @staticmethod
    def _tiling(site: Site) -> Tiling:
        return Tiling.of(site.isa, assembler=Geometry.of(site).is_pointwise and not site.compact)

    @staticmethod
    def _columns(s: Geometry, isa: Isa) -> int:
        """Returns the columns of a stride phase in the copy."""
        columns = round_up(s.ow, isa.lanes) + (s.kw - 1) * s.dilations[1] // s.strides[1]
        # NEON loads rows that start at whole vectors in pairs of vectors (ldp).
        return round_up(columns, isa.lanes) if isa.lane_fma else columns

    @staticmethod
    def _copied(s: Geometry, isa: Isa, rows: Dim, channels: Dim, columns: Dim) -> Dim:
        """Returns the bytes of the copy for `rows` output rows, float32 [channels][input rows][phases][columns], and of
        two vectors after it, which the last loads may read."""
        phases = min(s.strides[1], s.columns_read(1))
        return 4 * (channels * s.rows_read(rows) * phases * columns + 2 * isa.lanes)

    def _split(self, site: Site) -> tuple[Dim, Dim, int]:
        """Returns (rows, pixels of a row, rows of a task) of an output image. The pixels of a 1x1 convolution are
        divided into rows of least cost, because the image's shape does not matter."""
        s = Geometry.of(site)
        if not isinstance(s.oh, int) or not isinstance(s.ow, int):
            return (1, s.oh * s.ow, 1) if s.is_pointwise else (s.oh, s.ow, 1)
        if s.is_pointwise:
            return *_pixel_rows(self._tiling(site), s.oh * s.ow, s.oc, s.ic, site.target), 1
        columns = self._columns(s, site.isa)
        max_rows = max(rows for rows in range(1, s.oh + 1)
                       if rows == 1 or number(self._copied(s, site.isa, rows, s.ic, columns)) <= self.COPY_BYTES)
        tasks = ceildiv(s.oh, max_rows)
        return s.oh, s.ow, ceildiv(s.oh, tasks)  # as equal tasks as possible

    def lower(self, site):
        s = Geometry.of(site)
        tiling = self._tiling(site)
        oh, ow, rows = self._split(site)
        N, G, IC, IH, IW, OC, OH, OW, ROWS, COLUMNS = extent_symbols(
            "N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "ROWS", "COLUMNS")
        extents = {**s.extents(oh, ow), "ROWS": rows}
        if s.is_pointwise:
            # The copy has the pixels of one tile.
            compact_vectors = tiling.compact_pixel_tile()[0]
            vectors = tiling.pixel_tile(ow if isinstance(ow, int) else None, s.oc)[0]
            extents["COLUMNS"] = vectors * site.isa.lanes
            scratch = self._copied(s, site.isa, 1, IC, dim_max(COLUMNS, compact_vectors * site.isa.lanes))
        else:
            extents["COLUMNS"] = self._columns(s, site.isa)
            scratch = self._copied(s, site.isa, ROWS, IC, COLUMNS)
        operands = present(site, Operand("x", 0, N * G * IC * s.area(IH, IW, OH, OW)),
                           Operand("w", 1, G * OC * IC * s.taps, ("conv_oihw", 1, s.g)), Operand("b", 2, G * OC))
        return Lowered(
            "conv2d/pixels", PixelParameters(*s.window, s.bias, s.is_pointwise, tiling),
            extents, operands, (Operand("y", 0, N * G * OC * OH * OW),), N * G * ceildiv(OH, ROWS),
            s.name(vpad=s.vpad, hpad=s.hpad), "pixels", scratch=scratch, channels=G * OC)

    def cost(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        tiling, (height, pixels, rows) = self._tiling(site), self._split(site)
        tile = tiling.pixel_tile(pixels, s.oc)
        steps = tiling.pixel_cost(pixels, s.oc, *tile) * s.ic * s.taps
        if not site.isa.lane_fma and not s.is_pointwise:
            steps *= 0.86  # measured on AVX-512: loads hide after multiply-adds (benchmarks/cost_model.py)
        tiles = sum(count for _, count in tiling.pixel_runs(pixels, tile[0]))
        if site.isa.lane_fma and (s.ic, s.oc) == (1, 1) and MIN_ROW_TAPS <= s.taps <= MAX_ROW_TAPS:
            # Two rows at once share their inputs; 1.2 for the multiply-add of a vector, with its part of the loads.
            steps, tiles = ceildiv(pixels, lanes) * s.taps * 1.2, tiles / 2
        copied = 0.0
        if not s.is_pointwise:
            # For each input row: 10 for the loop, and vector_copy for each vector of pixels. Columns of stride 2 are
            # separated by shuffles, those of other strides one by one.
            vector_copy = {1: 2.0, 2: 8.0}.get(s.strides[1], 2.0 * lanes)
            input_rows = s.rows_read(rows) / rows
            copied = s.ic * input_rows * s.strides[1] * (10 + vector_copy * pixels / lanes)
        # 30: a tile is called, and its results are stored.
        return CALL + s.n * s.g * height * (steps + copied + 30 * tiles)


#: The most pixels of a row of a 1x1 convolution, so that rows are short enough to share.
_MAX_ROW = 1024


@lru_cache(maxsize=1024)
def _pixel_rows(tiling: Tiling, pixels: int, channels: int, depth: int, target: Target) -> tuple[int, int]:
    """Returns (rows, pixels of a row) of least cost for an image of `pixels` pixels whose shape does not matter.
    channels: output channels. depth: input channels."""
    options = [(rows, pixels // rows) for rows in range(1, pixels + 1) if pixels % rows == 0]
    short = [option for option in options if option[1] <= _MAX_ROW] or options[-1:]
    # In assembler, tiles differ by more than load imbalance costs. Targets without L2 are microcontrollers of one core.
    is_shared = target.l2 and not tiling.assembler and is_large(pixels * channels * depth)

    def cost(rows: int, row: int) -> float:
        # For each row: 8 besides its tiles.
        cycles = rows * (8 + tiling.pixel_cost(row, channels, *tiling.pixel_tile(row, channels)))
        return cycles * load_imbalance(channels=1, step=1, chunks=1, rows=rows) if is_shared else cycles

    return min(short, key=lambda option: (cost(*option), option[1]))
