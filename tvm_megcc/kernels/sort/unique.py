# SPDX-License-Identifier: Apache-2.0
"""Groups equal slices by sorting."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.memory import split_at
from ..base import NUMBERS, Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class UniqueParameters(UnitParameters):
    """Parameters of `unique.c.j2`.

    is_float: whether elements may be NaN.
    sorted: whether groups are numbered in the order of their values, not of their first slices.
    """

    is_float: bool
    sorted: bool


class UniqueSort(Kernel):
    """Sorts the indices of slices in scratch, in one task."""

    name = "sort"
    dtypes = ((*NUMBERS, "bool"),)

    def lower(self, site: Site) -> Lowered:
        x = site.x
        extents = dict(zip(("OUTER", "N", "INNER", "COUNT"), (*split_at(x, site.attrs.axis), site.attrs.count),
                           strict=True))
        outer, n, inner, count = extent_symbols(*extents)
        params = UniqueParameters(x.c_type, x.dtype.startswith("float"), bool(site.attrs.sorted))
        # Scratch, int32: the slices in order [N], and the first slice of each slice's group [N].
        return Lowered("sort/unique", params, extents, (Operand("x", 0, outer * n * inner),),
                       (Operand("first", 0, count), Operand("inverse", 1, n), Operand("members", 2, count),
                        Operand("found", 3, 1)), 1, "unique" + "_sorted" * params.sorted, self.name, scratch=8 * n)

    def cost(self, site: Site) -> float:
        # For each element 64, for its comparisons in a heap sort.
        return 64.0 * site.x.size
