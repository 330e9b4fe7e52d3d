# SPDX-License-Identifier: Apache-2.0
"""The kernel `direct`: convolution of floats by register tiles. docs/kernels.md describes layouts, packed weights and
loop orders."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, dim_max, round_up
from ...ir.types import NHWC, PLAIN
from ..base import CALL, FLOAT32, Lowered, Operand, Tiled, extent_symbols, layout_pair, present
from ..blocking import CacheBlock, chunks_first
from ..parameters import Scope
from ..sharing import TaskGrid
from ..site import Site
from ..tiling import Tiling
from .geometry import ConvParameters, Geometry, blocked, stored
from .register_tile import DirectTile


@dataclass(frozen=True)
class DirectParameters(ConvParameters):
    """Parameters of `direct.c.j2`, which also computes matrix products with constant weights, as 1x1 convolutions.

    tiling: the register tiles that the ISA has for the shape (tiling.py).
    x_layout, y_layout: the kinds of the layouts of x and y: "nchwc", "nhwc" or "plain".
    block: the number of output channels in a block of packed weights.
    vpad, hpad: whether some window reaches beyond the input above or below, left or right.
    grouped: whether there are several groups.
    cache_block: the weights that stay in the L1 cache while pixels pass, `channels` output channels by `depth` input
        channels, or None.
    chunks_first: whether a row of pixels is multiplied by all chunks of weights before the next row.
    weights: the dtype of stored weights, "float16" or "bfloat16", if it is narrower than that of the products.
    """

    tiling: Tiling
    x_layout: str
    y_layout: str
    block: int
    vpad: bool = False
    hpad: bool = False
    grouped: bool = False
    cache_block: CacheBlock | None = None
    chunks_first: bool = False
    weights: str = ""

    def microkernel(self, scope: Scope) -> DirectTile:
        return DirectTile(self, scope)


class DirectConv(Tiled):
    """Convolution by register tiles that read the input in place, without im2col. A 1x1 convolution divides the pixels
    of an image into rows of any length."""

    name = "direct"
    dtypes = (FLOAT32,)
    float16 = True
    fuses_epilogue = True
    constants = (1, 2)

    def layouts(self, site):
        for x in dict.fromkeys((blocked(site.target), PLAIN, NHWC)):
            for y in (blocked(site.target), NHWC):
                yield layout_pair(site, x, y)

    def refuse(self, site):
        groups, lanes = site.attrs.groups, site.isa.lanes
        if groups > 1:
            if site.x.layout != blocked(site.target) or site.y.layout != blocked(site.target):
                return "works on groups in the blocked layout only"
            if site.inputs[1].shape[1] % lanes or site.inputs[1].shape[0] // groups % lanes:
                return f"groups of {site.inputs[1].shape[1]} channels are no whole vectors"
        return None

    def _task_grid(self, site: Site) -> TaskGrid:
        s, x = Geometry.of(site), site.x.layout
        by_assembler = s.is_pointwise and x == blocked(site.target) and not site.compact
        tiling = Tiling.of(
            site.isa, lane_fma=site.isa.lane_fma and x != PLAIN, vectors=self.vectors, assembler=by_assembler)
        if x == NHWC and not site.compact:
            # A tile loads its pixels from lines that are this many bytes apart.
            tiling = tiling.for_rows(4 * s.ic * s.strides[1], site.target)
        return TaskGrid.of(tiling, depth=s.ic * s.taps, channels=s.oc, images=s.n * s.g, rows=s.oh, pixels=s.ow,
                           any_rows=s.is_pointwise, context=site.context)

    def lower(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        x_layout = site.x.layout.kind
        y_layout = "nchwc" if site.y.layout == blocked(site.target) else site.y.layout.kind
        grid = self._task_grid(site)
        tiling, oh, ow, chunks = grid.tiling, grid.rows, grid.pixels, grid.chunks
        row = ow if isinstance(ow, int) else None
        vectors = tiling.best_vectors(row, s.oc)
        block, packer_block = grid.packed_block(s.oc, site.compact)
        pixels = max(p for part in tiling.channel_ranges(row, s.oc, vectors, block) for p, _ in part.tiles)

        cache_block, chunks_inside = None, False
        # Only 1x1 convolutions have cache blocks: those in assembler, and those in WebAssembly (`hoists_loads`).
        blocks_weights = tiling.assembler or (
            tiling.hoists_loads and s.is_pointwise and x_layout != "plain" and not site.compact)
        if blocks_weights and row is not None and pixels < row:
            cache_block = CacheBlock.of(s.ic, vectors * lanes, row, site.target)
        if cache_block and s.is_static and chunks > 1:
            chunks_inside = chunks_first(4 * s.n * oh * row * s.ic, 4 * s.ic * s.oc, s.n * oh, chunks, site.target)

        N, G, IC, IH, IW, OC, OH, OW, CHUNKS, PATCH = extent_symbols(
            "N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "CHUNKS", "PATCH")
        extents = {**s.extents(oh, ow), "CHUNKS": chunks}
        scratch: Dim = 0
        if s.hpad:
            extents["PATCH"] = s.columns_read(pixels)
            columns = dim_max(PATCH, s.columns_read(tiling.compact_tile()[0]))
            # The zero-padded copy of a tile's window, float32 [kh][channels][columns].
            scratch = 4 * s.kh * stored(IC, x_layout, lanes) * columns
        elif cache_block:
            scratch = cache_block.partial_sum_bytes(s.ic, row)
        operands = present(
            site, Operand("x", 0, N * G * stored(IC, x_layout, lanes) * s.area(IH, IW, OH, OW)),
            Operand("w", 1, G * round_up(OC, lanes) * IC * s.taps, ("conv_oihw", lanes, s.g, *packer_block)),
            Operand("b", 2, round_up(G * OC, lanes), ("channel", lanes)))
        flags = {"x_" + x_layout: x_layout != "nchwc", "y_" + y_layout: y_layout != "nchwc", "grouped": s.g > 1,
                 "vpad": s.vpad, "hpad": s.hpad}
        return Lowered(
            "conv2d/direct", DirectParameters(
                *s.window, bias=s.bias, tiling=tiling, x_layout=x_layout, y_layout=y_layout, block=block, vpad=s.vpad,
                hpad=s.hpad, grouped=s.g > 1, cache_block=cache_block, chunks_first=chunks_inside),
            extents, operands, (Operand("y", 0, N * G * stored(OC, y_layout, lanes) * OH * OW),),
            N * G * OH * CHUNKS, s.name(**flags), self.label, scratch=scratch, channels=round_up(G * OC, lanes))

    def other_tiles(self, site):
        s = Geometry.of(site)
        if s.is_static:
            grid = DirectConv()._task_grid(site)  # of the default tile, whatever that of self is
            yield from map(type(self), grid.tiling.other_tile_vectors(grid.pixels, s.oc))

    def cost(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        products = -(-s.oc // lanes)  # multiply-adds of vectors for each input of a pixel
        # load: cycles to load an input of a pixel, for all multiply-adds by it in a tile, which has up to 4 vectors of
        # channels. AVX-512 multiplies by a pixel in memory, NEON by a lane of a vector of four channels.
        load = 0.5 if lanes == 16 else 0.8
        if site.x.layout != PLAIN and (lanes == 16 or site.isa.lane_fma):
            load = 0.25
        if site.isa.assembler and s.is_pointwise and s.ic >= lanes:
            # Instructions for each multiply-add: in assembler; in C; in C with inputs loaded one by one.
            products *= {blocked(site.target): 1.09, NHWC: 1.2, PLAIN: 1.45}[site.x.layout]
        sums = s.n * s.g * s.oh * s.ow * s.ic * s.taps * (products + load / min(products, 4))
        # For each vector of results: 1 if x is not blocked, and 2 if y is not, for loads and stores of parts of
        # vectors.
        scattered = (site.x.layout != blocked(site.target)) + 2 * (site.y.layout != blocked(site.target))
        # Pad lanes of a blocked input are read as well: 2 for a vector.
        pad_lanes = s.n * s.g * s.ih * s.iw * (-s.ic % lanes) if site.x.layout == blocked(site.target) else 0
        return CALL + sums + (scattered * site.y.size + 2 * pad_lanes) / lanes
