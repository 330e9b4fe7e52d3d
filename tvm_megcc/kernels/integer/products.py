# SPDX-License-Identifier: Apache-2.0
"""The base classes of kernels with 8-bit operands and constant weights, and of their parameters. Products of matrices
share code with convolutions: the rows of a matrix are the pixels of a 1x1 convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import Dim, product
from ...ir.types import NHWC
from ...ops.quantized.conv_matmul import INT8_TYPES
from ..base import Kernel, Lowered, extent_symbols, layout_pair
from ..conv2d.geometry import ConvParameters, Geometry
from ..site import Site


@dataclass(frozen=True)
class ByteParameters(ConvParameters):
    """Parameters that the templates of 8-bit convolutions share.

    unit, weight: the C types of an element of x and of a weight.
    x_zero: the zero point of x.
    """

    unit: str
    weight: str
    x_zero: int


class ConstantWeights(Kernel):
    """The base class of kernels with constant weights, int32 sums and an epilogue on them."""

    dtypes: tuple[tuple[str, ...], ...] = (INT8_TYPES, INT8_TYPES, ("int32",))
    fuses_epilogue = True
    lane_kind = "i"  # its epilogue works on int32
    #: The weights and the bias.
    constants = (1, 2)


class ChannelsLast(ConstantWeights):
    """The base class of convolutions, channels last."""

    def layouts(self, site: Site):
        yield layout_pair(site, NHWC)


class OneFilterAChannel(ChannelsLast):
    """The base class of depthwise convolutions."""

    def refuse(self, site: Site) -> str | None:
        outputs, per_group, *_ = site.inputs[1].shape
        return None if per_group == 1 and outputs == site.attrs.groups else "needs one filter a channel"

    @staticmethod
    def extents(s: Geometry) -> dict[str, Dim]:
        """Returns the extents of a call."""
        return {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0], "PL": s.pads[1]}


class IntegerProducts(ConstantWeights):
    """The base class of algorithms that compute convolutions and products of matrices.

    An algorithm implements these three methods in a subclass. Its two kernels inherit from that subclass, and from
    `IntegerConv` or `IntegerMatMul`.
    """

    def unable(self, site: Site, s: Geometry, w_zero: int) -> str | None:
        """Returns why the kernel does not support this CPU or these weights; None if it does."""
        return None

    def call(self, site: Site, s: Geometry, zeros: tuple[int, int], outputs_first: bool, operation: str) -> Lowered:
        """Returns the call. zeros: zero points of x and of the weights. outputs_first: a weight matrix is [O, I]."""
        raise NotImplementedError

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        """Estimates the cycles of all images, if all extents are known."""
        raise NotImplementedError


class IntegerConv(IntegerProducts, ChannelsLast):
    """The base class of convolutions, channels last."""

    def refuse(self, site: Site) -> str | None:
        return self.unable(site, Geometry.of(site), site.attrs.w_zero)

    def lower(self, site: Site) -> Lowered:
        s = Geometry.of(site)
        # Algorithms append "_bias" to the name of the operation by themselves.
        return self.call(site, s, (site.attrs.x_zero, site.attrs.w_zero), outputs_first=True,
                         operation=replace(s, bias=False).name("conv2d_integer"))

    def cost(self, site: Site) -> float:
        return self.cycles(site, Geometry.of(site), site.attrs.w_zero, outputs_first=True)


class IntegerMatMul(IntegerProducts):
    """The base class of products with a constant matrix on the right."""

    def refuse(self, site: Site) -> str | None:
        if site.inputs[1].rank != 2:
            return "the second operand must be one matrix"
        if site.attrs.trans_a:
            return "the first operand must not be transposed"
        return self.unable(site, _as_convolution(site), site.attrs.b_zero)

    def lower(self, site: Site) -> Lowered:
        return self.call(site, _as_convolution(site), (site.attrs.a_zero, site.attrs.b_zero),
                         outputs_first=bool(site.attrs.trans_b), operation="matmul_integer")

    def cost(self, site: Site) -> float:
        return self.cycles(site, _as_convolution(site), site.attrs.b_zero, outputs_first=bool(site.attrs.trans_b))


def _as_convolution(site: Site) -> Geometry:
    """Returns a product of matrices as a 1x1 convolution of one row of pixels."""
    rows, columns = product(site.y.shape[:-1]), site.y.shape[-1]
    depth = site.inputs[1].shape[-1 if site.attrs.trans_b else -2]
    return Geometry(n=1, g=1, ic=depth, ih=1, iw=rows, oc=columns, oh=1, ow=rows, kh=1, kw=1, strides=(1, 1),
                    dilations=(1, 1), pads=(0, 0, 0, 0), bias=site.has(2))


def pixel_extents(s: Geometry) -> tuple[Dim, dict[str, Dim], Dim, Dim]:
    """Returns (pixels, extents of the call, elements of x, elements of y), the latter two over the extents.

    Tasks divide the pixels of one image of the output. If windows are 1x1 (`is_pointwise`), these are the pixels of all
    images, which are contiguous, and the extent N is their number.
    """
    N, G, IC, IH, IW, OC, OH, OW = extent_symbols("N", "G", "IC", "IH", "IW", "OC", "OH", "OW")
    if s.is_pointwise:
        pixels = s.n * s.oh * s.ow
        return pixels, {"N": pixels, "G": s.g, "IC": s.ic, "OC": s.oc}, N * G * IC, N * G * OC
    return s.oh * s.ow, s.extents(s.oh, s.ow), N * IH * IW * G * IC, N * OH * OW * G * OC
