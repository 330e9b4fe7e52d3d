# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands on cores with Arm's DSP extension: what windows of three pixels read is
laid out in turn as int16, less the zero point, and multiplied by two columns of weights; all sums stay in registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product, round_up
from ...ops.integer import BYTES
from ..base import Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..site import Site
from .dot import ByteParameters, skew, zero_name
from .pixels import PixelConv, PixelMatMul, PixelProducts, in_place, pixel_extents
from .rescaled import Closing, closing


@dataclass(frozen=True)
class TriplesParameters(ByteParameters):
    """Of `triples.c.j2`. result: C type of an element of y. short: what functions of bytes call the type of x. single:
    a pixel and four channels at a time. flat: windows are pixels, without padding. down: when it goes from the last
    pixel to the first, so that the output can begin where x does: "", "1", or a condition of C. skewed: packed weights
    have a zero point. close: the epilogue."""

    result: str
    short: str
    single: bool
    flat: bool
    down: str
    skewed: bool
    close: Closing


class DspProducts(PixelProducts):
    """What both kernels share."""

    name = "triples"
    dtypes = (BYTES, BYTES, ("int32",))

    @staticmethod
    def unable(site: Site, w_zero: int) -> str | None:
        return None if site.isa.dsp else "for cores with Arm's DSP extension"

    @staticmethod
    def call(site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """zeros: of x and of the weights. outputs_first: of weights that are a matrix."""
        flat, (x_zero, w_zero) = s.is_pointwise, zeros
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels <= 2
        N, G, IC, OC = extent_symbols("N", "G", "IC", "OC")
        depth, width, rows = round_up(IC * s.taps, 4), 4 if single else 2, 1 if single else 3
        # Over extents, so that at -O size layers whose rows lie in fours share a kernel with others: 1 if they do not.
        apart = ceildiv(depth - IC, 4) if flat else 1
        gathered = apart * rows * depth
        packed = G * round_up(OC, width) * depth
        # Behind a window, where x is anything, a weight is its zero point: what products add, totals take away.
        w_left = skew(site.inputs[1].dtype, w_zero)
        operands = present(site, Operand("x", 0, x_size),
                           Operand("w", 1, packed, ("dot", outputs_first, w_zero, s.g, 1, width, 1, 4, 0, w_left),
                                   "int8"),
                           Operand("b", 2, G * OC))
        if w_left:
            operands += (Operand("zero", 1, 1, ("dot_skew", w_zero), "int32"),)
        close = closing(site, zeros, outputs_first)
        takes_over, down = in_place(site, s, single)
        parameters = TriplesParameters(*s.window, s.bias, site.x.c_type, "int8_t", x_zero, site.y.c_type,
                                       "i8" if site.x.dtype == "int8" else "u8", single, flat,
                                       "OC > IC" if site.compact and takes_over else "1" * down, w_left != 0, close)
        return Lowered("integer/triples", parameters, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G, operation + "_bias" * s.bias + zero_name(x_zero),
                       ("single" if single else "triples") + "_flat" * flat
                       + "_down" * (down and not site.compact) + "_skewed" * (w_left != 0) + close.name,
                       takes_over=takes_over, scratch=gathered + (0 if single else 6 * depth), channels=G * OC)

    @staticmethod
    def cycles(s: Geometry) -> float:
        """Of one image after another, all extents known."""
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 4)
        return 300 + s.g * pixels * (2 * depth + 20 + s.oc * (0.95 * depth + 20))


class DspConv(DspProducts, PixelConv):
    """Convolution."""


class DspMatMul(DspProducts, PixelMatMul):
    """Product with a constant matrix."""
