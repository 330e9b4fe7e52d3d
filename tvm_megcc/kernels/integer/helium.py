# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of int8 by Helium: sixteen products at a time, of two pixels and three columns of weights
or a pixel and six; of one filter a channel, eight channels at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import product, round_up
from ..base import Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, Geometry
from ..packing import packer
from ..site import Site
from .channels import OneFilterAChannel
from .dot import with_sums, zero_name
from .pixels import PixelConv, PixelMatMul, PixelProducts, pixel_extents
from .rescaled import Closing, closing

_INT8 = ("int8",)


@dataclass(frozen=True)
class HeliumParameters(ConvParameters):
    """Of `helium.c.j2`. x_zero: zero point of x. single: a pixel and six channels at a time. flat: windows are
    pixels, without padding. close: the epilogue."""

    x_zero: int
    single: bool
    flat: bool
    close: Closing


def _close(site: Site, zeros: tuple[int, int], outputs_first: bool) -> Closing:
    return closing(site, zeros, outputs_first, of_any=True) if site.y.dtype == "int8" else Closing()


class HeliumProducts(PixelProducts):
    """What both kernels share."""

    name = "helium"
    dtypes = (_INT8, _INT8, ("int32",))

    @staticmethod
    def unable(site: Site, w_zero: int) -> str | None:
        if not site.isa.helium:
            return "for cores with Helium"
        return "weights have a zero point" if w_zero else None

    @staticmethod
    def call(site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """zeros: of x and of the weights. outputs_first: of weights that are a matrix."""
        flat, (x_zero, w_zero) = s.is_pointwise, zeros
        pixels, extents, x_size, y_size = pixel_extents(s)
        single = isinstance(pixels, int) and pixels == 1
        N, G, IC, OC = extent_symbols("N", "G", "IC", "OC")
        depth, width = round_up(IC * s.taps, 16), 6 if single else 3
        operands = present(site, Operand("x", 0, x_size),
                           Operand("w", 1, G * round_up(OC, width) * depth,
                                   ("dot", outputs_first, w_zero, s.g, 1, width, 1, 16), "int8"),
                           Operand("b", 2, G * OC))
        operands = with_sums(site, operands, (outputs_first, w_zero), x_zero, G * OC)
        close = _close(site, zeros, outputs_first)
        parameters = HeliumParameters(*s.window, len(operands) > 2, x_zero, single, flat, close)
        gathered = 0 if flat and s.ic % 16 == 0 else (1 if single else 2) * depth
        return Lowered("integer/helium", parameters, extents, operands, (Operand("y", 0, y_size),),
                       G if flat else N * G, operation + "_bias" * parameters.bias + zero_name(x_zero),
                       "helium" + "_single" * single + "_flat" * flat + close.name, scratch=gathered, channels=G * OC)

    @staticmethod
    def cycles(s: Geometry) -> float:
        """Of one image after another, all extents known."""
        pixels, depth = product((s.n, s.oh, s.ow)), round_up(s.ic * s.taps, 16)
        return 200 + s.g * pixels * (0.4 * depth + 20 + s.oc * (0.13 * depth + 7))


class HeliumConv(HeliumProducts, PixelConv):
    """Convolution."""


class HeliumMatMul(HeliumProducts, PixelMatMul):
    """Product with a constant matrix."""


@dataclass(frozen=True)
class HeliumDepthwiseParameters(ConvParameters):
    """Of `helium_depthwise.c.j2`. x_zero: zero point of x. close: the epilogue."""

    x_zero: int
    close: Closing


@packer("eights")
def pack_eights(array: np.ndarray, zero: int) -> np.ndarray:
    """[C, 1, KH, KW], less the zero point → [C/8][KH, KW][8], zeros behind the last channel."""
    taps = (array.reshape(array.shape[0], -1).astype(np.int32) - zero).astype(np.int8)
    padded = np.pad(taps, ((0, -taps.shape[0] % 8), (0, 0)))
    return np.swapaxes(padded.reshape(-1, 8, taps.shape[1]), 1, 2)


class HeliumDepthwise(OneFilterAChannel):
    """Eight channels at a time, channels last. A task is a row of the result."""

    name = "helium_depthwise"
    dtypes = (_INT8, _INT8, ("int32",))

    def refuse(self, site: Site):
        return super().refuse(site) or HeliumProducts.unable(site, site.attrs.w_zero)

    def lower(self, site: Site) -> Lowered:
        s, zeros = Geometry.of(site), (site.attrs.x_zero, site.attrs.w_zero)
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        extents = {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1]}
        operands = present(site, Operand("x", 0, N * IH * IW * C),
                           Operand("w", 1, round_up(C, 8) * s.taps, ("eights", zeros[1]), "int8"), Operand("b", 2, C))
        operands = with_sums(site, operands, (True, zeros[1]), zeros[0], C)
        close = _close(site, zeros, True)
        parameters = HeliumDepthwiseParameters(*s.window, len(operands) > 2, zeros[0], close)
        return Lowered("integer/helium_depthwise", parameters, extents, operands, (Operand("y", 0, N * OH * OW * C),),
                       N * OH, s.name("depthwise_integer") + zero_name(zeros[0]), "helium" + close.name,
                       scratch=C + 8 * s.taps + 16, channels=C)

    def cost(self, site: Site) -> float:
        s = Geometry.of(site)
        return 200 + product((s.n, s.oh, s.ow)) * (s.taps * 6 + 10 + s.g * (s.taps * 0.8 + 4))
