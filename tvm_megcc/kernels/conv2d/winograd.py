# SPDX-License-Identifier: Apache-2.0
"""The kernels `winograd` and `winograd_raw`: convolution of floats by 3x3 windows of stride 1 with fewer products, on
transformed tiles (Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016).

The points of interpolation are 0, ±2/3, ±3/2 and infinity. Because 2/3 * 3/2 = 1, the transforms are short. Rounding
loses half a decimal digit more than the direct sum; with the usual points 0, ±1, ±2 it loses a whole digit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...ir.dims import ceildiv, likely, round_up
from ...target import Target
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair, present
from ..packing import pack_columns, packer
from ..parameters import Parameters, Scope
from ..sharing import MIN_TASKS, is_large, load_imbalance
from ..tiling import BLOCK, Tiling
from .geometry import Geometry, blocked
from .winograd_tile import WINDOW, WinogradTile

#: The points of interpolation are 0, ±NEAR, ±FAR and infinity.
NEAR, FAR = 2 / 3, 3 / 2
_FINITE_POINTS = (0.0, NEAR, -NEAR, FAR, -FAR)
#: Cost of a call besides its tiles, in the unit of the next ones.
_CALL_COST = 400
#: Costs of transforming a vector of channels of an input tile, of an output tile, and a vector of weights, in
#: multiply-adds of vectors; estimates.
_INPUT_COST, _OUTPUT_COST, _WEIGHTS_COST = 260, 200, 100
#: Costs of reading a transformed weight, of 4 bytes, from memory (40 GB/s) and from the last cache (124 GB/s), in the
#: same unit. A core does two multiply-adds of vectors per cycle at 4.2 GHz, 8.4 in a nanosecond: 4 / 40 * 8.4 = 0.84,
#: 4 / 124 * 8.4 = 0.27.
_MEMORY_COST, _LAST_CACHE_COST = 0.85, 0.27
#: If a model's weights take this many times the size of L2, none of them stays in a cache.
_LARGE_NETWORK = 16


@lru_cache(maxsize=8)
def kernel_transform(taps: int) -> np.ndarray:
    """Returns the matrix [WINDOW, taps] that transforms a row of weights: it evaluates the row as a polynomial at each
    point, and divides by the product of the point's distances to the other points."""
    rows = [[point ** tap / np.prod([point - other for other in _FINITE_POINTS if other != point])
             for tap in range(taps)] for point in _FINITE_POINTS]
    return np.array([*rows, [0.0] * (taps - 1) + [1.0]])


@dataclass(frozen=True)
class WinogradParameters(Parameters):
    """Parameters of `winograd.c.j2`.

    ic, oc: the numbers of input and output channels.
    size: the number of rows, and of columns, of y that a tile computes.
    bias: whether there is a bias.
    tiling: how the ISA tiles the products.
    vectors, pixels, tiles, depth, raw: as in `Blocking`.
    kernel: the transform of raw weights, [WINDOW][rows of the window] (`kernel_transform`); empty for packed ones.
    near, far: the points of interpolation are 0, ±near, ±far and infinity.
    """

    ic: int
    oc: int
    size: int
    bias: bool
    tiling: Tiling
    vectors: int
    pixels: int
    tiles: int
    depth: int
    raw: bool
    kernel: tuple[tuple[float, ...], ...] = field(repr=False)
    near: float = NEAR
    far: float = FAR

    def microkernel(self, scope: Scope) -> WinogradTile:
        return WinogradTile(self, scope)


class WinogradConv(Kernel):
    """Winograd's F(4x4, 3x3) (Lavin and Gray, 2016): 36 products for 16 outputs, where direct convolution takes 144.

    Transformed 6x6 tiles of inputs are multiplied by transformed weights. At each of the 36 positions, that is a matrix
    product: tiles × input channels × output channels. A task is a group of tiles of one image with a part of the
    output channels. F(2x2, 5x5) is not offered: it takes 36 products for 4 outputs, and on mnist8 its rounding errors
    were 1.5 times those of the direct sum.

    An input that is not finite makes its whole tile NaN, not only the outputs whose window contains it.

    raw: weights are transformed in the kernel, for one block of input channels at a time. Transformed weights take four
    times the memory: if they do not stay in a cache, reading them takes longer than transforming them.
    """

    dtypes = (FLOAT32,)
    fuses_epilogue = True
    constants = (1, 2)
    position_dependent = True
    #: In assembler: tasks that an image is divided into, and the minimum of output channels in a chunk, because each
    #: chunk transforms the input again.
    ASSEMBLER_TASKS, MIN_CHUNK_CHANNELS = 4, 128
    #: With fewer input channels, the transforms cost more than the products that they save.
    MIN_INPUT_CHANNELS = 8

    def __init__(self, raw: bool = False):
        self.raw = raw
        self.name = "winograd_raw" if raw else "winograd"

    def layouts(self, site):
        yield layout_pair(site, blocked(site.target))

    def reorders_sums(self, site):
        return True

    def refuse(self, site):
        if site.compact:
            return ("its code is several times as large as that of a direct sum" if self.raw else
                    "its weights are several times as large as the model's")
        if not site.target.l2:
            return "needs a cache for its tiles"
        s = Geometry.of(site)
        if (s.kh, s.kw) != (3, 3):
            return f"needs a kernel of 3x3, not {s.kh}x{s.kw}"
        if s.strides != (1, 1) or s.dilations != (1, 1) or s.g > 1:
            return "needs strides, dilations and groups of 1"
        if s.ic < self.MIN_INPUT_CHANNELS:
            return f"{s.ic} input channels do not pay for transforming them"
        return None

    def lower(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        size, blocking = WINDOW + 1 - s.kh, self._blocking(site)
        N, IH, IW, OH, OW, CHUNKS = extent_symbols("N", "IH", "IW", "OH", "OW", "CHUNKS")
        extents = {"N": s.n, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0], "PL": s.pads[1],
                   "CHUNKS": blocking.chunks}
        input_channels, output_channels = round_up(s.ic, lanes), round_up(s.oc, lanes)
        weights, packer_name = (s.taps, "taps") if self.raw else (WINDOW ** 2, "winograd")
        operands = present(site, Operand("x", 0, N * input_channels * IH * IW),
                           Operand("w", 1, output_channels * s.ic * weights, (packer_name, lanes)),
                           Operand("b", 2, output_channels, ("channel", lanes)))
        parts = ceildiv(ceildiv(OH, size) * ceildiv(OW, size), blocking.tiles)
        transform = tuple(map(tuple, kernel_transform(s.kh).tolist())) if self.raw else ()
        params = WinogradParameters(
            ic=s.ic, oc=s.oc, size=size, bias=s.bias, tiling=blocking.tiling, vectors=blocking.vectors,
            pixels=blocking.pixels, tiles=blocking.tiles, depth=blocking.depth, raw=self.raw, kernel=transform)
        shape = f"{blocking.tiles}x{blocking.pixels}x{blocking.vectors}" + f"x{blocking.depth}" * self.raw
        return Lowered(
            "conv2d/winograd", params, extents, operands, (Operand("y", 0, N * output_channels * OH * OW),),
            N * parts * CHUNKS, f"{s.name()}_ic{s.ic}oc{s.oc}", f"{self.name}_{shape}", scratch=blocking.scratch,
            channels=output_channels)

    def cost(self, site):
        """Estimates the cost of an image, in vector multiply-adds."""
        s = Geometry.of(site)
        return _CALL_COST + s.n * self._blocking(site).cost(s)

    def _blocking(self, site):
        return Blocking.of(Geometry.of(site), self.raw, site.target, site.context.weight_bytes)


@dataclass(frozen=True)
class Blocking:
    """The division of a convolution into tasks, and of a task into Winograd tiles and channels.

    tiling: how the ISA tiles the products.
    vectors, pixels: the numbers of vectors of output channels and of Winograd tiles in a register tile of the product.
    tiles: the number of Winograd tiles in a task: each is 6x6 elements of x, and 4x4 of y.
    depth: the number of input channels whose weights are transformed and multiplied at a time; all if weights are
        packed transformed.
    chunks: the number of parts that output channels are divided into.
    raw: whether weights are packed as they are, and each task transforms them; else they are packed transformed.
    scratch: the size of the scratch in bytes.
    l2: the size of the L2 cache in bytes.
    weight_bytes: the size of the whole model's weights in bytes.
    """

    tiling: Tiling
    vectors: int
    pixels: int
    tiles: int
    depth: int
    chunks: int
    raw: bool
    scratch: int
    l2: int
    weight_bytes: int

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(s: Geometry, raw: bool, target: Target, weight_bytes: int) -> Blocking:
        """Returns the blocking of least cost. raw, weight_bytes: as the fields."""
        tiling = Tiling.of(target.isa, lane_fma=target.isa.lane_fma, assembler=True)
        count = _tiles(s)
        options = []
        for vectors in tiling.tile_vectors():
            max_pixels = tiling.max_pixels(vectors)
            min_products = -(-count // max_pixels)
            # Fewer pixels need more loads per product. In assembler they pay off if they divide the number of tiles,
            # or if there are few products and they give one more task to share.
            for pixels in range(max_pixels // 2 + 1, max_pixels + 1) if tiling.assembler else \
                    {-(-count // products) for products in (min_products, min_products + (min_products < MIN_TASKS))}:
                options += Blocking._fitting(s, raw, target, weight_bytes, tiling, vectors, pixels)
        return min(options, key=lambda blocking: blocking.cost(s) * blocking.imbalance(s))

    @staticmethod
    def _fitting(s: Geometry, raw: bool, target: Target, weight_bytes: int, tiling: Tiling, vectors: int,
                 pixels: int) -> list[Blocking]:
        """Returns a blocking for each number of chunks of output channels, with these register tiles. A task has as
        many Winograd tiles as fit in the caches. The list is empty if no block of weights fits in L1."""
        lanes = target.isa.lanes
        products = -(-_tiles(s) // pixels)
        # The scratch of as many Winograd tiles as one product has; all of a task take a part of L2 (estimates).
        product_bytes = _scratch(ceildiv(s.ic, lanes), pixels, pixels, vectors, lanes)
        budget = target.l2 // 4
        if raw:
            # Each task transforms the weights again, so it has as many tiles as L2 holds for one block of input
            # channels.
            product_bytes = 4 * WINDOW ** 2 * (vectors + 1) * lanes * pixels
            budget = target.l2 // 2
        elif tiling.assembler:
            # Each task reads all weights again: the larger they are, the more tiles should share them.
            budget = min(target.l2 // 2, max(target.l2 // 8, 2 * WINDOW ** 2 * s.ic * s.oc))
        parts = -(-products // max(1, min(products, budget // product_bytes)))
        tiles = -(-products // parts) * pixels
        depth = s.ic
        if raw:
            # A block of weights and six positions of their transform stay in L1.
            fitting_depth = target.l1 // (4 * (s.taps + WINDOW) * vectors * lanes) // lanes * lanes
            if fitting_depth == 0 and vectors > 1:
                return []
            depth = min(s.ic, max(lanes, fitting_depth))
        scratch = _scratch(ceildiv(s.ic, lanes), tiles, pixels, vectors, lanes)
        if raw:
            # The transformed weights of one row of six positions, float32 [6][depth + 1][vectors * lanes];
            # position_stride of winograd_tile.py says why there is one row more.
            scratch += 4 * WINDOW * (depth + 1) * round_up(vectors * lanes, BLOCK)
        max_chunks = max(1, min(MIN_TASKS // parts, -(-s.oc // max(BLOCK, vectors * lanes))))
        if tiling.assembler:
            max_chunks = max(1, min(-(-WinogradConv.ASSEMBLER_TASKS // parts), s.oc // WinogradConv.MIN_CHUNK_CHANNELS))
        return [Blocking(tiling=tiling, vectors=vectors, pixels=pixels, tiles=tiles, depth=depth, chunks=chunks,
                         raw=raw, scratch=scratch, l2=target.l2, weight_bytes=weight_bytes)
                for chunks in ((max_chunks,) if tiling.assembler else range(1, max_chunks + 1))]

    def imbalance(self, s: Geometry) -> float:
        """Returns the factor on the cost for the time in which threads wait for each other."""
        if self.tiling.assembler or not isinstance(s.n, int) \
                or not is_large(round(s.n * self.cost(s)) * self.tiling.lanes):
            return 1.0
        parts = -(-_tiles(s) // self.tiles)
        return load_imbalance(s.oc, max(BLOCK, self.vectors * self.tiling.lanes), self.chunks, s.n * parts)

    def cost(self, s: Geometry) -> float:
        """Estimates the multiply-adds of vectors of an image."""
        lanes = self.tiling.lanes
        count = -(-_tiles(s) // self.pixels) * self.pixels
        inputs, outputs, passes = -(-s.ic // lanes), -(-s.oc // lanes), -(-count // self.tiles)
        steps = _step_cost(self.tiling, self.pixels, s.oc, self.vectors) * WINDOW ** 2 * s.ic / self.pixels
        transforms = _INPUT_COST * self.chunks * inputs + _OUTPUT_COST * outputs
        if not self.raw:
            # The first pass reads weights from memory or the last cache, later passes from a cache.
            weights, multiply = WINDOW ** 2 * s.ic * outputs * lanes, count * steps / passes
            # 4: the bytes of a weight.
            later_read = 0 if 4 * weights <= self.l2 / 2 else _LAST_CACHE_COST * weights
            in_memory = weights > self.l2 or self.weight_bytes > _LARGE_NETWORK * self.l2
            first_read = _MEMORY_COST * weights if in_memory else later_read
            return (count * transforms + _overlapped(multiply, first_read)
                    + (passes - 1) * _overlapped(multiply, later_read))
        # Loads and stores: sums between blocks of input channels; inputs for each tile of output channels.
        moved = 2 * (-(-s.ic // self.depth) - 1) * outputs + 2 * inputs * -(-outputs // self.vectors)
        return count * (steps + transforms + WINDOW ** 2 * moved) + passes * _WEIGHTS_COST * s.ic * outputs


def _overlapped(multiply: float, weights: float) -> float:
    """Returns the cost of a pass that reads weights while it multiplies: both overlap except for a tenth."""
    return max(multiply, weights) + 0.1 * min(multiply, weights)


def _tiles(s: Geometry) -> int:
    """Returns the number of Winograd tiles of an image."""
    size = WINDOW + 1 - s.kh
    return max(1, -(-likely(s.oh) // size) * -(-likely(s.ow) // size))


def _step_cost(tiling: Tiling, pixels: int, channels: int, vectors: int) -> float:
    """Returns the cost of one step of a tile's reduction, for all output channels."""
    cost = 0.0
    for part in tiling.channel_ranges(pixels, channels, vectors):
        # With a single vector, each multiply-add loads its input from memory.
        load = 0.45 if part.vectors == 1 else 0.25
        step = (tiling.assembler_step(pixels, part.vectors) if tiling.assembler else
                pixels * part.vectors + 0.5 * (part.vectors + load * pixels) + 0.5)
        cost += step * -(-(part.end - part.start) // (part.vectors * tiling.lanes))
    return cost


def _scratch(blocks: int, tiles: int, pixels: int, vectors: int, lanes: int) -> int:
    """Returns the bytes of scratch, which holds float32 arrays of vectors: the transformed inputs and the products of
    one register tile of channels, [tiles / pixels][6, 6][vectors of a position]; the first half of a transform [6, 6];
    and zeros [6]. A position has an odd number of vectors, so that positions lie in different cache sets.

    blocks: vectors of input channels. Others: as in `Blocking`.
    """
    vectors_per_position = tiles // pixels * ((blocks * pixels // 2 * 2 + 1) + (vectors * pixels // 2 * 2 + 1)) + 1
    return 4 * lanes * (WINDOW ** 2 * vectors_per_position + WINDOW)


@packer("winograd")
def pack_winograd(array: np.ndarray, lanes: int) -> np.ndarray:
    """Transforms weights [O, I, K, K] and packs them as [O/16][WINDOW, WINDOW][I][16]."""
    transform = kernel_transform(array.shape[-1])
    transformed = np.einsum("ai,ocij,bj->abco", transform, array.astype(np.float64), transform, optimize=True)
    return pack_columns(transformed.astype(array.dtype).reshape(-1, array.shape[0]), lanes)
