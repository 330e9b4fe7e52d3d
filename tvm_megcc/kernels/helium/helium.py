# SPDX-License-Identifier: Apache-2.0
"""8-bit convolutions and products by Helium. Sixteen products at a time: two pixels by four columns of weights, or one
pixel by eight. Depthwise: sixteen channels of int8 at a time, or eight of other types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ...ir.types import DTYPES
from ...ops.quantized.conv_matmul import INT8_TYPES
from ..base import CALL, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Geometry
from ..integer.dot import WeightPacking, is_narrow, pack_weights, packed_zero, with_sums, zero_name
from ..integer.products import IntegerConv, IntegerMatMul, IntegerProducts, OneFilterAChannel, pixel_extents
from ..integer.requantize import Requantization, requantization
from ..packing import packer
from ..site import Site


@dataclass(frozen=True)
class HeliumParameters(ConvParameters):
    """Parameters of `helium.c.j2`.

    x_zero: zero point of x.
    packed_zero: zero point that packed weights still have, because int8 cannot hold weights minus theirs; 0 for none.
    unsigned: both operands are uint8.
    to_unsigned: the result is uint8.
    single: one pixel and eight channels at a time.
    flat: 1x1 windows without padding or strides.
    direct: 1x1 windows without padding, with strides.
    requantization: prints the requantization of sums (integer/requantize.py): declare(…) declares `requantize_args`,
        which call(…) reads; if its `kind` is "", store_four(…) prints the stores of another epilogue.
    """

    x_zero: int
    packed_zero: int
    unsigned: bool
    to_unsigned: bool
    single: bool
    flat: bool
    direct: bool
    requantization: Requantization


def _epilogue(site: Site, zeros: tuple[int, int], outputs_first: bool) -> Requantization:
    """Returns the epilogue as a requantization that Helium's functions support, else `Requantization()`."""
    if site.y.dtype not in INT8_TYPES:
        return Requantization()
    epilogue = requantization(site, zeros, outputs_first, any_sum=True)
    # Multiplier and shift must both be per channel, or both single values.
    return epilogue if epilogue.multiplier.endswith("[c]") == epilogue.shift.endswith("[c]") else Requantization()


@packer("dot_unsigned")
def pack_unsigned(array: np.ndarray, *packing) -> np.ndarray:
    """Packs uint8 as `pack_weights` does, with the same bits. packing: the values of `WeightPacking`, with zero 0."""
    return pack_weights(array.view(np.int8), *packing)


class HeliumProducts(IntegerProducts):
    """The base class of `HeliumConv` and `HeliumMatMul`. Products are of two int8 or of two uint8. The zero point of
    the weights, times the sum of a pixel's window, is subtracted from its sums."""

    name = "helium"

    def unable(self, site: Site, s: Geometry, w_zero: int) -> str | None:
        if not site.isa.helium:
            return "for cores with Helium"
        return None if site.x.dtype == site.inputs[1].dtype else "products of int8 and uint8"

    def call(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        flat, (x_zero, w_zero) = s.is_pointwise, zeros
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels == 1
        N, G, IC, OC = extent_symbols("N", "G", "IC", "OC")
        depth, width = round_up(IC * s.taps, 16), 8 if single else 4
        direct = not flat and s.taps == 1 and not any(s.pads)
        unsigned = site.x.dtype == "uint8"
        weight_zero = w_zero if unsigned else packed_zero("int8", w_zero)
        packing = WeightPacking(outputs_first, zero=0 if unsigned else w_zero, groups=s.g, runs=1, lanes=width,
                                vectors=1, step=16)
        weights = Operand("w", 1, G * round_up(OC, width) * depth, ("dot_unsigned" if unsigned else "dot", *packing),
                          "int8")
        operands = present(site, Operand("x", 0, x_size), weights, Operand("b", 2, G * OC))
        operands = with_sums(site, operands, (outputs_first, w_zero), x_zero, G * OC)
        epilogue = _epilogue(site, zeros, outputs_first)
        parameters = HeliumParameters(
            *s.window, bias=len(operands) > 2, x_zero=x_zero, packed_zero=weight_zero, unsigned=unsigned,
            to_unsigned=site.y.dtype == "uint8", single=single, flat=flat, direct=direct, requantization=epilogue)
        # 1 if windows are first copied to scratch, 0 if x is read in place (1x1 windows of whole steps); an expression
        # over IC, so that at -O size layers of both kinds share one kernel.
        copies_window = ceildiv(depth - IC, 16) if flat or direct else 1
        # The copies of windows, bytes [1 or 2 pixels][depth], and 16 that the last load may read after them.
        copied_bytes = copies_window * ((1 if single else 2) * depth + 16)
        return Lowered("helium/helium", parameters, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G,
                       operation + "_bias" * parameters.bias + zero_name(x_zero)
                       + zero_name(weight_zero) * (weight_zero != 0),
                       "helium" + "_unsigned" * unsigned + "_single" * single + "_flat" * flat + "_direct" * direct
                       + epilogue.name,
                       scratch=copied_bytes, channels=G * OC)

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 16)
        gathered = 0 if s.taps == 1 else 0.3 * depth + 10 * s.kh
        # For each pixel: 20, and if its window is copied 0.3 for an element and 10 for a row. For each channel of it
        # 0.12 for a product (of 16 in a vector), 5 to requantize and store.
        return CALL + s.g * pixels * (gathered + 20 + s.oc * (0.12 * depth + 5))


class HeliumConv(HeliumProducts, IntegerConv):
    """Computes convolutions."""


class HeliumMatMul(HeliumProducts, IntegerMatMul):
    """Computes products with a constant matrix."""


@dataclass(frozen=True)
class HeliumDepthwiseParameters(ConvParameters):
    """Parameters of `helium_depthwise.c.j2`.

    x_zero: value of padding, as int8.
    to_unsigned: the result is uint8.
    by_rows: vectors of 16 bytes hold several neighbouring pixels, since there are few channels (helium_rows.c.j2).
    nine_taps: the window has nine taps, whose addresses stay in registers.
    pairs: number of pairs of taps, whose products are added in int16; of taps if `zero_paired` or `widened`.
    zero_paired: a weight may be -128, so each tap is paired with a zero weight: two products might overflow int16.
    widened: suffix of x's type in mgc functions if weights are int16, in blocks of eight channels; else "".
    requantization: prints the requantization of sums (integer/requantize.py): declare(…), call(…).
    """

    x_zero: int
    to_unsigned: bool
    by_rows: bool
    nine_taps: bool
    pairs: int
    zero_paired: bool
    widened: str
    requantization: Requantization


@packer("int8x16")
def pack_int8x16(array: np.ndarray, zero: int, taps: int, zero_paired: bool) -> np.ndarray:
    """Packs [C, 1, KH, KW] minus the zero point as [C/16][taps][16], with zeros after the last channel and the last
    tap; zero_paired: after each tap. Channels are repeated to 16 if their number divides that."""
    channels = array.shape[0]
    packed = np.zeros((-(-channels // 16) * 16, taps), np.int8)
    weights = array.reshape(channels, -1).astype(np.int32) - zero
    step = 2 if zero_paired else 1
    packed[:channels, :weights.shape[1] * step:step] = weights
    if channels < 16 and 16 % channels == 0:  # for pixels that are neighbours
        packed = np.tile(packed[:channels], (16 // channels, 1))
    return np.swapaxes(packed.reshape(-1, 16, taps), 1, 2)


@packer("int16x8")
def pack_int16x8(array: np.ndarray, zero: int) -> np.ndarray:
    """Packs [C, 1, KH, KW] minus the zero point as int16 [C/8][KH, KW][8], with zeros after the last channel. Channels
    are repeated to 8 if their number divides that."""
    channels = array.shape[0]
    packed = array.reshape(channels, -1).astype(np.int16) - np.int16(zero)
    packed = np.tile(packed, (8 // channels, 1)) if 8 % channels == 0 else np.pad(packed, ((0, -channels % 8), (0, 0)))
    return np.swapaxes(packed.reshape(-1, 8, packed.shape[1]), 1, 2)


class HeliumDepthwise(OneFilterAChannel):
    """Depthwise convolution, channels last, sixteen channels at a time. One task computes one row of the result.
    Products of two taps are summed in int16; if a weight is -128, a tap is paired with zeros instead. Other types of x,
    and weights with a zero point, are widened: eight channels at a time."""

    name = "helium_depthwise"

    def refuse(self, site: Site):
        return super().refuse(site) or (None if site.isa.helium else "for cores with Helium")

    def lower(self, site: Site) -> Lowered:
        s, zeros = Geometry.of(site), (site.attrs.x_zero, site.attrs.w_zero)
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        as_bytes = (site.x.dtype, site.inputs[1].dtype, zeros[1]) == ("int8", "int8", 0)
        widened = "" if as_bytes else DTYPES[site.x.dtype].short
        zero_paired = not widened and not is_narrow(site, zeros[1])
        nine_taps = s.taps == 9 and not zero_paired
        pairs = s.taps if zero_paired or widened else -(-s.taps // 2)
        channels, taps = round_up(C, 16), 9 if nine_taps else 2 * pairs
        weights = Operand("w", 1, round_up(C, 8) * s.taps, ("int16x8", zeros[1]), "int16") if widened else \
            Operand("w", 1, channels * taps, ("int8x16", zeros[1], taps, zero_paired), "int8")
        operands = present(site, Operand("x", 0, N * IH * IW * C), weights, Operand("b", 2, C))
        outputs_first = True  # weights are [C, 1, KH, KW]
        operands = with_sums(site, operands, (outputs_first, zeros[1]), zeros[0], C)
        epilogue = _epilogue(site, zeros, outputs_first)
        by_rows = not zero_paired and _fits_rows(s) and epilogue.kind != ""
        # By rows: the weights of nine taps, each repeated to 64 elements of int16 or int8; then three padded rows of
        # bytes, each with 16 more that the last load may read. Otherwise: `padding` [channels], then `tail` [2 *
        # channels], the last elements of x and what a vector that begins in them reads.
        tiled_bytes = 9 * 64 * (2 if widened else 1)
        scratch = tiled_bytes + 3 * ((OW + 2 * s.dilations[1]) * C + 16) if by_rows else 3 * channels
        parameters = HeliumDepthwiseParameters(
            *s.window, bias=len(operands) > 2, x_zero=zeros[0] - 256 if zeros[0] > 127 else zeros[0],
            to_unsigned=site.y.dtype == "uint8", by_rows=by_rows, nine_taps=nine_taps, pairs=pairs,
            zero_paired=zero_paired, widened=widened, requantization=epilogue)
        return Lowered("helium/helium_depthwise", parameters, self.extents(s), operands,
                       (Operand("y", 0, N * OH * OW * C),), N * OH, s.name("depthwise_integer") + zero_name(zeros[0]),
                       "helium" + "_rows" * by_rows + "_zero_paired" * zero_paired + "_wide" * bool(widened)
                       + epilogue.name,
                       scratch=scratch, channels=C)

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        pixels = product((s.n, s.oh, s.ow))
        if _fits_rows(s):
            # By rows (helium_rows.c.j2): 2000 to repeat the weights in vectors, and 10 for an output.
            return 2000 + pixels * s.g * 10
        # For each pixel: 4 for the address of a tap; for each channel 0.65 for a tap, 4 to requantize and store.
        return CALL + pixels * (s.taps * 4 + 20 + round_up(s.g, 16) * (s.taps * 0.65 + 4))


def _fits_rows(s: Geometry) -> bool:
    """Returns whether helium_rows.c.j2 may compute this depthwise convolution: windows are 3x3 of stride 1, and the
    channels divide the 64 elements whose sums are computed together."""
    return (s.kh, s.kw, *s.strides) == (3, 3, 1, 1) and s.g < 64 and 64 % s.g == 0
