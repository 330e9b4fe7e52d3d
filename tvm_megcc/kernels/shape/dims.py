# SPDX-License-Identifier: Apache-2.0
"""The extents of a tensor as a tensor."""

from __future__ import annotations

from ...ir.graph import Attrs
from ..base import Kernel, Lowered, Operand
from ..site import Site


class DimsKernel(Kernel):
    """Writes extents as data."""

    name = "dims"

    def lower(self, site: Site) -> Lowered:
        values = site.attrs.extents
        extents = {f"D{index}": value for index, value in enumerate(values)}
        return Lowered("shape/dims", Attrs(count=len(values), dtype=site.y.dtype), extents, (),
                       (Operand("y", 0, len(values)),), 1, f"dims_{len(values)}", "store")

    def cost(self, site: Site) -> float:
        return float(len(site.attrs.extents))
