# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands: windows are laid out as rows of int16, less the zero point, and
multiplied by packed weights; sums stay in registers until the epilogue has made the result's type of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import Dim, ceildiv, product, round_up
from ...ir.types import DTYPES, NHWC
from ...ops.integer import BYTES, CENTRED
from ...target import Isa
from ..base import Kernel, Lowered, Operand, around, extent_symbols, present
from ..conv2d.geometry import POINT, ConvParameters, Geometry
from ..packing import packer
from ..site import Site

#: Bytes of rows that a task lays out at a time: they stay in the first cache beside the weights of a tile.
_ROWS = 16 << 10


@dataclass(frozen=True)
class ByteParameters(ConvParameters):
    """What templates of 8-bit convolutions share. unit, weight: C types of an element of x and of a weight. x_zero: the
    zero point of x."""

    unit: str
    weight: str
    x_zero: int


@dataclass(frozen=True)
class DotParameters(ByteParameters):
    """Of `dot.c.j2`.

    x_short: what functions of lanes call an element of x. result: C type of an element of y. vectors: of output
    channels in a tile; rest: of those after the last whole tile, 0 if there are none. heights: pixels of the tiles,
    tallest first.
    """

    x_short: str
    result: str
    vectors: int
    rest: int
    heights: tuple[int, ...]


@dataclass(frozen=True)
class _Tile:
    """Vectors of channels, of the rest, and heights of the tiles of a product."""

    vectors: int
    rest: int
    heights: tuple[int, ...]

    @staticmethod
    def of(isa: Isa, channels: int) -> _Tile:
        needed = -(-channels // isa.lanes)
        vectors = min(needed, 4 if isa.registers > 16 else 2)
        # Sums, weights and one pixel in registers.
        height = max(1, min(12, (isa.registers - vectors - 2) // vectors))
        return _Tile(vectors, needed % vectors, tuple(dict.fromkeys((height, max(1, height // 2), 1))))


def zero_name(zero: int) -> str:
    """A zero point in the name of a kernel: of -3 "_zm3"."""
    return f"_z{zero}".replace("-", "m")


def weight_type(dtype: str, zero: int) -> str:
    """Element type of packed weights less their zero point: int8 where it holds them all."""
    limits = np.iinfo(dtype)
    return "int8" if limits.min - zero >= -128 and limits.max - zero <= 127 else "int16"


@packer("dot_oihw")
def pack_convolution(array: np.ndarray, groups: int, lanes: int, vectors: int, step: int, zero: int) -> np.ndarray:
    """[O, I, KH, KW] → for each group as `dot_columns`, K in the order (kh, kw, i)."""
    return np.concatenate([pack_products(np.moveaxis(part, 1, -1).reshape(part.shape[0], -1), True, lanes, vectors,
                                         step, zero) for part in np.split(array, groups)])


@packer("dot_columns")
def pack_products(array: np.ndarray, transposed: bool, lanes: int, vectors: int, step: int, zero: int) -> np.ndarray:
    """[K, N], or [N, K] if transposed, less the zero point → [N/width][K/step][width][step], width being the vectors of
    a tile; the last block has only whole vectors. Zeros where there is no row or column."""
    if transposed:
        array = array.T
    rows, columns = array.shape
    dtype, width = weight_type(array.dtype.name, zero), vectors * lanes
    padded = np.zeros((-(-rows // step) * step, -(-columns // lanes) * lanes), dtype)
    padded[:rows, :columns] = array.astype(np.int32) - zero
    blocks = [padded[:, n:n + width] for n in range(0, padded.shape[1], width)]
    return np.concatenate([np.swapaxes(block.reshape(-1, step, block.shape[1]), 1, 2).reshape(-1) for block in blocks])


class DotProducts(Kernel):
    """What both kernels share."""

    name = "dot"
    dtypes = (BYTES, BYTES, ("int32",))
    fuses_epilogue, lanes = True, "i"
    constants = (1, 2)

    @staticmethod
    def call(site: Site, window: tuple[int, ...], zeros: tuple[int, int], sizes: tuple[Dim, ...], groups: int, ic: int,
             oc: int, pads: tuple[int, int], pack: tuple, name: str) -> Lowered:
        """sizes: images, height and width of x and of y."""
        isa, w = site.isa, site.inputs[1]
        tile = _Tile.of(isa, oc)
        depth = round_up(ic * window[0] * window[1], isa.int8_step)
        weight = weight_type(w.dtype, zeros[1])
        N, G, IC, IH, IW, OC, OH, OW, PIXELS = extent_symbols("N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "PIXELS")
        height = tile.heights[0]
        pixels = max(height, _ROWS // (2 * depth) // height * height)
        extents = dict(zip(("N", "IH", "IW", "OH", "OW"), sizes, strict=True))
        extents |= {"G": groups, "IC": ic, "OC": oc, "PT": pads[0], "PL": pads[1], "PIXELS": pixels}
        row = round_up(IC * window[0] * window[1], isa.int8_step)
        operands = present(site, Operand("x", 0, N * IH * IW * G * IC),
                           Operand("w", 1, G * round_up(OC, isa.lanes) * row,
                                   (*pack, isa.lanes, tile.vectors, isa.int8_step, zeros[1]), weight),
                           Operand("b", 2, G * OC))
        parameters = DotParameters(*window, site.has(2), site.x.c_type, DTYPES[weight].c_type,
                                   zeros[0], DTYPES[site.x.dtype].short, site.y.c_type, tile.vectors, tile.rest,
                                   tile.heights)
        return Lowered("integer/dot", parameters, extents, operands, (Operand("y", 0, N * OH * OW * G * OC),),
                       N * G * ceildiv(OH * OW, PIXELS), name + zero_name(zeros[0]),
                       f"dot_{tile.vectors}x{height}" + f"_{tile.rest}" * bool(tile.rest),
                       scratch=2 * PIXELS * row, channels=G * OC)


class DotConv(DotProducts):
    """Convolution, channels last."""

    dtypes = (CENTRED, BYTES, ("int32",))

    def layouts(self, site: Site):
        yield around(site, NHWC)

    def lower(self, site: Site) -> Lowered:
        s = Geometry.of(site)
        return self.call(site, s.window, (site.attrs.x_zero, site.attrs.w_zero), (s.n, s.ih, s.iw, s.oh, s.ow), s.g,
                         s.ic, s.oc, s.pads[:2], ("dot_oihw", s.g), s.name("conv2d_integer"))

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        depth = s.ic * s.taps
        pixels = product((s.n, s.g, s.oh, s.ow))
        return 300 + pixels * depth * (ceildiv(s.oc, site.isa.lanes) * 1.2 / site.isa.int8_step + 0.2)


class DotMatMul(DotProducts):
    """A constant matrix on the right: a 1x1 convolution whose pixels are the rows of a."""

    def refuse(self, site: Site):
        if site.inputs[1].rank != 2:
            return "the second operand must be one matrix"
        return "the first operand must not be transposed" if site.attrs.trans_a else None

    def lower(self, site: Site) -> Lowered:
        trans_b = bool(site.attrs.trans_b)
        depth = site.inputs[1].shape[-1 if trans_b else -2]
        rows, columns = product(site.y.shape[:-1]), site.y.shape[-1]
        return self.call(site, POINT, (site.attrs.a_zero, site.attrs.b_zero), (1, 1, rows, 1, rows), 1, depth,
                         columns, (0, 0), ("dot_columns", trans_b), "matmul_integer" + "_bias" * site.has(2))

    def cost(self, site: Site) -> float:
        depth = site.inputs[1].shape[-1 if site.attrs.trans_b else -2]
        rows, columns = product(site.y.shape[:-1]), site.y.shape[-1]
        return 300 + rows * depth * (ceildiv(columns, site.isa.lanes) * 1.2 / site.isa.int8_step + 0.2)


