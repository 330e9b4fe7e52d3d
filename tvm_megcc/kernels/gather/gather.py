# SPDX-License-Identifier: Apache-2.0
"""Kernels that gather elements by indices."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..move.copies import copy_cost, integer_bits
from ..parameters import Parameters, UnitParameters
from ..site import Site


@dataclass(frozen=True)
class PointParameters(Parameters):
    """Parameters of `gather_points.c.j2`. depth: the number of indices of a point."""

    depth: int


@dataclass(frozen=True)
class ElementParameters(UnitParameters):
    """Parameters of `gather_elements.c.j2`. axis: the axis that is indexed. rank: the number of axes."""

    axis: int
    rank: int


class GatherRuns(Kernel):
    """Copies the run at each index. An index out of range fails the call."""

    name = "runs"

    def lower(self, site: Site) -> Lowered:
        x, indices = site.inputs
        axis = site.attrs.axis % x.rank
        outer, extent, run, count = extent_symbols("OUTER", "EXTENT", "RUN", "COUNT")
        extents = {"OUTER": product(x.shape[:axis]), "EXTENT": x.shape[axis], "RUN": product(x.shape[axis + 1:]),
                   "COUNT": indices.size}
        return Lowered("gather/gather", UnitParameters(x.c_type), extents,
                       (Operand("x", 0, outer * extent * run), Operand("index", 1, count)),
                       (Operand("y", 0, outer * count * run),), outer * count,
                       f"gather_{integer_bits(indices)}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.5)  # runs may be short


def indexed_extents(site: Site) -> tuple[dict[str, Dim], tuple[Dim, ...], tuple[Dim, ...], int]:
    """Returns the extents X0, X1, … of the first operand and I0, I1, … of the indices, which have the same rank, the
    symbols of both, and the axis that is indexed.

    Neighbouring axes, neither of which is indexed, become one axis if the inner one has the same extent in both
    tensors.
    """
    x, indices = site.inputs[:2]
    indexed, axes, merged_axis = site.attrs.axis % x.rank, [], 0
    for axis, (x_extent, index_extent) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if axes and indexed not in (axis, axis - 1) and x_extent == index_extent:
            axes[-1] = (axes[-1][0] * x_extent, axes[-1][1] * index_extent)
        else:
            axes.append((x_extent, index_extent))
        if axis == indexed:
            merged_axis = len(axes) - 1
    extents: dict[str, Dim] = {f"X{i}": x_extent for i, (x_extent, _) in enumerate(axes)}
    extents.update((f"I{i}", index_extent) for i, (_, index_extent) in enumerate(axes))
    x_symbols, index_symbols = (extent_symbols(*(f"{letter}{i}" for i in range(len(axes)))) for letter in "XI")
    return extents, x_symbols, index_symbols, merged_axis


class GatherElements(Kernel):
    """Gathers element by element along an axis. An index out of range fails the call."""

    name = "elements"

    def lower(self, site: Site) -> Lowered:
        extents, x_extents, index_extents, axis = indexed_extents(site)
        rank, size = len(x_extents), product(index_extents)
        return Lowered("gather/gather_elements", ElementParameters(site.x.c_type, axis, rank), extents,
                       (Operand("x", 0, product(x_extents)), Operand("index", 1, size)), (Operand("y", 0, size),),
                       product(index_extents[:axis + 1]),
                       f"gather_elements_{integer_bits(site.inputs[1])}_axis{axis}of{rank}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=3.0)  # each element has an index of its own


class GatherPoints(Kernel):
    """Copies the run at each point, which has several indices. An index out of range fails the call."""

    name = "points"

    def lower(self, site: Site) -> Lowered:
        x, indices = site.inputs
        batch, depth = site.attrs.batch, indices.shape[-1]
        extents = {"BATCH": product(x.shape[:batch]), "COUNT": product(indices.shape[batch:-1]),
                   "RUN": product(x.shape[batch + depth:])}
        extents.update((f"X{index}", x.shape[batch + index]) for index in range(depth))
        outer, count, run = extent_symbols("BATCH", "COUNT", "RUN")
        axes = extent_symbols(*(f"X{index}" for index in range(depth)))
        return Lowered("gather/gather_points", PointParameters(depth), extents,
                       (Operand("x", 0, outer * product(axes) * run), Operand("index", 1, outer * count * depth)),
                       (Operand("y", 0, outer * count * run),), outer * count,
                       f"gather_points{depth}_{integer_bits(indices)}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=2.0)  # runs may be short, and have several indices
