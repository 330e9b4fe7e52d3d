# SPDX-License-Identifier: Apache-2.0
"""Kernels that write where indices say."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dims import product
from ...ir.graph import Attrs, Op
from ...ir.types import DTYPES
from ...ops.scatter import (
    REDUCTIONS,
)
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..reduce.folds import INTEGER_FOLDS
from ..site import Site
from .copies import copy_cost

#: Names of the same among the folds of integers.
_FOLDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


class ScatterKernel(Kernel):
    """Copies the tensor, unless the result lies where it is, and writes the updates in their order."""

    def refuse(self, site: Site):
        wants_arithmetic = site.attrs.reduction != "none" and site.x.dtype in ("float16", "bool")
        return f"no arithmetic on {site.x.dtype}" if wants_arithmetic else None

    def called(self, op: Op, inputs, template: str, params: dict, extents: dict, sizes: tuple, tasks) -> Lowered:
        """The call; sizes: elements of x, of index and of update."""
        x, indices, _ = inputs
        reduction = op.attrs.reduction
        real = x.dtype.startswith("float") or reduction == "none"
        combine = REDUCTIONS[reduction][0] if real else INTEGER_FOLDS[_FOLDS[reduction]].step
        unsigned = f"uint{max(32, 8 * x.itemsize)}_t"
        attrs = Attrs(unit=DTYPES[x.dtype].c_type, combine=combine, unsigned=unsigned, **params)
        operands = (Operand("x", 0, sizes[0]), Operand("index", 1, sizes[1]), Operand("update", 2, sizes[2]))
        suffix = "" if reduction == "none" else f"_{reduction}"
        return Lowered(template, attrs, extents, operands, (Operand("y", 0, sizes[0]),), tasks,
                       f"{op.kind}{suffix}_{indices.dtype[3:]}", self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.0) + copy_cost(site.inputs[2], 4.0)


class ScatterLines(ScatterKernel):
    name = "lines"

    def lower(self, site: Site) -> Lowered:
        x, indices, _ = site.inputs
        axis = site.attrs.axis % x.rank
        extents = {f"X{i}": dim for i, dim in enumerate(x.shape)}
        extents.update((f"I{i}", dim) for i, dim in enumerate(indices.shape))
        whole, part = (extent_symbols(*(f"{letter}{i}" for i in range(x.rank))) for letter in "XI")
        lowered = self.called(site.op, site.inputs, "move/scatter_elements", {"axis": axis, "rank": x.rank}, extents,
                              (product(whole), product(part), product(part)), product(whole[:axis]))
        return replace(lowered, operation=f"{lowered.operation}_axis{axis}of{x.rank}")


class ScatterRows(ScatterKernel):
    """One task: points are anywhere, and their order counts."""

    name = "points"

    def lower(self, site: Site) -> Lowered:
        x, indices, _ = site.inputs
        depth = indices.shape[-1]
        extents = {f"X{i}": x.shape[i] for i in range(depth)}
        extents.update(COUNT=product(indices.shape[:-1]), RUN=product(x.shape[depth:]))
        *axes, count, run = extent_symbols(*extents)
        lowered = self.called(site.op, site.inputs, "move/scatter_points", {"depth": depth}, extents,
                              (product(axes) * run, count * depth, count * run), 1)
        return replace(lowered, operation=f"{lowered.operation}_depth{depth}")
