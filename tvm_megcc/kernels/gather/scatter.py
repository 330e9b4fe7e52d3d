# SPDX-License-Identifier: Apache-2.0
"""Kernels that scatter elements by indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.dims import Dim, product
from ...ir.types import DTYPES
from ...ops.tensor.scatter import REDUCTIONS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..move.copies import copy_cost, integer_bits
from ..parameters import UnitParameters
from ..reduce.reducers import INTEGER_REDUCERS
from ..site import Site
from .gather import indexed_extents

#: ONNX's reductions of scatter -> their names in the table of integer reducers.
_REDUCERS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@dataclass(frozen=True)
class CombineParameters(UnitParameters):
    """Parameters of `combine.c.j2`.

    combine: the C expression of an element `a` combined with an update `v`.
    unsigned: the C type in which integers are added, so that they wrap.
    """

    combine: str = field(repr=False)  # its C is in the generated file anyway
    unsigned: str


@dataclass(frozen=True)
class ElementParameters(CombineParameters):
    """Parameters of `scatter_elements.c.j2`. axis: the axis that is indexed. rank: the number of axes."""

    axis: int
    rank: int


@dataclass(frozen=True)
class PointParameters(CombineParameters):
    """Parameters of `scatter_points.c.j2`. depth: the number of indices of a point."""

    depth: int


class ScatterKernel(Kernel):
    """The base class. Copies the tensor, unless it is updated in place, and writes the updates in order."""

    def refuse(self, site: Site):
        # A dtype with a carrier, such as float16, is computed in another one (ir/types.py).
        has_no_arithmetic = bool(DTYPES[site.x.dtype].carrier) or site.x.dtype == "bool"
        return f"no arithmetic on {site.x.dtype}" if site.attrs.reduction != "none" and has_no_arithmetic else None

    @staticmethod
    def combine_parameters(site: Site) -> CombineParameters:
        """Returns the parameters that the kernels share."""
        x, reduction = site.x, site.attrs.reduction
        # Integers wrap, which C defines for unsigned numbers only, so they have expressions of their own.
        reduces_integers = reduction != "none" and not x.dtype.startswith("float")
        combine = INTEGER_REDUCERS[_REDUCERS[reduction]].combine if reduces_integers else REDUCTIONS[reduction][0]
        return CombineParameters(unit=x.c_type, combine=combine, unsigned=x.c_unsigned)

    def call(self, site: Site, template: str, params: CombineParameters, extents: Mapping[str, Dim],
             sizes: tuple[Dim, Dim, Dim], tasks: Dim, suffix: str) -> Lowered:
        """Returns the call.

        Args:
            sizes: the numbers of elements of x, index and update.
            suffix: the end of the operation's name.
        """
        operands = (Operand("x", 0, sizes[0]), Operand("index", 1, sizes[1]), Operand("update", 2, sizes[2]))
        operation = site.kind if site.attrs.reduction == "none" else f"{site.kind}_{site.attrs.reduction}"
        return Lowered(template, params, extents, operands, (Operand("y", 0, sizes[0]),), tasks,
                       f"{operation}_{integer_bits(site.inputs[1])}_{suffix}", self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        # 1: an element of x is copied; 4: one is updated at its index.
        return copy_cost(site.y, per_element=1.0) + copy_cost(site.inputs[2], per_element=4.0)


class ScatterElements(ScatterKernel):
    """Scatters element by element along an axis."""

    name = "elements"

    def lower(self, site: Site) -> Lowered:
        extents, x_extents, index_extents, axis = indexed_extents(site)
        size, rank = product(index_extents), len(x_extents)
        params = ElementParameters(**vars(self.combine_parameters(site)), axis=axis, rank=rank)
        return self.call(site, "gather/scatter_elements", params, extents, (product(x_extents), size, size),
                         product(x_extents[:axis]), f"axis{axis}of{rank}")


class ScatterPoints(ScatterKernel):
    """Scatters runs of elements (ONNX's ScatterND). A point is the indices of a run along the first axes. There is one
    task, because points may be equal and the order of updates matters."""

    name = "points"

    def lower(self, site: Site) -> Lowered:
        x, indices, _ = site.inputs
        depth = indices.shape[-1]
        extents = {f"X{i}": x.shape[i] for i in range(depth)}
        extents.update(COUNT=product(indices.shape[:-1]), RUN=product(x.shape[depth:]))
        *axes, count, run = extent_symbols(*extents)
        params = PointParameters(**vars(self.combine_parameters(site)), depth=depth)
        return self.call(site, "gather/scatter_points", params, extents,
                         (product(axes) * run, count * depth, count * run), 1, f"depth{depth}")
