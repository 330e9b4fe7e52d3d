# SPDX-License-Identifier: Apache-2.0
"""The kernel of rotary position embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class RotaryParameters(Parameters):
    """Parameters of `rotary.c.j2`.

    axes: those of B, N and S along which angles differ.
    interleaved: whether a pair is two neighbours; else it is elements i and P + i.
    """

    axes: str
    interleaved: bool


class RotaryRows(Kernel):
    """Rotates S rows in a task."""

    name = "rows"
    dtypes = (FLOAT32, FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        angles_type = site.inputs[1]
        assert angles_type is not None
        cos = angles_type.shape
        extents = dict(zip("BNSHP", (*site.x.shape, cos[3]), strict=True))
        B, N, S, H, P = extent_symbols(*extents)
        by_name = {"B": B, "N": N, "S": S}
        params = RotaryParameters("".join(name for name, extent in zip("BNS", cos, strict=False) if extent != 1),
                                  bool(site.attrs.interleaved))
        angles = product((*(by_name[name] for name in params.axes), P))
        name = f"{site.kind}{'_interleaved' * params.interleaved}{'_' * bool(params.axes)}{params.axes.lower()}"
        inputs = (Operand("x", 0, B * N * S * H), Operand("cos", 1, angles), Operand("sin", 2, angles))
        return Lowered("attention/rotary", params, extents, inputs, (Operand("y", 0, B * N * S * H),), B * N, name,
                       self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        # 4: of each two vectors, for loads of them and of the angles, products, and stores.
        size = site.likely.x.size
        assert isinstance(size, int)
        return 4.0 * size / site.isa.lanes
