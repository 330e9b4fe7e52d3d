# SPDX-License-Identifier: Apache-2.0
"""The K largest elements along an axis, by a heap."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.types import PLAIN
from ..base import ANY, NUMBERS, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site

#: The maximum of K, because the heap lies in a worker's scratch.
MAX_K = 1 << 16


@dataclass(frozen=True)
class TopKParameters(UnitParameters):
    """Parameters of `top_k.c.j2`.

    is_float: whether elements may be NaN.
    largest: whether the largest elements are the best, not the smallest.
    """

    is_float: bool
    largest: bool


class TopKHeap(AlongAxis):
    """Finds the K best elements of one slice along the axis in a task, with a heap of the best so far."""

    name = "heap"
    dtypes = ((*NUMBERS, "bool"), ANY)

    def layouts(self, site: Site):
        yield (PLAIN,), (PLAIN, PLAIN)

    def refuse(self, site: Site):
        k = site.attrs.k
        return f"more than the best {MAX_K}" if isinstance(k, int) and k > MAX_K else None

    def lower(self, site: Site) -> Lowered:
        x = site.x
        extents = {**self.extents(site), "K": site.attrs.k}
        outer, n, inner, k = extent_symbols("OUTER", "N", "INNER", "K")
        params = TopKParameters(x.c_type, x.dtype.startswith("float"), site.attrs.largest)
        # Scratch: a heap of indices, int32 [K].
        return Lowered("sort/top_k", params, extents, (Operand("x", 0, outer * n * inner),),
                       (Operand("values", 0, outer * k * inner), Operand("indices", 1, outer * k * inner)),
                       outer * inner, "top_k" if site.attrs.largest else "bottom_k", self.name, scratch=4 * k)

    def cost(self, site: Site) -> float:
        # For each element 8, to compare it with the worst of the heap, which it sometimes replaces.
        return 8.0 * site.x.size
