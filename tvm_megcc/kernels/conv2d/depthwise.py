# SPDX-License-Identifier: Apache-2.0
"""The kernel `depthwise`: depthwise convolution of floats by vectors of channels."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ...ir.types import NHWC
from ..base import CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair, present
from ..parameters import Scope
from ..tiling import Tiling
from .depthwise_tile import DepthwiseTile
from .geometry import ConvParameters, Geometry, blocked


@dataclass(frozen=True)
class DepthwiseParameters(ConvParameters):
    """Parameters of `depthwise.c.j2`. vpad, hpad, tiling: as in `DirectParameters`. channels_last: whether the layout
    is nhwc, not nchwc."""

    vpad: bool
    hpad: bool
    tiling: Tiling
    channels_last: bool

    def microkernel(self, scope: Scope) -> DepthwiseTile:
        return DepthwiseTile(self, scope)


class DepthwiseConv(Kernel):
    """Depthwise convolution by vectors of channels. In blocks, the weights of a channel stay in registers along a row,
    if they fit."""

    name = "depthwise"
    dtypes = (FLOAT32,)
    float16 = True
    fuses_epilogue = True
    constants = (1, 2)

    def layouts(self, site):
        yield layout_pair(site, NHWC)
        yield layout_pair(site, blocked(site.target))

    def refuse(self, site):
        filters, filter_channels = site.inputs[1].shape[:2]
        if filter_channels != 1 or filters != site.attrs.groups:
            return "needs one filter a channel"
        return None

    def lower(self, site):
        s, lanes = Geometry.of(site), site.isa.lanes
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        blocks, channels_last = ceildiv(C, lanes), site.x.layout == NHWC
        channels, tasks = (C, N * OH) if channels_last else (blocks * lanes, N * blocks * OH)
        extents = {"N": s.n, "C": s.g, "IH": s.ih, "IW": s.iw, "OH": s.oh, "OW": s.ow, "PT": s.pads[0],
                   "PL": s.pads[1]}
        operands = present(site, Operand("x", 0, N * channels * s.area(IH, IW, OH, OW)),
                           Operand("w", 1, blocks * lanes * s.taps, ("taps", lanes)),
                           Operand("b", 2, blocks * lanes, ("channel", lanes)))
        # Scratch: a row of zeros, float32 [IW][lanes], which windows read above and below x.
        return Lowered(
            "conv2d/depthwise",
            DepthwiseParameters(*s.window, s.bias, s.vpad, s.hpad, Tiling.of(site.isa), channels_last),
            extents, operands, (Operand("y", 0, N * channels * OH * OW),), tasks,
            "depthwise_" + s.name(x_nhwc=channels_last, vpad=s.vpad, hpad=s.hpad), "rows",
            scratch=4 * lanes * IW if s.vpad and not channels_last else 0, channels=blocks * lanes)

    def cost(self, site):
        s = Geometry.of(site)
        # For each vector of outputs: 1.3 for a tap, with its loads, and 2 for the bias and the store.
        vector = s.taps * 1.3 + 2
        if site.x.layout == NHWC:
            # Each tile loads the weights again (1.1 was measured with AVX-512). RISC-V (`isa.wide`) has tiles in
            # assembler for blocks only.
            vector *= 1.1 if site.isa.lanes > 1 and not site.isa.wide else 1.7
        return CALL + s.n * -(-s.g // site.isa.lanes) * s.oh * s.ow * vector
