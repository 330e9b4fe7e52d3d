# SPDX-License-Identifier: Apache-2.0
"""Convolution of 8-bit operands with one filter a channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import product
from ...ir.types import DTYPES, NHWC
from ..base import Kernel, Lowered, Operand, around, extent_symbols, present
from ..conv2d.geometry import Geometry
from ..packing import packer
from ..site import Site
from .dot import BYTES, ByteParameters, weight_type, zero_name


@dataclass(frozen=True)
class DepthwiseParameters(ByteParameters):
    """Of `depthwise.c.j2`. x_short: what functions of lanes call an element of x. vectors: of channels at a time."""

    x_short: str
    vectors: int


@packer("depthwise_bytes")
def pack_depthwise(array: np.ndarray, zero: int) -> np.ndarray:
    """[C, 1, KH, KW], less the zero point → [KH, KW, C]."""
    return np.moveaxis((array[:, 0].astype(np.int32) - zero).astype(weight_type(array.dtype.name, zero)), 0, -1)


class DepthwiseBytes(Kernel):
    """Vectors of channels, channels last: all taps of a pixel, then the next."""

    name = "depthwise"
    dtypes = (BYTES, BYTES, ("int32",))
    fuses_epilogue, lanes = True, "i"
    constants = (1, 2)

    def layouts(self, site: Site):
        yield around(site, NHWC)

    def refuse(self, site: Site):
        outputs, per_group = site.inputs[1].shape[:2]
        return None if per_group == 1 and outputs == site.attrs.groups else "needs one filter a channel"

    def lower(self, site: Site) -> Lowered:
        s = Geometry.of(site)
        zero, weight = site.attrs.x_zero, weight_type(site.inputs[1].dtype, site.attrs.w_zero)
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        extents = {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1]}
        operands = present(site, Operand("x", 0, N * IH * IW * C),
                           Operand("w", 1, C * s.taps, ("depthwise_bytes", site.attrs.w_zero), weight),
                           Operand("b", 2, C))
        vectors = min(-(-s.g // site.isa.lanes), 4 if site.isa.lanes > 1 else 1)
        parameters = DepthwiseParameters(*s.window, s.bias, site.x.c_type, DTYPES[weight].c_type,
                                         zero, DTYPES[site.x.dtype].short, vectors)
        return Lowered("integer/depthwise", parameters, extents, operands,
                       (Operand("y", 0, N * OH * OW * C),), N * OH, s.name("depthwise_integer") + zero_name(zero),
                       f"channels_{vectors}v", channels=C)

    def cost(self, site: Site) -> float:
        s = Geometry.of(site.likely)
        return 200 + product((s.n, -(-s.g // site.isa.lanes), s.oh, s.ow)) * (s.taps * 3.0 + 6)
