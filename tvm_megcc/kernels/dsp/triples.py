# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands on cores with Arm's DSP extension. The windows of three pixels are packed
in turn and multiplied by two columns of weights; all sums stay in registers. If the sums are small enough, weights are
joined as simd/dsp_integer.h says, which takes fewer instructions for the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ..base import PACKING_CALL, Operand, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..integer.dot import WeightPacking, as_outputs, is_narrow, pack_weights, packed_zero
from ..integer.products import IntegerConv, IntegerMatMul
from ..integer.requantize import greatest_sum
from ..packing import packer
from ..site import Site
from .windows import Packed, WindowProducts, WindowsParameters

#: Sums of joined products and their initial values are 256 times as large, so they must stay below 2^31 / 256.
_JOINED_LIMIT = 1 << 23


@dataclass(frozen=True)
class TriplesParameters(WindowsParameters):
    """Parameters of `triples.c.j2`.

    joined: an int16 holds two weights, one of them 256 times as large, so that one instruction unpacks four
        (simd/dsp_integer.h). Sums are 256 times as large until they are requantized.
    """

    joined: bool


@packer("joined")
def pack_joined(array: np.ndarray, *packing) -> np.ndarray:
    """Packs weights as `pack_weights` does, and then each four neighbours k, l, m, n as two int16, -256k + l and
    256m - n: V and W of simd/dsp_integer.h, which says why. packing: the values of `WeightPacking`. Returns int8 of one
    dimension."""
    k, l_, m, n = pack_weights(array, *packing).astype(np.int32).reshape(-1, 4).T
    both = np.stack([l_ - 256 * k, 256 * m - n], axis=1)
    return both.astype("<i2").view(np.int8).reshape(-1)


@packer("joined_sums")
def pack_joined_sums(array: np.ndarray, outputs_first: bool, zero: int, x_zero: int) -> np.ndarray:
    """Returns int32 [O]: the initial values of sums of joined products. x_zero: the zero point of x as int8. The first
    and the third of four elements of x have 128 added (mgc_join3), so 128 times their weights are subtracted."""
    weights = as_outputs(array, outputs_first)
    filters = np.moveaxis(weights, 1, 3).reshape(weights.shape[0], -1).astype(np.int64) - zero
    return (256 * (-x_zero * filters.sum(axis=1) - 128 * filters[:, ::2].sum(axis=1))).astype(np.int32)


@packer("joined_bias")
def pack_joined_bias(bias: np.ndarray, array: np.ndarray, *how) -> np.ndarray:
    """Returns the initial values with the bias; int32 wraps."""
    return (256 * bias.reshape(-1).astype(np.int64) + pack_joined_sums(array, *how)).astype(np.int32)


class DspProducts(WindowProducts):
    """The base class of `DspConv` and `DspMatMul`."""

    name = "triples"
    parameters = TriplesParameters
    shares_directions = True  # at -O size, kernels choose at run time from which end they run (windows.py)

    def unable(self, site: Site, s: Geometry, w_zero: int) -> str | None:
        return None if site.isa.dsp else "for cores with Arm's DSP extension"

    def packed(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, x: Operand,
               single: bool) -> Packed:
        """Returns the parts of a call. A task packs three windows in scratch; a single pixel is multiplied as it is."""
        x_zero, w_zero = zeros
        G, IC, OC = extent_symbols("G", "IC", "OC")
        depth, width, rows = round_up(IC * s.taps, 4), 4 if single else 2, 1 if single else 3
        # 1 if windows are first copied to scratch, 0 if x is read in place: 1x1 windows whose channels are a multiple
        # of 4, so that depth - IC (0 to 3) is 0. An expression over IC lets both kinds share a kernel at -O size.
        copies_window = ceildiv(depth - IC, 4) if s.is_pointwise else 1
        # Rows are padded to a multiple of 4 elements. The padding of x is not initialised; that of the weights is their
        # zero point, so that whatever x holds there adds nothing to the result.
        padding = packed_zero(site.inputs[1].dtype, w_zero)
        joined = _joins(site, zeros, outputs_first)
        packing = WeightPacking(outputs_first, w_zero, groups=s.g, runs=1, lanes=width, vectors=1, step=4,
                                padding=padding)
        packer_name = "joined" if joined else "dot"
        operands = x, Operand("w", 1, G * round_up(OC, width) * depth, (packer_name, *packing), "int8")
        if joined:
            sums = outputs_first, w_zero, x_zero - (128 if site.x.dtype == "uint8" else 0)
            operands += (Operand("b", 2, G * OC, ("joined_bias", *sums), also=(1,)) if s.bias else
                         Operand("b", 1, G * OC, ("joined_sums", *sums), "int32"),)
        else:
            operands += present(site, Operand("b", 2, G * OC))
        # Scratch: packed elements [depth][3], then copies of the windows, bytes [rows][depth], if they are copied.
        # mgc_pack3 makes int16 of the elements of three pixels; mgc_join3 copies their bytes.
        packed_bytes = 0 if single else (3 if joined else 6) * depth
        return Packed(operands, {"joined": joined}, copies_window * rows * depth + packed_bytes, "_joined" * joined)

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 4)
        # Rough cycles (`Kernel.cost`) for each pixel: 2 to pack an element, and 20; for each output channel of it
        # 0.95 for a product, 20 to requantize and store.
        return PACKING_CALL + s.g * pixels * (2 * depth + 20 + s.oc * (0.95 * depth + 20))


def _joins(site: Site, zeros: tuple[int, int], outputs_first: bool) -> bool:
    """Returns whether two weights fit in an int16, and sums times 256 in an int32."""
    if packed_zero(site.inputs[1].dtype, zeros[1]) or not is_narrow(site, zeros[1]):
        return False
    greatest = greatest_sum(site, zeros, outputs_first)
    return greatest is not None and greatest < _JOINED_LIMIT


class DspConv(DspProducts, IntegerConv):
    """Computes convolutions."""


class DspMatMul(DspProducts, IntegerMatMul):
    """Computes products with a constant matrix."""
