# SPDX-License-Identifier: Apache-2.0
"""Convolution as its definition says."""

from __future__ import annotations

from ...ir.dims import product
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from .geometry import Geometry, WindowParameters, has_bias


class PlainConv(Kernel):
    """Any convolution in plain layout, weights as they are: slow, and always there."""

    name = "plain"
    dtypes = (FLOAT32,)
    fuses_epilogue = True

    def lower(self, site):
        s = Geometry.of(site)
        bias = has_bias(site.op)
        names = ("N", "G", "IC", "IH", "IW", "OC", "OH", "OW", "PT", "PL")
        values = (s.n, s.g, s.ic, s.ih, s.iw, s.oc, s.oh, s.ow, *s.pads[:2])
        N, G, IC, IH, IW, OC, OH, OW = extent_symbols(*names[:8])
        operands = [Operand("x", 0, N * G * IC * IH * IW), Operand("w", 1, G * OC * IC * s.taps)]
        if bias:
            operands.append(Operand("b", 2, G * OC))
        return Lowered("conv2d/plain",
                       WindowParameters(*s.window, bias),
                       dict(zip(names, values, strict=True)), tuple(operands),
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH, s.name(bias=bias), "plain",
                       channels=G * OC)

    def cost(self, site):
        s = Geometry.of(site)
        if not s.is_static:
            return float(s.ic * s.oc * 1000)
        return 1000 + 4.0 * product((s.n, s.g, s.oc, s.oh, s.ow, s.ic, s.taps))
