# SPDX-License-Identifier: Apache-2.0
"""Deformable convolution: the taps of a window are displaced by offsets from a tensor. Kernel `tiles` for vectors,
`windows` for what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from ...ir.dims import Dim, ceildiv, product, round_up
from ...ir.types import NHWC, Layout
from ..base import FLOAT32, PACKING_CALL, Kernel, Lowered, Operand, extent_symbols, layout_pair, present
from ..conv2d.geometry import ConvParameters, window_name
from ..packing import BLOCK
from ..site import Site
from ..tiling import ANY_ROW, Tiling, equal_parts


@dataclass(frozen=True)
class DeformParameters(ConvParameters):
    """Parameters of `deform_conv.c.j2`.

    groups: the number of groups of channels.
    offset_groups: the number of groups of channels that share offsets.
    mask: whether there is a mask.
    """

    groups: int
    offset_groups: int
    mask: bool


@dataclass(frozen=True)
class TilesParameters(DeformParameters):
    """Parameters of `deform_conv_tiles.c.j2`.

    pixels, vectors: outputs and vectors of channels of a tile.
    """

    pixels: int
    vectors: int


def _deform_parameters(site: Site) -> DeformParameters:
    attrs, (kh, kw) = site.attrs, site.inputs[1].shape[2:]
    return DeformParameters(kh, kw, *attrs.strides, *attrs.dilations, bias=site.has(3), groups=attrs.groups,
                            offset_groups=attrs.offset_groups, mask=site.has(4))


def _extents(site: Site) -> dict[str, Dim]:
    (n, c, ih, iw), (_, oc, oh, ow), (top, left, *_) = site.x.shape, site.y.shape, site.attrs.pads
    return {"N": n, "C": c, "IH": ih, "IW": iw, "OC": oc, "OH": oh, "OW": ow, "PT": top, "PL": left}


def _operation(p: DeformParameters) -> str:
    return f"deform_conv_{window_name((p.kh, p.kw), (p.sh, p.sw), (p.dh, p.dw))}_g{p.groups}o{p.offset_groups}" \
        + "_bias" * p.bias + "_mask" * p.mask


class TilesDeformConv(Kernel):
    """Gathers the windows of several neighbouring outputs into scratch and multiplies them by the filters in register
    tiles, so that a weight is loaded once for all of them."""

    name = "tiles"
    dtypes = (FLOAT32,)
    fuses_epilogue = True
    constants = (1, 3)
    static = (1,)  # the extents of the weights

    def layouts(self, site: Site) -> Iterable[tuple[tuple[Layout, ...], tuple[Layout, ...]]]:
        yield layout_pair(site, NHWC)

    def refuse(self, site: Site) -> str | None:
        groups, (outputs, channels) = site.attrs.groups, site.inputs[1].shape[:2]
        if site.isa.lanes == 1:
            return "has nothing to gain without vectors"
        if site.target.bare_metal:
            return "needs scratch for several windows, too much for a microcontroller"
        if groups > 1 and (channels % BLOCK or outputs // groups % site.isa.lanes):
            return f"groups of {channels} channels to {outputs // groups} are no whole blocks of {BLOCK} and vectors"
        return None

    def reorders_sums(self, site: Site) -> bool:
        return True

    @staticmethod
    def _tile(site: Site) -> tuple[int, int]:
        """Returns (outputs, vectors of channels) of the tile, which lies within a block of weights."""
        tiling, lanes, outputs = Tiling.of(site.isa), site.isa.lanes, product(site.y.shape[2:])
        channels = site.inputs[1].shape[0] // site.attrs.groups
        row = outputs if isinstance(outputs, int) and not site.compact else ANY_ROW
        vectors = min((v for v in tiling.tile_vectors() if v * lanes <= BLOCK),
                      key=lambda v: (tiling.total_cost(row, channels, v), -v))
        # A block of 16 outputs has 17 loads for 16 products of vectors: taller tiles gain nothing.
        return equal_parts(row, min(tiling.max_pixels(vectors), BLOCK))[0][0], vectors

    def lower(self, site: Site) -> Lowered:
        params, lanes = _deform_parameters(site), site.isa.lanes
        taps, groups = params.kh * params.kw, params.groups
        pixels, vectors = self._tile(site)
        extents = _extents(site)
        extents["IC"], extents["OC"] = site.inputs[1].shape[1], extents["OC"] // groups
        del extents["C"]
        N, IC, IH, IW, OC, OH, OW = extent_symbols("N", "IC", "IH", "IW", "OC", "OH", "OW")
        outputs = round_up(groups * OC, lanes)
        windows = N * params.offset_groups * taps * OH * OW
        operands = present(
            site, Operand("x", 0, N * groups * IC * IH * IW),
            Operand("w", 1, groups * round_up(OC, lanes) * IC * taps, ("conv_oihw", lanes, groups)),
            Operand("offset", 2, 2 * windows), Operand("b", 3, outputs, ("channel", lanes)),
            Operand("mask", 4, windows))
        # Scratch: the windows of a tile, float32 [groups][IC/16][taps][pixels][16], and a zero for each channel of x.
        return Lowered(
            "sample/deform_conv_tiles", TilesParameters(*astuple(params), pixels, vectors), extents, operands,
            (Operand("y", 0, N * groups * OC * OH * OW),), N * ceildiv(OH * OW, pixels), _operation(params), self.name,
            scratch=4 * groups * (round_up(IC, BLOCK) * taps * pixels + IC), channels=outputs)

    def cost(self, site: Site) -> float:
        lanes, (outputs, channels, *window) = site.isa.lanes, site.inputs[1].shape
        pixels = product((site.y.shape[0], *site.y.shape[2:]))
        vectors = site.attrs.groups * ceildiv(outputs // site.attrs.groups, lanes)
        # A multiply-add of vectors with its loads: 1.1. A tap of a window: 6 for each vector, its four neighbours; 40
        # for the position.
        taps = pixels * product(window)
        return PACKING_CALL + 1.1 * taps * channels * vectors + 6.0 * taps * ceildiv(site.x.shape[1], lanes) \
            + 20.0 * site.inputs[2].size


class WindowsDeformConv(Kernel):
    """Gathers one window after the other into scratch and multiplies it by the filters."""

    name = "windows"
    dtypes = (FLOAT32,)
    static = (1,)  # the weights
    fuses_epilogue = True

    def lower(self, site: Site) -> Lowered:
        params = _deform_parameters(site)
        N, C, IH, IW, OC, OH, OW = extent_symbols("N", "C", "IH", "IW", "OC", "OH", "OW")
        taps = params.kh * params.kw
        windows = N * params.offset_groups * taps * OH * OW
        sizes = {"x": N * C * IH * IW, "w": OC * site.inputs[1].shape[1] * taps, "offset": 2 * windows, "b": OC,
                 "mask": windows}
        # Scratch: the window of a pixel, float32 [C][kh * kw].
        return Lowered("sample/deform_conv", params, _extents(site),
                       present(site, *(Operand(key, index, size) for index, (key, size) in enumerate(sizes.items()))),
                       (Operand("y", 0, N * OC * OH * OW),), N * OH * OW, _operation(params), self.name,
                       scratch=4 * C * taps, channels=OC)

    def cost(self, site: Site) -> float:
        # 2 for a multiply-add of vectors, with its loads; for a tap of a window, 40 for its position, and 6 for each
        # channel of its four neighbours.
        return 2.0 * site.y.size * product(site.inputs[1].shape[1:]) / site.isa.lanes + 20.0 * site.inputs[2].size \
            + 3.0 * site.inputs[2].size / site.attrs.offset_groups * site.x.shape[1]
