# SPDX-License-Identifier: Apache-2.0
"""Random numbers from a key and a counter (Philox, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011)."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product
from ...ops.random.philox import elements_per_block, random_bits
from ..base import LOOP_CALL, Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class PhiloxParameters(UnitParameters):
    """Parameters of `philox.c.j2`.

    unit: C type of an element of the result.
    law: the distribution, "bits", "uniform" or "normal" (attribute of the operator).
    elements: elements made of a block of four words.
    used_bits: the leading bits of a word that become a fraction of 1.
    step: 2^-used_bits, the distance of neighbouring fractions.
    """

    law: str
    elements: int
    used_bits: int
    step: float


class PhiloxBlocks(Kernel):
    """Random numbers with the same bits on every CPU. One task computes one block of four words."""

    name = "philox"
    dtypes = (("int64",),)

    def lower(self, site: Site) -> Lowered:
        (n,) = extent_symbols("N")
        attrs, elements = site.attrs, elements_per_block(site.attrs)
        used_bits = random_bits(attrs)
        params = PhiloxParameters(
            unit=site.y.c_type, law=attrs.law, elements=elements, used_bits=used_bits, step=2.0**-used_bits)
        return Lowered("draw/philox", params,
                       {"N": product(attrs.shape), "NUMBER": attrs.number}, (Operand("key", 0, 1),),
                       (Operand("y", 0, n),), ceildiv(n, elements),
                       f"draw_{attrs.law}_{used_bits}", self.name)

    def cost(self, site: Site) -> float:
        # 20: ten rounds for four words, and the distribution.
        return LOOP_CALL + 20.0 * product(site.y.shape)
