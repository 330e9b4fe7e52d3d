# SPDX-License-Identifier: Apache-2.0
"""Kernels that scatter elements by indices."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.dims import product
from ...ir.types import DTYPES
from ...ops.tensor.scatter import REDUCTIONS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..reduce.folds import INTEGER_FOLDS
from ..site import Site
from .copies import copy_cost

#: Reductions of scatter -> their names in the table of integer folds.
_FOLDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@dataclass(frozen=True)
class CombineParameters(UnitParameters):
    """Parameters of `combine.c.j2`. combine: C over element a and update v. unsigned: type for adding integers."""

    combine: str = field(repr=False)
    unsigned: str


@dataclass(frozen=True)
class LineParameters(CombineParameters):
    """Parameters of `scatter_elements.c.j2`. axis: the axis that is indexed. rank: rank of the tensor."""

    axis: int
    rank: int


@dataclass(frozen=True)
class PointParameters(CombineParameters):
    """Parameters of `scatter_points.c.j2`. depth: indices of a point."""

    depth: int


class ScatterKernel(Kernel):
    """The base class. Copies the tensor, unless it is updated in place, and writes the updates in order."""

    def refuse(self, site: Site):
        is_stored = bool(DTYPES[site.x.dtype].carrier) or site.x.dtype == "bool"
        wants_arithmetic = site.attrs.reduction != "none" and is_stored
        return f"no arithmetic on {site.x.dtype}" if wants_arithmetic else None

    @staticmethod
    def combining(site: Site) -> tuple[str, str, str]:
        """Returns the values of `CombineParameters`."""
        x, reduction = site.x, site.attrs.reduction
        real = x.dtype.startswith("float") or reduction == "none"
        combine = REDUCTIONS[reduction][0] if real else INTEGER_FOLDS[_FOLDS[reduction]].step
        return x.c_type, combine, x.c_unsigned

    def called(self, site: Site, template: str, params: CombineParameters, extents: dict, sizes: tuple, tasks,
               suffix: str) -> Lowered:
        """Returns the call. sizes: elements of x, index and update."""
        operands = (Operand("x", 0, sizes[0]), Operand("index", 1, sizes[1]), Operand("update", 2, sizes[2]))
        what = site.kind if site.attrs.reduction == "none" else f"{site.kind}_{site.attrs.reduction}"
        return Lowered(template, params, extents, operands, (Operand("y", 0, sizes[0]),), tasks,
                       f"{what}_{site.inputs[1].dtype[3:]}_{suffix}", self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.0) + copy_cost(site.inputs[2], 4.0)


class ScatterAlongAxis(ScatterKernel):
    name = "lines"

    def lower(self, site: Site) -> Lowered:
        x, indices, _ = site.inputs
        axis = site.attrs.axis % x.rank
        extents = {f"X{i}": dim for i, dim in enumerate(x.shape)}
        extents.update((f"I{i}", dim) for i, dim in enumerate(indices.shape))
        x_extents, index_extents = (extent_symbols(*(f"{letter}{i}" for i in range(x.rank))) for letter in "XI")
        params = LineParameters(*self.combining(site), axis, x.rank)
        return self.called(site, "move/scatter_elements", params, extents,
                           (product(x_extents), product(index_extents), product(index_extents)),
                           product(x_extents[:axis]), f"axis{axis}of{x.rank}")


class ScatterRows(ScatterKernel):
    """Scatters rows at points in one task, because points may coincide and the order of updates matters."""

    name = "points"

    def lower(self, site: Site) -> Lowered:
        x, indices, _ = site.inputs
        depth = indices.shape[-1]
        extents = {f"X{i}": x.shape[i] for i in range(depth)}
        extents.update(COUNT=product(indices.shape[:-1]), RUN=product(x.shape[depth:]))
        *axes, count, run = extent_symbols(*extents)
        return self.called(site, "move/scatter_points", PointParameters(*self.combining(site), depth), extents,
                           (product(axes) * run, count * depth, count * run), 1, f"depth{depth}")
