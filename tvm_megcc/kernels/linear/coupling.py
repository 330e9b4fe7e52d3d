# SPDX-License-Identifier: Apache-2.0
"""Probabilities of classes from those of pairs of classes."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.ml.coupling import STEPS
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class CouplingParameters(Parameters):
    """Parameters of `coupling.c.j2`. steps: most iterations."""

    steps: int


class Coupling(Kernel):
    """Couples the pairwise probabilities of one row in a task."""

    name = "descent"
    dtypes = (FLOAT32,)

    def lower(self, site: Site) -> Lowered:
        N, C, P = extent_symbols("N", "C", "P")
        return Lowered("linear/coupling", CouplingParameters(STEPS),
                       {"N": site.x.shape[0], "C": site.attrs.classes, "P": site.x.shape[1]},
                       (Operand("x", 0, N * P),), (Operand("y", 0, N * C),), N, "coupled_probabilities", self.name,
                       scratch=4 * C * C + 4 * C)
