# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands on cores with Arm's DSP extension. The windows of three pixels are packed
in turn and multiplied by two columns of weights; all sums stay in registers. If the sums are small enough, weights are
joined as simd/dsp_integer.h says, which takes fewer instructions for the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ...ops.quantized.conv_matmul import BYTES
from ..base import Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..integer.dot import ByteParameters, is_narrow, pack_weights, packed_zero, zero_name
from ..integer.pixels import PixelConv, PixelMatMul, PixelProducts, in_place, in_place_name, pixel_extents
from ..integer.requantize import Closing, closing, greatest_sum
from ..packing import packer
from ..site import Site

#: Sums of joined products and their initial values are 256 times as large, so they must stay below 2^31 / 256.
_JOINED_LIMIT = 1 << 23


@dataclass(frozen=True)
class TriplesParameters(ByteParameters):
    """Parameters of `triples.c.j2`.

    result: C type of an element of y.
    short: suffix of x's type in mgc functions.
    single: one pixel and four channels at a time.
    flat: 1x1 windows without padding.
    down: C condition for running from the last pixel to the first, so that the output can begin where x does; "1"
        always, "" never.
    has_weight_zero: packed weights have a zero point.
    joined: an int16 holds two weights, and sums are 256 times as large.
    close: the epilogue.
    """

    result: str
    short: str
    single: bool
    flat: bool
    down: str
    has_weight_zero: bool
    joined: bool
    close: Closing


@packer("joined")
def pack_joined(array: np.ndarray, *how) -> np.ndarray:
    """Packs four neighbours a, b, c, d of `pack_weights` as two int16, b - 256a and 256c - d."""
    fours = pack_weights(array, *how).astype(np.int32).reshape(-1, 4)
    both = np.stack([fours[:, 1] - 256 * fours[:, 0], 256 * fours[:, 2] - fours[:, 3]], axis=1)
    return both.astype("<i2").view(np.int8).reshape(-1)


@packer("joined_sums")
def pack_joined_sums(array: np.ndarray, outputs_first: bool, zero: int, x_zero: int) -> np.ndarray:
    """Returns int32 [O]: the initial values of sums of joined products. x_zero: the zero point of x as int8. The first
    and third byte of a word are multiplied with 128 added, which this subtracts."""
    weights = array if array.ndim == 4 else (array if outputs_first else array.T)[:, :, None, None]
    depth = np.moveaxis(weights, 1, 3).reshape(weights.shape[0], -1).astype(np.int64) - zero
    return (256 * (-x_zero * depth.sum(axis=1) - 128 * depth[:, ::2].sum(axis=1))).astype(np.int32)


@packer("joined_bias")
def pack_joined_bias(bias: np.ndarray, array: np.ndarray, *how) -> np.ndarray:
    """Returns the initial values with the bias; int32 wraps."""
    return (256 * bias.reshape(-1).astype(np.int64) + pack_joined_sums(array, *how)).astype(np.int32)


class DspProducts(PixelProducts):
    """The base class of both kernels."""

    name = "triples"
    dtypes = (BYTES, BYTES, ("int32",))

    @staticmethod
    def unable(site: Site, w_zero: int) -> str | None:
        return None if site.isa.dsp else "for cores with Arm's DSP extension"

    @staticmethod
    def call(site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """Returns the call. zeros: zero points of x and of the weights. outputs_first: a weight matrix is [O, I]."""
        flat, (x_zero, w_zero) = s.is_pointwise, zeros
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels <= 2
        N, G, IC, OC = extent_symbols("N", "G", "IC", "OC")
        depth, width, rows = round_up(IC * s.taps, 4), 4 if single else 2, 1 if single else 3
        # An extent, not a constant: at -O size, layers whose rows are multiples of four (0) share a kernel with others.
        gathered_pixels = ceildiv(depth - IC, 4) if flat else 1
        gathered = gathered_pixels * rows * depth
        packed = G * round_up(OC, width) * depth
        # After a window, x may be anything and the packed weight is 0, its zero point: totals cancel what it adds.
        w_left = packed_zero(site.inputs[1].dtype, w_zero)
        joined = _joins(site, zeros, outputs_first)
        operands = present(site, Operand("x", 0, x_size),
                           Operand("w", 1, packed, ("joined" if joined else "dot", outputs_first, w_zero, s.g, 1, width,
                                                    1, 4, 0, w_left), "int8"))
        if joined:
            sums = outputs_first, w_zero, x_zero - (128 if site.x.dtype == "uint8" else 0)
            operands += (Operand("b", 2, G * OC, ("joined_bias", *sums), also=(1,)) if s.bias else
                         Operand("b", 1, G * OC, ("joined_sums", *sums), "int32"),)
        else:
            operands += present(site, Operand("b", 2, G * OC))
        if w_left:
            operands += (Operand("zero", 1, 1, ("dot_skew", w_zero), "int32"),)
        close = closing(site, zeros, outputs_first)
        takes_over, down = in_place(site, s, single)
        bias = s.bias or joined
        parameters = TriplesParameters(*s.window, bias, site.x.c_type, "int8_t", x_zero, site.y.c_type,
                                       "i8" if site.x.dtype == "int8" else "u8", single, flat,
                                       "OC > IC" if site.compact and takes_over else "1" * down, w_left != 0, joined,
                                       close)
        name = ("single" if single else "triples") + "_flat" * flat + "_down" * (down and not site.compact)
        name += in_place_name(s, single, takes_over)
        return Lowered("dsp/triples", parameters, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G, operation + "_bias" * bias + zero_name(x_zero),
                       name + "_weight_zero" * (w_left != 0) + "_joined" * joined + close.name,
                       takes_over=takes_over, scratch=gathered + (0 if single else (3 if joined else 6) * depth),
                       channels=G * OC)

    @staticmethod
    def cycles(s: Geometry) -> float:
        """Estimates the cycles of all images, if all extents are known."""
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 4)
        return 300 + s.g * pixels * (2 * depth + 20 + s.oc * (0.95 * depth + 20))


def _joins(site: Site, zeros: tuple[int, int], outputs_first: bool) -> bool:
    """Returns whether two weights fit in an int16, and sums times 256 in an int32."""
    if packed_zero(site.inputs[1].dtype, zeros[1]) or not is_narrow(site, zeros[1]):
        return False
    most = greatest_sum(site, zeros, outputs_first)
    return most is not None and most < _JOINED_LIMIT


class DspConv(DspProducts, PixelConv):
    """Computes convolutions."""


class DspMatMul(DspProducts, PixelMatMul):
    """Computes products with a constant matrix."""
