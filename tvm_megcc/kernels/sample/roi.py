# SPDX-License-Identifier: Apache-2.0
"""Kernels that read the regions of an image."""

from __future__ import annotations

from ...ir.dims import Dim, round_up
from ...ir.graph import Attrs
from ...ir.types import PLAIN
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import blocked
from ..move.copies import c_constant, constant_name
from ..site import Site


class _RoiBins(Kernel):
    """Bin by bin, vectors of channels."""

    name = "bins"
    dtypes = (FLOAT32, FLOAT32, ANY)

    def layouts(self, site: Site):
        yield (blocked(site.target), *(PLAIN,) * (len(site.inputs) - 1)), (blocked(site.target),)

    def _lowered(self, template: str, params: dict, site: Site, operands, what: str) -> Lowered:
        extents: dict[str, Dim] = dict(zip(("N", "C", "IH", "IW"), site.x.shape, strict=True))
        extents.update(R=site.y.shape[0], OH=site.y.shape[2], OW=site.y.shape[3])
        N, C, IH, IW, R, OH, OW = extent_symbols(*extents)
        slots, scale = round_up(C, site.isa.lanes), c_constant(site.attrs.scale, "float32")
        return Lowered(template, Attrs(**params, scale=scale), extents,
                       (Operand("x", 0, N * slots * IH * IW), *operands(R)), (Operand("y", 0, R * slots * OH * OW),),
                       R * OH * OW, what + constant_name(scale), self.name)

    def cost(self, site: Site) -> float:
        return 20.0 * site.y.stored / site.isa.lanes if site.y.is_static else 1e6


class RoiAlignBins(_RoiBins):
    def lower(self, site: Site) -> Lowered:
        a = site.attrs
        params = {"mode": a.mode, "half_pixel": bool(a.half_pixel), "samples": a.samples}
        what = f"roi_align_{a.mode}" + f"_{a.samples}" * (a.samples > 0) + "_half" * bool(a.half_pixel)
        return self._lowered("sample/roi_align", params, site,
                             lambda regions: (Operand("rois", 1, regions * 4), Operand("image", 2, regions)),
                             f"{what}_{site.inputs[2].dtype[3:]}")


class RoiPoolBins(_RoiBins):
    def lower(self, site: Site) -> Lowered:
        return self._lowered("sample/roi_pool", {}, site,
                             lambda regions: (Operand("rois", 1, regions * 5),), "roi_max_pool")
