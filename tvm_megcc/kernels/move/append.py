# SPDX-License-Identifier: Apache-2.0
"""The kernel that appends rows to a KV cache."""

from __future__ import annotations

from ...ir.dims import product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost


class AppendRows(Kernel):
    """Writes the new rows, after copying the cache unless it is updated in place."""

    name = "rows"

    def lower(self, site: Site) -> Lowered:
        x, rows, _ = site.inputs
        axis = site.attrs.axis
        extents = {"OUTER": product(x.shape[:axis]), "CAPACITY": x.shape[axis], "COUNT": rows.shape[axis],
                   "RUN": product(x.shape[axis + 1:])}
        outer, capacity, count, run = extent_symbols(*extents)
        operands = (Operand("x", 0, outer * capacity * run), Operand("rows", 1, outer * count * run),
                    Operand("at", 2, 1))
        return Lowered("move/append", UnitParameters(site.x.c_type), extents, operands,
                       (Operand("y", 0, outer * capacity * run),), outer, "append", self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return copy_cost(site.inputs[1], 1.0)
