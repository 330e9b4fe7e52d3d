# SPDX-License-Identifier: Apache-2.0
"""Deformable convolution: the taps of a window are displaced by offsets from a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, product
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..conv2d.geometry import ConvParameters, window_name


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


class WindowsDeformConv(Kernel):
    """Gathers one window after the other into scratch and multiplies it by the filters."""

    name = "windows"
    dtypes = (FLOAT32,)
    static = (1,)  # the weights
    fuses_epilogue = True

    def lower(self, site):
        a, (kh, kw) = site.attrs, site.inputs[1].shape[2:]
        (n, c, ih, iw), (_, oc, oh, ow) = site.x.shape, site.y.shape
        extents: dict[str, Dim] = {"N": n, "C": c, "IH": ih, "IW": iw, "OC": oc, "OH": oh, "OW": ow, "PT": a.pads[0],
                                   "PL": a.pads[1]}
        N, C, IH, IW, OC, OH, OW = extent_symbols("N", "C", "IH", "IW", "OC", "OH", "OW")
        windows = N * a.offset_groups * kh * kw * OH * OW
        sizes = {"x": N * C * IH * IW, "w": OC * site.inputs[1].shape[1] * kh * kw, "offset": 2 * windows, "b": OC,
                 "mask": windows}
        has_bias, has_mask = site.has(3), site.has(4)
        params = DeformParameters(kh, kw, *a.strides, *a.dilations, bias=has_bias, groups=a.groups,
                                  offset_groups=a.offset_groups, mask=has_mask)
        name = f"deform_conv_{window_name((kh, kw), a.strides, a.dilations)}_g{a.groups}o{a.offset_groups}" \
            + "_bias" * has_bias + "_mask" * has_mask
        # Scratch: the window of a pixel, float32 [C][kh * kw].
        return Lowered("sample/deform_conv", params, extents,
                       present(site, *(Operand(key, index, size) for index, (key, size) in enumerate(sizes.items()))),
                       (Operand("y", 0, N * OC * OH * OW),), N * OH * OW, name, self.name, scratch=4 * C * kh * kw,
                       channels=OC)

    def cost(self, site):
        # 2 for a multiply-add of vectors, with its loads; 8 for an offset, with the four neighbours that it selects.
        return 2.0 * site.y.size * product(site.inputs[1].shape[1:]) / site.isa.lanes + 8.0 * site.inputs[2].size
