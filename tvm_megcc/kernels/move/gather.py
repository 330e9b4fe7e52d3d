# SPDX-License-Identifier: Apache-2.0
"""Kernels that gather elements by indices."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters, UnitParameters
from ..site import Site
from .copies import copy_cost


@dataclass(frozen=True)
class PointParameters(Parameters):
    """Parameters of `gather_points.c.j2`. depth: indices of a point."""

    depth: int


@dataclass(frozen=True)
class PartParameters(UnitParameters):
    """Parameters of `gather_parts.c.j2`. axis: the axis that is indexed. rank: rank of the tensor."""

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
        return Lowered("move/gather", UnitParameters(x.c_type), extents,
                       (Operand("x", 0, outer * extent * run), Operand("index", 1, count)),
                       (Operand("y", 0, outer * count * run),), outer * count,
                       f"gather_{indices.dtype[3:]}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.5)


class GatherAlongAxis(Kernel):
    """Gathers element by element along an axis. An index out of range fails the call."""

    name = "lines"

    def refuse(self, site: Site):
        axis = site.attrs.axis % site.x.rank
        extents = enumerate(zip(site.x.shape, site.inputs[1].shape, strict=True))
        partial = any(i != axis and a != b for i, (a, b) in extents)
        return "indices for a part of the tensor only" if partial else None

    def lower(self, site: Site) -> Lowered:
        x, indices = site.inputs
        axis = site.attrs.axis % x.rank
        outer, extent, inner, count = extent_symbols("OUTER", "EXTENT", "INNER", "COUNT")
        extents = {"OUTER": product(x.shape[:axis]), "EXTENT": x.shape[axis], "INNER": product(x.shape[axis + 1:]),
                   "COUNT": indices.shape[axis]}
        size = outer * count * inner
        return Lowered("move/gather_elements", UnitParameters(x.c_type), extents,
                       (Operand("x", 0, outer * extent * inner), Operand("index", 1, size)),
                       (Operand("y", 0, size),), outer * count, f"gather_elements_{indices.dtype[3:]}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 3.0)


class GatherParts(Kernel):
    """Gathers as `lines` does if some axis of the tensor may be longer than that of the indices."""

    name = "parts"

    def lower(self, site: Site) -> Lowered:
        x, indices = site.inputs
        axis = site.attrs.axis % x.rank
        extents = {f"X{i}": dim for i, dim in enumerate(x.shape)}
        extents.update((f"I{i}", dim) for i, dim in enumerate(indices.shape))
        x_extents, index_extents = (extent_symbols(*(f"{letter}{i}" for i in range(x.rank))) for letter in "XI")
        return Lowered("move/gather_parts", PartParameters(x.c_type, axis, x.rank), extents,
                       (Operand("x", 0, product(x_extents)), Operand("index", 1, product(index_extents))),
                       (Operand("y", 0, product(index_extents)),), product(index_extents[:axis + 1]),
                       f"gather_parts_{indices.dtype[3:]}_axis{axis}of{x.rank}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 4.0)


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
        return Lowered("move/gather_points", PointParameters(depth), extents,
                       (Operand("x", 0, outer * product(axes) * run), Operand("index", 1, outer * count * depth)),
                       (Operand("y", 0, outer * count * run),), outer * count,
                       f"gather_points{depth}_{indices.dtype[3:]}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 2.0)
