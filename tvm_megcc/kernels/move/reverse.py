# SPDX-License-Identifier: Apache-2.0
"""The kernel of ReverseSequence."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost, integer_bits


@dataclass(frozen=True)
class ReverseParameters(UnitParameters):
    """Parameters of `reverse.c.j2`. time: the axis that is reversed, 0 or 1."""

    time: int


class ReverseRuns(Kernel):
    """Copies each step from the mirrored one. A length beyond the axis fails the call."""

    name = "runs"

    def lower(self, site: Site) -> Lowered:
        x, lengths = site.inputs
        t, b, run = extent_symbols("T", "B", "RUN")
        time = site.attrs.time
        extents = {"T": x.shape[time], "B": x.shape[1 - time], "RUN": product(x.shape[2:])}
        return Lowered("move/reverse", ReverseParameters(x.c_type, time), extents,
                       (Operand("x", 0, t * b * run), Operand("length", 1, b)), (Operand("y", 0, t * b * run),), t * b,
                       f"reverse_sequence{time}_{integer_bits(lengths)}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.5)
