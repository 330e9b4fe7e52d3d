# SPDX-License-Identifier: Apache-2.0
"""The kernel `rows` of dequantize_int4: converts gathered rows of 4-bit weights to floats."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv, product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class RowsParameters(Parameters):
    """Parameters of `int4_rows.c.j2`. block: elements of a row that share a scale."""

    block: int


class Int4Rows(Kernel):
    """w [R, K/2] bytes of two elements, scale and zero point for each block -> y [R, K]. One task converts one row."""

    name = "rows"

    def lower(self, site: Site) -> Lowered:
        R, K = extent_symbols("R", "K")
        extents = {"R": product(site.x.shape[:-1]), "K": site.attrs.depth}
        blocks = ceildiv(K, site.attrs.block)
        return Lowered("matmul/int4_rows", RowsParameters(site.attrs.block), extents,
                       (Operand("w", 0, R * ceildiv(K, 2)), Operand("scale", 1, R * blocks),
                        Operand("zero", 2, R * blocks)), (Operand("y", 0, R * K),), R,
                       f"int4_rows_{site.attrs.block}", self.name)

    def cost(self, site: Site) -> float:
        # 2: an element is extracted, converted and scaled.
        return 2.0 * site.y.size
