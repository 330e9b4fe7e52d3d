# SPDX-License-Identifier: Apache-2.0
"""Convolution whose window is bent by offsets."""

from __future__ import annotations

from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols


class WindowsDeformConv(Kernel):
    """Window by window, gathered into scratch."""

    name = "windows"
    dtypes, static = (FLOAT32,), (1,)
    fuses_epilogue = True

    def lower(self, site):
        a, (kh, kw) = site.attrs, site.inputs[1].shape[2:]
        (n, c, ih, iw), (_, oc, oh, ow) = site.x.shape, site.y.shape
        extents: dict[str, Dim] = {"N": n, "C": c, "IH": ih, "IW": iw, "OC": oc, "OH": oh, "OW": ow, "PT": a.pads[0],
                                   "PL": a.pads[1]}
        N, C, IH, IW, OC, OH, OW = extent_symbols(*list(extents)[:7])
        given = [index < len(site.op.own_inputs) and bool(site.op.own_inputs[index]) for index in range(5)]
        windows = N * a.offset_groups * kh * kw * OH * OW
        sizes = {"x": N * C * IH * IW, "w": OC * site.inputs[1].shape[1] * kh * kw, "offset": 2 * windows, "b": OC,
                 "mask": windows}
        params = {"kh": kh, "kw": kw, "sh": a.strides[0], "sw": a.strides[1], "dh": a.dilations[0],
                  "dw": a.dilations[1], "groups": a.groups, "offset_groups": a.offset_groups, "bias": given[3],
                  "mask": given[4]}
        name = "_".join([f"deform_conv_{kh}x{kw}_s{a.strides[0]}x{a.strides[1]}_d{a.dilations[0]}x{a.dilations[1]}"
                         f"_g{a.groups}o{a.offset_groups}", *["bias"] * given[3], *["mask"] * given[4]])
        return Lowered("sample/deform_conv", Attrs(params), extents,
                       tuple(Operand(key, index, size) for index, (key, size) in enumerate(sizes.items())
                             if given[index]),
                       (Operand("y", 0, N * OC * OH * OW),), N * OH * OW, name, self.name, scratch=4 * C * kh * kw,
                       channels=OC)

    def cost(self, site):
        if not site.y.is_static:
            return 1e6
        return 2.0 * site.y.size * product(site.inputs[1].shape[1:]) / site.isa.lanes + 8.0 * site.inputs[2].size
