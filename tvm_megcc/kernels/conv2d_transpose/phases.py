# SPDX-License-Identifier: Apache-2.0
"""The kernels of transposed convolution of floats: `phases` in blocks of channels, `sums` for few output channels,
`plain` for what they refuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import ceildiv, product, round_up
from ...ir.types import PLAIN
from ..base import CALL, FALLBACK_CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair, present
from ..conv2d.geometry import ConvParameters, Geometry, blocked
from ..site import Site
from ..tiling import Tiling


@dataclass(frozen=True)
class PhasesParameters(ConvParameters):
    """Parameters of `phases.c.j2`.

    depthwise: whether each output channel has one input channel, the one with its number.
    sums: whether lanes hold input channels.
    pixels, vectors: outputs and vectors of channels of a tile.
    """

    depthwise: bool
    sums: bool
    pixels: int
    vectors: int


def _geometry(site: Site) -> Geometry:
    """Returns the geometry of a transposed convolution: ih and iw are of x, oh and ow of y."""
    attrs, (n, ic, ih, iw), (_, oc, kh, kw) = site.attrs, site.x.shape, site.inputs[1].shape
    return Geometry(n, attrs.groups, ic // attrs.groups, ih, iw, oc, *site.y.shape[2:], kh, kw, tuple(attrs.strides),
                    tuple(attrs.dilations), tuple(attrs.pads), site.has(2))


class PhasesTransposedConv(Kernel):
    """Transposed convolution as one convolution of stride 1 for each phase, in register tiles. A phase is the outputs
    of a row that are a stride apart: the same taps reach all of them, from neighbouring inputs."""

    name = "phases"
    dtypes, static = (FLOAT32,), (1,)
    fuses_epilogue = True
    constants = (1, 2)

    def layouts(self, site):
        yield layout_pair(site, blocked(site.target))

    @staticmethod
    def _is_depthwise(site: Site) -> bool:
        return 1 < site.attrs.groups == site.x.shape[1] and site.inputs[1].shape[1] == 1

    def refuse(self, site):
        lanes, groups = site.isa.lanes, site.attrs.groups
        if groups > 1 and not self._is_depthwise(site) \
                and (site.inputs[1].shape[0] // groups % lanes or site.inputs[1].shape[1] % lanes):
            return f"groups of {site.inputs[1].shape[0] // groups} channels are no whole vectors"
        return None

    def lower(self, site):
        s, lanes, depthwise = _geometry(site), site.isa.lanes, self._is_depthwise(site)
        prefix, packing = "grouped_" if s.g > 1 else "", ("conv_iohw", lanes, s.g)
        if depthwise:
            # Groups of one channel become one group of a depthwise convolution.
            prefix, packing, s = "depthwise_", ("taps", lanes), replace(s, g=1, ic=s.g, oc=s.g)
        extents = s.extents(s.oh, s.ow)
        N, G, IC, IH, IW, OC, OH, OW, *_ = extent_symbols(*extents)
        weights = round_up(OC, lanes) * (1 if depthwise else G * IC) * s.taps
        operands = present(site, Operand("x", 0, N * G * round_up(IC, lanes) * IH * IW),
                           Operand("w", 1, weights, packing),
                           Operand("b", 2, round_up(G * OC, lanes), ("channel", lanes)))
        tiling = Tiling.of(site.isa)
        outputs = -(-s.ow // s.strides[1]) if isinstance(s.ow, int) and not site.compact else None
        # Depthwise tiles load the weights of a tap when they multiply by them, so no weights stay in registers.
        tile = (tiling.max_window_pixels(taps=0), 1) if depthwise else tiling.compact_tile(outputs)
        columns = tile[0] + (s.kw - 1) * s.dilations[1] // s.strides[1]
        # 12: bytes of a `phase_tap`.
        scratch = 4 * s.kh * columns * (lanes if depthwise else round_up(IC, lanes)) + 12 * s.taps
        return Lowered(
            "conv2d_transpose/phases", PhasesParameters(*s.window, s.bias, depthwise, False, *tile), extents,
            operands, (Operand("y", 0, N * G * round_up(OC, lanes) * OH * OW),),
            N * G * OH * (1 if depthwise else ceildiv(OC, 16)),
            prefix + s.name("conv2d_transpose"), "phases", scratch=scratch, channels=round_up(G * OC, lanes))

    def cost(self, site):
        lanes, (_, oc, kh, kw) = site.isa.lanes, site.inputs[1].shape
        if self._is_depthwise(site):
            # 2: the multiply-add of a vector, with its loads, for each tap that reads an input.
            return CALL + 2.0 * site.x.stored * kh * kw / lanes
        # A multiply-add for each vector of output channels, and 0.8 for the load of x; each result is stored once.
        return CALL + site.x.size * kh * kw * (ceildiv(oc, lanes) + 0.8) + 2 * site.y.stored / lanes


class SumsTransposedConv(Kernel):
    """Transposed convolution to few channels, by phases: lanes hold input channels, and y is plain."""

    name = "sums"
    dtypes, static = (FLOAT32,), (1,)
    fuses_epilogue = True
    constants = (1, 2)

    def layouts(self, site):
        yield layout_pair(site, blocked(site.target), PLAIN)

    def refuse(self, site):
        lanes = site.isa.lanes
        if lanes == 1:
            return "has nothing to gain without vectors"
        if site.attrs.groups > 1 or site.x.shape[1] % lanes:
            return "takes one group of whole vectors of channels"
        return None

    def reorders_sums(self, site):
        return True

    def lower(self, site):
        s = _geometry(site)
        extents = s.extents(s.oh, s.ow)
        N, IC, IH, IW, OC, OH, OW = extent_symbols("N", "IC", "IH", "IW", "OC", "OH", "OW")
        operands = present(site, Operand("x", 0, N * IC * IH * IW),
                           Operand("w", 1, OC * s.taps * IC, ("conv_oyxi",)), Operand("b", 2, OC))
        outputs = -(-s.ow // s.strides[1]) if isinstance(s.ow, int) and not site.compact else None
        pixels, _ = Tiling.of(site.isa).compact_tile(outputs)
        columns = pixels + (s.kw - 1) * s.dilations[1] // s.strides[1]
        return Lowered(
            "conv2d_transpose/phases", PhasesParameters(*s.window, s.bias, False, True, pixels, 1), extents, operands,
            (Operand("y", 0, N * OC * OH * OW),), N * OC * OH, "sums_" + s.name("conv2d_transpose"), self.name,
            scratch=4 * (s.kh * columns * IC + OW) + 12 * s.taps, channels=OC)

    def cost(self, site):
        lanes, (_, oc, kh, kw) = site.isa.lanes, site.inputs[1].shape
        # A multiply-add for each vector of input channels, with its load; 8: the sum of the lanes of a result.
        return CALL + 1.3 * site.x.size * kh * kw * oc / lanes + 8 * site.y.size


class PlainTransposedConv(Kernel):
    """Any transposed convolution in plain layout with unpacked weights: slow, but it accepts what `phases` refuses."""

    name = "plain"
    dtypes, static = (FLOAT32,), (1,)
    fuses_epilogue = True

    def lower(self, site):
        s = _geometry(site)
        extents = s.extents(s.oh, s.ow)
        N, G, IC, IH, IW, OC, OH, OW, *_ = extent_symbols(*extents)
        operands = present(site, Operand("x", 0, N * G * IC * IH * IW), Operand("w", 1, G * IC * OC * s.taps),
                           Operand("b", 2, G * OC))
        return Lowered("conv2d_transpose/plain", ConvParameters(*s.window, s.bias), extents, operands,
                       (Operand("y", 0, N * G * OC * OH * OW),), N * G * OC * OH, s.name("conv2d_transpose"), "plain",
                       channels=G * OC)

    def cost(self, site):
        # 4: a multiply-add of one element, with its address.
        return FALLBACK_CALL + 4.0 * site.x.size * product(site.inputs[1].shape[1:])
