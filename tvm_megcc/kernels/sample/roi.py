# SPDX-License-Identifier: Apache-2.0
"""Kernels that pool regions of an image."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, round_up
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair
from ..constants import c_constant, constant_name
from ..conv2d.geometry import blocked
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class RoiParameters(Parameters):
    """Parameters of `roi_pool.c.j2`. scale: factor on the regions' coordinates, a C literal."""

    scale: str


@dataclass(frozen=True)
class RoiAlignParameters(RoiParameters):
    """Parameters of `roi_align.c.j2`.

    mode: "avg" or "max".
    half_pixel: whether coordinates refer to the centres of pixels.
    samples: the number of samples of a bin along an axis; 0: as many as the bin has pixels.
    """

    mode: str
    half_pixel: bool
    samples: int


class _RoiBins(Kernel):
    """The base class of pooling of regions: one bin after the other, by vectors of channels."""

    name = "bins"
    dtypes = (FLOAT32, FLOAT32, ANY)

    def layouts(self, site: Site):
        yield layout_pair(site, blocked(site.target))

    def _lowered(self, template: str, params: RoiParameters, site: Site, operands, operation: str) -> Lowered:
        extents: dict[str, Dim] = dict(zip(("N", "C", "IH", "IW"), site.x.shape, strict=True))
        extents.update(R=site.y.shape[0], OH=site.y.shape[2], OW=site.y.shape[3])
        N, C, IH, IW, R, OH, OW = extent_symbols(*extents)
        padded_c = round_up(C, site.isa.lanes)
        return Lowered(template, params, extents,
                       (Operand("x", 0, N * padded_c * IH * IW), *operands(R)),
                       (Operand("y", 0, R * padded_c * OH * OW),),
                       R * OH * OW, operation + constant_name(params.scale), self.name)

    def cost(self, site: Site) -> float:
        # For each vector of a bin 20, with the samples that it is made of.
        return 20.0 * site.y.stored / site.isa.lanes


class RoiAlignBins(_RoiBins):
    """Averages, or takes the maximum of, the samples of a bin."""

    def lower(self, site: Site) -> Lowered:
        a = site.attrs
        params = RoiAlignParameters(c_constant(a.scale, "float32"), a.mode, bool(a.half_pixel), a.samples)
        operation = f"roi_align_{a.mode}" + f"_{a.samples}" * (a.samples > 0) + "_half" * bool(a.half_pixel)
        return self._lowered("sample/roi_align", params, site,
                             lambda regions: (Operand("rois", 1, regions * 4), Operand("image", 2, regions)),
                             f"{operation}_{site.inputs[2].dtype.removeprefix('int')}")


class RoiPoolBins(_RoiBins):
    """Takes the maximum of the pixels of a bin."""

    def lower(self, site: Site) -> Lowered:
        return self._lowered("sample/roi_pool", RoiParameters(c_constant(site.attrs.scale, "float32")), site,
                             lambda regions: (Operand("rois", 1, regions * 5),), "roi_max_pool")
