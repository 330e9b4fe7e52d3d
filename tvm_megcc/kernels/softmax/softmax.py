# SPDX-License-Identifier: Apache-2.0
"""Kernels of softmax along an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.dims import Symbol, ceildiv
from ...ir.types import PLAIN
from ..base import FLOAT32, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class SoftmaxParameters(Parameters):
    """Parameters of `rows.c.j2` and `columns.c.j2`. log: whether the result is log-softmax."""

    log: bool


@dataclass(frozen=True)
class ShortParameters(SoftmaxParameters):
    """Parameters of `short.c.j2`. max_length: the maximum number of elements of a row."""

    max_length: int


class SoftmaxRows(AlongAxis):
    """Softmax along the last axis in memory, one row in a task."""

    name = "rows"
    dtypes = (FLOAT32,)

    def reorders_sums(self, site: Site) -> bool:
        return site.x.layout != PLAIN

    def refuse(self, site: Site):
        return self.axis_refusal(self.extents(site)["INNER"] == 1)

    def axis_refusal(self, last: bool) -> str | None:
        """Returns why the kernel refuses the axis, if it does. last: whether it is the last one in memory."""
        return None if last else "not the last axis in memory"

    def lower(self, site: Site) -> Lowered:
        extents = self.extents(site)
        outer, n, inner = extent_symbols(*extents)
        last = extents["INNER"] == 1
        size = outer * n if last else outer * n * inner
        if last:
            extents.pop("INNER")
        tasks = outer if last else outer * ceildiv(inner, site.isa.lanes)
        return Lowered(f"softmax/{self.name}", SoftmaxParameters(site.kind == "log_softmax"), extents,
                       (Operand("x", 0, size),), (Operand("y", 0, size),), tasks, site.kind, self.name,
                       in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        extents = self.extents(site)
        vectorised = extents["N"] if extents["INNER"] == 1 else extents["INNER"]
        # For each vector 20, to compare it for the maximum, compute and sum its exponential, and divide it.
        return 20 * site.x.size // vectorised * ceildiv(vectorised, site.isa.lanes)


class SoftmaxShortRows(SoftmaxRows):
    """Softmax of rows with few elements. A task transposes as many rows as a vector has lanes."""

    name = "short"
    #: The maximum of elements in a row. Longer rows fill vectors of their own.
    MAX_LENGTH = 8

    def reorders_sums(self, site: Site) -> bool:
        return True

    def refuse(self, site: Site):
        n = self.extents(site)["N"]
        if site.isa.lanes == 1 or not isinstance(n, int) or n > self.MAX_LENGTH:
            return f"only vectors of rows of at most {self.MAX_LENGTH} elements"
        return super().refuse(site)

    def lower(self, site: Site) -> Lowered:
        lowered = super().lower(site)
        params = ShortParameters(site.kind == "log_softmax", self.MAX_LENGTH)
        return replace(lowered, params=params, tasks=ceildiv(Symbol("OUTER"), site.isa.lanes))

    def cost(self, site: Site) -> float:
        # For each element: 4 for the transposes of both ways; for each vector 15 for the exponential and the quotient.
        return site.x.stored * (4 + 15 / site.isa.lanes)


class SoftmaxColumns(SoftmaxRows):
    """Softmax along any other axis, as many neighbouring columns in a task as a vector has lanes."""

    name = "columns"

    def axis_refusal(self, last: bool) -> str | None:
        return "the last axis in memory" if last else None
