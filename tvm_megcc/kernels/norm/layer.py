# SPDX-License-Identifier: Apache-2.0
"""The kernel of layer normalisation."""

from __future__ import annotations

from dataclasses import dataclass

from ...foreign import digest
from ...ir.dims import product
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class LayerNormParameters(Parameters):
    """Of `layer.c.j2`. epsilon: as C has it. weight, bias: there is one."""

    epsilon: str
    weight: bool
    bias: bool


class LayerNormRows(Kernel):
    """A row a task."""

    name = "rows"
    dtypes = (FLOAT32, FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        R, N = extent_symbols("R", "N")
        epsilon = f"{float(site.attrs.epsilon):.9e}f"
        params = LayerNormParameters(epsilon, site.has(1), site.has(2))
        inputs = present(site, Operand("x", 0, R * N), Operand("weight", 1, N), Operand("bias", 2, N))
        name = f"{site.kind}{'_weight' * params.weight}{'_bias' * params.bias}_e{digest(epsilon, 4)}"
        return Lowered("norm/layer", params, {"R": product(site.x.shape[:-1]), "N": site.x.shape[-1]}, inputs,
                       (Operand("y", 0, R * N),), R, name, self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return 6.0 * site.likely.x.size / site.isa.lanes
