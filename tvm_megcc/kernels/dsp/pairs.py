# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands on cores without vectors. Two pixels share one word, so that one
multiplication by a weight makes two products."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product, round_up
from ...ops.quantized.conv_matmul import BYTES
from ..base import Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..integer.dot import ByteParameters, is_narrow, packed_zero, with_sums, zero_name
from ..integer.pixels import PixelConv, PixelMatMul, PixelProducts, in_place, in_place_name, pixel_extents
from ..integer.requantize import Closing, closing
from ..site import Site

#: Channels whose sums are computed before they are requantized.
_BLOCK = 16
#: Most products in a sum: int32 cannot overflow, whatever the operands are.
_DEEPEST = 1 << 15


@dataclass(frozen=True)
class PairsParameters(ByteParameters):
    """Parameters of `pairs.c.j2`.

    result: C type of an element of y.
    short: suffix of x's type in mgc functions, such as "i8".
    single: one pixel at a time.
    has_weight_zero: packed weights have a zero point.
    x_offset: number that products subtract from x, its zero point.
    flat: 1x1 windows without padding.
    down: runs from the last pixel to the first, so that the output can begin where x does.
    deep: a window's length is rounded up to a multiple of this.
    width: channels in a block of weights.
    block: channels at a time.
    close: the epilogue.
    """

    result: str
    short: str
    single: bool
    has_weight_zero: bool
    x_offset: int
    flat: bool
    down: bool
    deep: int
    width: int
    block: int
    close: Closing


class PairProducts(PixelProducts):
    """The base class of both kernels."""

    name = "pairs"
    dtypes = (BYTES, BYTES, ("int32",))

    @staticmethod
    def unable(site: Site, w_zero: int) -> str | None:
        if not site.isa.pairs:
            return "for cores without vectors"
        if site.isa.pairs.bits == 32 and not is_narrow(site, w_zero):
            return "a weight is -128: sums of two products do not fit in 16 bits"
        depth = site.inputs[1].size // _outputs(site)
        fits = isinstance(depth, int) and depth <= _DEEPEST
        return None if fits else "sums of so many products may not fit"

    @staticmethod
    def call(site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """Returns the call. zeros: zero points of x and of the weights. outputs_first: a weight matrix is [O, I]."""
        flat, (x_zero, w_zero), pairs = s.is_pointwise, zeros, site.isa.pairs
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels <= 2
        N, G, IC, OC = extent_symbols("N", "G", "IC", "OC")
        folded = single and pairs.folded
        deep = 2 if folded else 4
        depth = round_up(IC * s.taps, deep)
        width = pairs.row_columns if single else pairs.columns
        # An extent, not a constant: at -O size, layers whose rows are whole steps (0) share a kernel with others (1).
        multiple = deep if single else 2
        gathered_pixels = ceildiv(round_up(IC, multiple) - IC, multiple) if flat else 1
        gathered = gathered_pixels * (1 if single else 4) * depth
        step = round_up(s.ic * s.taps, 4) if single and pairs.by_channel else deep
        # Words hold 8-bit signed numbers: 128 is subtracted from uint8.
        taken = 128 if site.x.dtype == "uint8" and (folded or not single) else 0
        operands = present(site, Operand("x", 0, x_size),
                           Operand("w", 1, G * round_up(OC, width) * depth,
                                   ("dot", outputs_first, w_zero, s.g, 1, width, 1, step,
                                                          -128 * folded), "int8"),
                           Operand("b", 2, G * OC))
        # The bias is the initial value of the sums of whole tiles of channels.
        operands = with_sums(site, operands, (outputs_first, w_zero), x_zero - taken, G * OC,
                             None if single else pairs.columns - 1)
        bias, has_weight_zero = len(operands) > 2, packed_zero(site.inputs[1].dtype, w_zero) != 0
        if has_weight_zero:
            operands += (Operand("zero", 1, 1, ("dot_skew", w_zero), "int32"),)
        close = closing(site, zeros, outputs_first)
        takes_over, down = in_place(site, s, single)
        parameters = PairsParameters(*s.window, bias, site.x.c_type, "int8_t", x_zero, site.y.c_type,
                                     "i8" if site.x.dtype == "int8" else "u8", single, has_weight_zero, taken, flat,
                                     down, deep,
                                     width, width if single else _BLOCK, close)
        return Lowered("dsp/pairs", parameters, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G, operation + "_bias" * bias + zero_name(x_zero),
                       ("single" if single else "pairs") + "_flat" * flat + "_down" * down
                       + in_place_name(s, single, takes_over) + "_weight_zero" * has_weight_zero
                       + close.name,
                       takes_over=takes_over, channels=G * OC,
                       scratch=gathered + (0 if single else 2 * pairs.bits // 8 * depth))

    @staticmethod
    def cycles(s: Geometry) -> float:
        """Estimates the cycles of all images, if all extents are known."""
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 4)
        return 300 + s.g * pixels * (3 * depth + 20 + s.oc * (1.5 * depth + 20))


def _outputs(site: Site) -> int:
    shape = site.inputs[1].shape
    return shape[0] if len(shape) == 4 or site.attrs.trans_b else shape[1]


class PairConv(PairProducts, PixelConv):
    """Computes convolutions."""


class PairMatMul(PairProducts, PixelMatMul):
    """Computes products with a constant matrix."""
