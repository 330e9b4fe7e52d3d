# SPDX-License-Identifier: Apache-2.0
"""The kernel that resizes along one axis by weighted sums of contiguous runs."""

from __future__ import annotations

from ...ir.types import PLAIN
from ...ops.memory import split_at
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols, layout_pair, possible_layouts
from ..move.copies import copy_cost
from ..parameters import Parameters
from ..site import Site


class ResampleRuns(Kernel):
    """Resizes [OUTER][EXTENT][INNER] to [OUTER][OUT][INNER], by vectors along INNER."""

    name = "runs"
    dtypes = (FLOAT32, ANY)

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            # Neighbours along channels do not follow one another in a blocked layout.
            if layout.kind != "nchwc" or site.attrs.axis != 1:
                yield layout_pair(site, layout)

    def lower(self, site: Site) -> Lowered:
        before, along, after = split_at(site.x, site.attrs.axis)
        extents = {"OUTER": before, "EXTENT": along, "OUT": site.y.shape[site.attrs.axis], "INNER": after,
                   "TAPS": site.inputs[2].shape[1]}
        outer, extent, out, inner, taps = extent_symbols(*extents)
        return Lowered("resize/resample", Parameters(), extents,
                       (Operand("x", 0, outer * extent * inner), Operand("first", 1, out),
                        Operand("weight", 2, out * taps)),
                       (Operand("y", 0, outer * out * inner),), outer * out, "resample", self.name)

    def cost(self, site: Site) -> float:
        # For each element: 0.5 for the store, and for each tap 1.5 for the multiply-add of a vector along INNER.
        inner = 1 if site.x.layout == PLAIN and site.attrs.axis == site.x.rank - 1 else site.isa.lanes
        return copy_cost(site.y, per_element=0.5 + 1.5 * site.inputs[2].shape[1] / inner)
