# SPDX-License-Identifier: Apache-2.0
"""Runs weighted and added: resizing along one axis."""

from __future__ import annotations

from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import PLAIN
from ...ops.memory import memory_axes
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..site import Site
from .copies import copy_cost


class ResampleRuns(Kernel):
    """[OUTER][EXTENT][INNER] to [OUTER][OUT][INNER], runs of INNER side by side."""

    name = "runs"
    dtypes = (FLOAT32, ANY)

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout.kind != "nchwc" or site.attrs.axis != 1:
                yield (layout, PLAIN, PLAIN), (layout,)

    def lower(self, site: Site) -> Lowered:
        axes = memory_axes(site.x)
        position = next(index for index, (axis, _, _) in enumerate(axes) if axis == site.attrs.axis)
        extents: dict[str, Dim] = {"OUTER": product(extent for _, _, extent in axes[:position]),
                                   "EXTENT": axes[position][2], "OUT": site.y.shape[site.attrs.axis],
                                   "INNER": product(extent for _, _, extent in axes[position + 1:]),
                                   "TAPS": site.inputs[2].shape[1]}
        outer, extent, out, inner, taps = extent_symbols(*extents)
        return Lowered("move/resample", Attrs(), extents,
                       (Operand("x", 0, outer * extent * inner), Operand("first", 1, out),
                        Operand("weight", 2, out * taps)),
                       (Operand("y", 0, outer * out * inner),), outer * out, "resample", self.name)

    def cost(self, site: Site) -> float:
        inner = 1 if site.x.layout == PLAIN and site.attrs.axis == site.x.rank - 1 else site.isa.lanes
        return copy_cost(site.y, 0.5 + 1.5 * site.inputs[2].shape[1] / inner)
