# SPDX-License-Identifier: Apache-2.0
"""The kernel of Shape."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import Kernel, Lowered, Operand
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class DimsParameters(Parameters):
    """Parameters of `dims.c.j2`. count: number of extents."""

    count: int


class DimsKernel(Kernel):
    """Writes the extents of a tensor as a tensor."""

    name = "dims"

    def lower(self, site: Site) -> Lowered:
        values = site.attrs.extents
        extents = {f"D{index}": value for index, value in enumerate(values)}
        return Lowered("shape/dims", DimsParameters(len(values)), extents, (),
                       (Operand("y", 0, len(values)),), 1, f"dims_{len(values)}", "store")

    def cost(self, site: Site) -> float:
        # For each extent 1, to store it.
        return float(len(site.attrs.extents))
