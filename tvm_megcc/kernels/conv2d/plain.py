# SPDX-License-Identifier: Apache-2.0
"""The kernel `plain` of conv2d: convolution of floats by its definition."""

from __future__ import annotations

from ...ir.dims import product
from ..base import FALLBACK_CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from .geometry import ConvParameters, Geometry


class PlainConv(Kernel):
    """Any convolution in plain layout with unpacked weights. It is slow; it accepts what other kernels refuse."""

    name = "plain"
    dtypes = (FLOAT32,)
    fuses_epilogue = True

    def lower(self, site):
        s = Geometry.of(site)
        extents = s.extents(s.oh, s.ow)
        N, G, IC, IH, IW, OC, OH, OW, *_ = extent_symbols(*extents)
        operands = present(site, Operand("x", 0, N * G * IC * IH * IW), Operand("w", 1, G * OC * IC * s.taps),
                           Operand("b", 2, G * OC))
        return Lowered("conv2d/plain", ConvParameters(*s.window, s.bias), extents, operands,
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH, s.name(), "plain", channels=G * OC)

    def cost(self, site):
        s = Geometry.of(site)
        # 4: a multiply-add of one element, with its loads and its address.
        return FALLBACK_CALL + 4.0 * product((s.n, s.g, s.oc, s.oh, s.ow, s.ic, s.taps))
