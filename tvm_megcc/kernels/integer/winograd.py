# SPDX-License-Identifier: Apache-2.0
"""Winograd convolution F(2x2, 3x3) of 8-bit operands in int16 (Lavin and Gray, "Fast algorithms for convolutional
neural networks", CVPR 2016). It takes 16 products per channel for four pixels; direct convolution takes 36. The result
is exact.

With x minus its zero point (|x| <= 255), weights g minus theirs, and the matrices

        | 1  0 -1  0 |         | 2  0  0 |
    B = | 0  1  1  0 |     G = | 1  1  1 |     A = | 1  1  1  0 |
        | 0 -1  1  0 |         | 1 -1  1 |         | 0  1 -1 -1 |
        | 0  1  0 -1 |         | 0  0  2 |

the four pixels of a 4x4 tile d are 1/4 A [(G g G') * (B d B')] A', summed over the input channels. G is twice the
paper's matrix, so that it is integral. Each row of B takes two elements, so no element of B d B' exceeds 4 * 255 =
1020. No element of G g G' exceeds 9 * 128 = 1152, a sum of nine weights. Both fit in int16. Their products and sums are
exact modulo 2^32, even if an intermediate result overflows. The final sum is four times that of the convolution. It is
exact if it fits in int32, that is, if the convolution's sum is below 2^29. Weights and bias are constants, so this is
decided for each layer when it is compiled (`_max_sum`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, likely, round_up
from ...ir.types import DTYPES
from ..base import LARGE_CALL, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..packing import packer
from ..parameters import Parameters, Scope
from ..site import Site
from .dot import packing_offset, zero_name
from .products import ChannelsLast
from .winograd_sums import on_arm64, on_armv7

#: Positions of a transformed tile.
POSITIONS = 16
#: Input channels are rounded up to a multiple of this: the int16 elements of a vector of 128 bits.
_INT16X = 8
#: ISA -> (tiles that are multiplied at a time, vectors of output channels).
_TILES = {"neon": (4, 4), "neon_armv7": (2, 4), "sse2": (4, 2), "avx2": (4, 2), "avx512": (6, 4)}
#: Elements that pad each position: with a power of two between the 16 positions, all would share a few cache sets. The
#: assembler of Arm expects positions without padding.
_PADDING = 32
#: ISAs whose kernels multiply weights by a lane of a vector.
_LANE_PRODUCTS = ("neon", "neon_armv7")


@dataclass(frozen=True)
class WinogradBytesParameters(Parameters):
    """Parameters of `winograd.c.j2`.

    unit, result: the C types of an element of x and of y.
    x_short: the suffix of mgc functions for the dtype of x.
    x_zero: the zero point of x.
    bias: whether there is a bias.
    depth: the number of input channels, rounded up to a multiple of 8 (MGC_INT16_LANES).
    step: the number of products of neighbouring input channels that one instruction adds to a lane, 1 or 2.
    pixels: the number of tiles that are multiplied at a time.
    vectors: the number of vectors (of int32) of output channels in a block.
    rest: the number of vectors in the last block, if it has fewer; 0 if all blocks are full.
    by_lane: whether a vector of weights is multiplied by one lane of a vector of x, as Arm's instructions do.
    position_padding: the number of int16 after each of the 16 positions, so that they lie in different cache sets.
    """

    unit: str
    result: str
    x_short: str
    x_zero: int
    bias: bool
    depth: int
    step: int
    pixels: int
    vectors: int
    rest: int
    by_lane: bool
    position_padding: int

    def microkernel(self, scope: Scope) -> Callable[[int, int, int], str]:
        """Prints the sums of `pixels` tiles and some vectors of channels at one position, in assembler of Arm
        (winograd_sums.py)."""
        return on_arm64 if scope.isa.assembler else on_armv7


@packer("winograd_bytes")
def pack_weights(array: np.ndarray, zero: int, depth: int, step: int, width: int, granule: int) -> np.ndarray:
    """Packs [O, I, 3, 3] minus the zero point as int8 [O/width][depth/step][3, 3][width][step]. The last block has a
    multiple of `granule` channels."""
    outputs, inputs = array.shape[:2]
    padded = np.zeros((-(-outputs // granule) * granule, depth, 9), np.int8)
    padded[:outputs, :inputs] = array.reshape(outputs, inputs, 9).astype(np.int32) - zero
    blocks = [padded[first:first + width] for first in range(0, len(padded), width)]
    return np.concatenate([np.moveaxis(block.reshape(len(block), depth // step, step, 9), (1, 3, 0, 2), (0, 1, 2, 3))
                           .reshape(-1) for block in blocks])


class WinogradBytes(ChannelsLast):
    """Winograd convolution, channels last; one task computes some rows of tiles of an image.

    The container holds untransformed weights, because transformed ones take four times the memory; the kernel
    transforms them.
    """

    name = "winograd"

    def refuse(self, site: Site):
        s = Geometry.of(site)
        if site.isa.name not in _TILES:
            return "other 8-bit products take fewer instructions"
        if site.compact:
            return "its code is several times as large as the sum's"
        if (s.kh, s.kw) != (3, 3) or s.strides != (1, 1) or s.dilations != (1, 1) or s.g > 1:
            return "needs a kernel of 3x3, strides, dilations and groups of 1"
        if packing_offset(site.inputs[1].dtype, site.attrs.w_zero) != site.attrs.w_zero:
            return "int8 does not hold the weights less their zero point"
        return None if _max_sum(site, s) < 2**29 else "four times the sums may not fit in int32"

    def lower(self, site: Site) -> Lowered:
        s, isa = Geometry.of(site), site.isa
        pixels, vectors, rest = _tile(site, s)
        step, depth = (1 if isa.name in _LANE_PRODUCTS else isa.int16_step), round_up(s.ic, _INT16X)
        position_padding = 0 if isa.name in _LANE_PRODUCTS else _PADDING
        N, IC, IH, IW, OC, OH, OW, ROWS = extent_symbols("N", "IC", "IH", "IW", "OC", "OH", "OW", "ROWS")
        extents = {"N": s.n, "IC": s.ic, "IH": s.ih, "IW": s.iw, "OC": s.oc, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1], "ROWS": _rows(site, s)}
        tile_rows, tile_columns = ceildiv(OH, 2), ceildiv(OW, 2)
        width, granule = vectors * isa.lanes, 2 * isa.lanes
        operands = present(site, Operand("x", 0, N * IH * IW * IC),
                           Operand("w", 1, 9 * depth * round_up(OC, granule),
                                   ("winograd_bytes", site.attrs.w_zero, depth, step, width, granule), "int8"),
                           Operand("b", 2, OC))
        parameters = WinogradBytesParameters(
            unit=site.x.c_type, result=site.y.c_type, x_short=DTYPES[site.x.dtype].short, x_zero=site.attrs.x_zero,
            bias=s.bias, depth=depth, step=step, pixels=pixels, vectors=vectors, rest=rest,
            by_lane=isa.name in _LANE_PRODUCTS, position_padding=position_padding)
        # Scratch: sums int32 [16][pixels][width]; then int16: transformed weights
        # [16][depth * width + position_padding], transformed tiles
        # [tiles / pixels][16][depth * pixels + position_padding], and the padded rows of x [rows][columns][depth].
        scratch = (4 * POSITIONS * pixels * width + 2 * POSITIONS * (depth * width + position_padding)
                   + 2 * POSITIONS * (depth * pixels + position_padding) * ceildiv(ROWS * tile_columns, pixels)
                   + 2 * depth * (2 * ROWS + 2) * (2 * tile_columns + 2))
        return Lowered("integer/winograd", parameters, extents, operands, (Operand("y", 0, N * OH * OW * OC),),
                       N * ceildiv(tile_rows, ROWS), s.name("conv2d_integer") + zero_name(site.attrs.x_zero),
                       f"winograd_{vectors}x{pixels}{f'_{rest}' * bool(rest)}", scratch=scratch, channels=OC)

    def cost(self, site: Site) -> float:
        """Estimates the instructions of the three transforms and the products."""
        s, lanes = Geometry.of(site), site.isa.lanes
        pixels, _, _ = _tile(site, s)
        depth, outputs = round_up(s.ic, _INT16X), round_up(s.oc, 2 * lanes)
        tile_rows, tile_columns = -(-s.oh // 2), -(-s.ow // 2)
        rows = _rows(site, s)
        tasks = -(-tile_rows // rows)
        tiles = -(-min(rows, tile_rows) * tile_columns // pixels) * pixels * tasks
        # Estimates of instructions. 1.15: a multiply-add of vectors with its loads; 4: the store of the sums of a
        # position. 85, 70 and 75: the transforms of a vector of an input tile, of the sums of a tile, and of the
        # weights of one input channel.
        product_cost = tiles * POSITIONS * (depth * 1.15 + 4) * outputs / lanes
        transform_cost = (tiles * depth / _INT16X * 85 + tiles * outputs / lanes * 70
                          + tasks * depth * outputs / _INT16X * 75)
        if site.isa.name not in _LANE_PRODUCTS:
            # Estimates cycles, like `DotProducts.cycles`: an instruction adds `int16_step` products to a lane, and
            # about two instructions of a transform take one cycle.
            product_cost, transform_cost = product_cost / site.isa.int16_step, transform_cost / 2
        return LARGE_CALL + s.n * (product_cost + transform_cost)


def _max_sum(site: Site, s: Geometry) -> int:
    """Returns an upper bound on the magnitude of the convolution's sums with their bias."""
    limits, zero = np.iinfo(site.x.dtype), site.attrs.x_zero
    x = max(abs(int(limits.min) - zero), abs(int(limits.max) - zero))
    weights, bias = site.values.get(1), site.values.get(2)
    if bias is None and site.has(2):
        return 2**31
    bias_magnitudes = np.zeros(1, np.int64) if bias is None else np.abs(bias.astype(np.int64))
    if weights is None:
        # A weight minus its zero point is at most 255.
        return x * 255 * s.taps * s.ic + int(bias_magnitudes.max(initial=0))
    sums = x * np.abs(weights.astype(np.int64) - site.attrs.w_zero).reshape(s.oc, -1).sum(axis=1)
    return int((sums + bias_magnitudes).max(initial=0))


def _tile(site: Site, s: Geometry) -> tuple[int, int, int]:
    """Returns (tiles that are multiplied at a time, vectors of output channels, vectors in the last block)."""
    pixels, max_vectors = _TILES[site.isa.name]
    needed = round_up(ceildiv(s.oc, site.isa.lanes), 2)
    vectors = min(needed, max_vectors)
    return pixels, vectors, needed % vectors


def _rows(site: Site, s: Geometry) -> int:
    """Returns the rows of tiles in a task. Their transforms fill most of L2, because each task transforms the
    weights again."""
    tile_rows, tile_columns = -(-likely(s.oh) // 2), -(-likely(s.ow) // 2)
    # int16: the transformed tiles of a row, and two rows of 2 * tile_columns + 2 columns of x.
    row_bytes = 2 * round_up(s.ic, _INT16X) * (POSITIONS * tile_columns + 4 * (tile_columns + 1))
    max_rows = max(1, min(tile_rows, site.target.l2 * 3 // 4 // row_bytes))
    return -(-tile_rows // -(-tile_rows // max_rows))
