# SPDX-License-Identifier: Apache-2.0
"""The kernel `descent`: probabilities of classes from those of pairs of classes, as support vector machines need them
(Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004)."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.ml.coupling import MAX_ITERATIONS
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class CouplingParameters(Parameters):
    """Parameters of `coupling.c.j2`. steps: the maximum of iterations."""

    steps: int


class Coupling(Kernel):
    """x [N, P], one probability for each of the P pairs of classes -> y [N, C]. One task computes one row."""

    name = "descent"
    dtypes = (FLOAT32,)

    def lower(self, site: Site) -> Lowered:
        N, C, P = extent_symbols("N", "C", "P")
        # Scratch, float32: the matrix Q [C][C] of the quadratic form, and Q p [C].
        return Lowered("linear/coupling", CouplingParameters(MAX_ITERATIONS),
                       {"N": site.x.shape[0], "C": site.attrs.classes, "P": site.x.shape[1]},
                       (Operand("x", 0, N * P),), (Operand("y", 0, N * C),), N, "coupled_probabilities", self.name,
                       scratch=4 * C * C + 4 * C)
