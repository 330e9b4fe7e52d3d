# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands on cores without vectors. Two pixels share one word, so that one
multiplication by a weight makes two products."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product, round_up
from ..base import PACKING_CALL, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..integer.dot import WeightPacking, is_narrow, with_sums
from ..integer.products import IntegerConv, IntegerMatMul
from ..site import Site
from .windows import Packed, WindowProducts, WindowsParameters

#: Channels whose sums are computed before they are requantized.
_BLOCK = 16
#: The largest number of products whose sum fits in int32, whatever the operands are: a product is less than 2^16.
_MAX_PRODUCTS = 1 << 15


@dataclass(frozen=True)
class PairsParameters(WindowsParameters):
    """Parameters of `pairs.c.j2`.

    x_offset: the number that products subtract from x.
    depth_step: a window's length is rounded up to a multiple of this.
    width: channels in a block of weights.
    block: channels whose sums are computed before they are requantized.
    """

    x_offset: int
    depth_step: int
    width: int
    block: int


class PairProducts(WindowProducts):
    """The base class of `PairConv` and `PairMatMul`."""

    name = "pairs"
    parameters = PairsParameters

    def unable(self, site: Site, s: Geometry, w_zero: int) -> str | None:
        if not site.isa.pairs:
            return "for cores without vectors"
        if site.isa.pairs.bits == 32 and not is_narrow(site, w_zero):
            return "a weight is -128: sums of two products do not fit in 16 bits"
        depth = s.ic * s.taps
        fits = isinstance(depth, int) and depth <= _MAX_PRODUCTS
        return None if fits else "sums of so many products may not fit"

    def packed(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, x: Operand,
               single: bool) -> Packed:
        """Returns the parts of a call. A task packs windows in scratch, two pixels in a word; a single pixel is
        multiplied as it is."""
        # target.Pairs says what the fields of `pairs` are.
        pairs, (x_zero, w_zero) = site.isa.pairs, zeros
        G, IC, OC = extent_symbols("G", "IC", "OC")
        # RV32: a word holds two weights of each of two channels.
        folded = single and pairs.folded
        depth_step = 2 if folded else 4
        depth = round_up(IC * s.taps, depth_step)
        width = pairs.row_columns if single else pairs.columns
        # 1 if windows are first copied to scratch, 0 if x is read in place (1x1 windows of whole steps); an expression
        # over IC, so that at -O size layers of both kinds share one kernel.
        x_step = depth_step if single else 2  # elements that mgc_row, or mgc_pack4, reads at once
        copies_window = ceildiv(round_up(IC, x_step) - IC, x_step) if s.is_pointwise else 1
        # The copies of the windows of one or four pixels, bytes [pixels][depth].
        copied_bytes = copies_window * (1 if single else 4) * depth
        # mgc_pack4 makes two words of an element of four pixels: words [depth][2].
        packed_bytes = 0 if single else 2 * pairs.bits // 8 * depth
        # Channel by channel: all weights of a channel are neighbours, as if they were one step.
        weight_step = round_up(s.ic * s.taps, 4) if single and pairs.by_channel else depth_step
        # Words hold 8-bit signed numbers: 128 is subtracted from uint8.
        x_offset = 128 if site.x.dtype == "uint8" and (folded or not single) else 0
        # Folded weights are unsigned bytes, so that one product takes two of a word: inverting the highest bit (-128)
        # adds 128. mgc_row subtracts 128 times the sum of x.
        packing = WeightPacking(outputs_first, w_zero, groups=s.g, runs=1, lanes=width, vectors=1, step=weight_step,
                                flipped_bits=-128 if folded else 0)
        operands = present(site, x, Operand("w", 1, G * round_up(OC, width) * depth, ("dot", *packing), "int8"),
                           Operand("b", 2, G * OC))
        # The bias is the initial value of the sums of whole tiles of channels.
        operands = with_sums(site, operands, (outputs_first, w_zero), x_zero - x_offset, G * OC,
                             zeros_after=None if single else pairs.columns - 1)
        fields = {"x_offset": x_offset, "depth_step": depth_step, "width": width, "block": width if single else _BLOCK}
        return Packed(operands, fields, copied_bytes + packed_bytes)

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 4)
        # For each pixel: 3 to pack an element; for each channel of it 1.5 for a product, 20 to requantize and store.
        return PACKING_CALL + s.g * pixels * (3 * depth + 20 + s.oc * (1.5 * depth + 20))


class PairConv(PairProducts, IntegerConv):
    """Computes convolutions."""


class PairMatMul(PairProducts, IntegerMatMul):
    """Computes products with a constant matrix."""
