# SPDX-License-Identifier: Apache-2.0
"""Code for kernels of 8-bit operands whose template computes convolutions, channels last, and matrix products: the rows
of a matrix are the pixels of a 1x1 convolution."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dims import Dim
from ...ir.types import NHWC
from ..base import Kernel, Lowered, extent_symbols, layout_pair
from ..conv2d.geometry import Geometry
from ..site import Site
from .dot import _rows


class PixelProducts(Kernel):
    """The base class. One task computes one group of an image, or if windows are 1x1, of all images."""

    fuses_epilogue, lanes = True, "i"
    constants = (1, 2)

    @staticmethod
    def unable(site: Site, w_zero: int) -> str | None:
        """Returns why the kernel does not support this CPU or these weights; None if it does."""
        raise NotImplementedError

    @staticmethod
    def call(site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """Returns the call. zeros: zero points of x and of the weights. outputs_first: a weight matrix is [O, I]."""
        raise NotImplementedError

    @staticmethod
    def cycles(s: Geometry) -> float:
        """Estimates the cycles of all images, if all extents are known."""
        raise NotImplementedError


class PixelConv(PixelProducts):
    """The base class of convolutions, channels last."""

    def layouts(self, site: Site):
        yield layout_pair(site, NHWC)

    def refuse(self, site: Site):
        return self.unable(site, site.attrs.w_zero)

    def lower(self, site: Site) -> Lowered:
        s = Geometry.of(site)
        return self.call(site, s, (site.attrs.x_zero, site.attrs.w_zero), True,
                         replace(s, bias=False).name("conv2d_integer"))

    def cost(self, site: Site) -> float:
        return self.cycles(Geometry.of(site))


class PixelMatMul(PixelProducts):
    """The base class of products with a constant matrix on the right."""

    def refuse(self, site: Site):
        if site.inputs[1].rank != 2:
            return "the second operand must be one matrix"
        if site.attrs.trans_a:
            return "the first operand must not be transposed"
        return self.unable(site, site.attrs.b_zero)

    def lower(self, site: Site) -> Lowered:
        return self.call(site, _rows(site), (site.attrs.a_zero, site.attrs.b_zero), bool(site.attrs.trans_b),
                         "matmul_integer")

    def cost(self, site: Site) -> float:
        return self.cycles(_rows(site))


def in_place(site: Site, s: Geometry, single: bool) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Returns (`Lowered.takes_over`, down): whether y may begin where x does, and whether the loop must then run from
    the last pixel to the first. Inputs of a few pixels are packed before results are written, so no result may
    overwrite a pixel that is read later."""
    is_known = isinstance(s.ic, int) and isinstance(s.oc, int)
    if single or not s.is_pointwise or site.y.itemsize != 1 or not is_known or (s.g > 1 and s.ic != s.oc):
        return (), False
    return ((0, 0),), s.oc > s.ic


def in_place_name(s: Geometry, single: bool, takes_over: tuple) -> str:
    """Returns a part of the name for kernels of groups whose y may not begin where x does."""
    return "_not_in_place" if s.is_pointwise and s.g != 1 and not single and not takes_over else ""


def pixel_extents(s: Geometry) -> tuple[Dim, dict[str, Dim], Dim, Dim]:
    """Returns (pixels of a task, extents of the call, elements of x, elements of y), the latter over the extents."""
    N, G, IC, IH, IW, OC, OH, OW = extent_symbols("N", "G", "IC", "IH", "IW", "OC", "OH", "OW")
    if s.is_pointwise:
        pixels = s.n * s.oh * s.ow
        return pixels, {"N": pixels, "G": s.g, "IC": s.ic, "OC": s.oc}, N * G * IC, N * G * OC
    return s.oh * s.ow, s.extents(s.oh, s.ow), N * IH * IW * G * IC, N * OH * OW * G * OC
