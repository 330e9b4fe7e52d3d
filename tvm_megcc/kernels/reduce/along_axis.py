# SPDX-License-Identifier: Apache-2.0
"""Kernels on the lines of one axis."""

from __future__ import annotations

from ...ir.dims import Dim, product
from ...ir.graph import Attrs, Op
from ...ir.types import DTYPES, PLAIN, TensorType
from ...ops.memory import memory_axes
from ..base import NUMBERS, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..site import Site


class AlongAxis(Kernel):
    """Operators on the lines of one axis: [OUTER][N][INNER] in memory."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout == PLAIN or (layout.kind == "nhwc" and site.y.rank == 4):
                yield (layout,), (layout,)

    @staticmethod
    def extents(op: Op, x: TensorType) -> dict[str, Dim]:
        axes = memory_axes(x)
        position = next(index for index, (axis, _, _) in enumerate(axes) if axis == op.attrs.axis % x.rank)
        sizes = [extent for _, _, extent in axes]
        return {"OUTER": product(sizes[:position]), "N": sizes[position], "INNER": product(sizes[position + 1:])}


class ArgExtremeScalars(AlongAxis):
    name = "scalar"
    dtypes = ((*NUMBERS, "bool"),)

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        better = ("<" if site.kind == "arg_min" else ">") + ("=" if site.attrs.last else "")
        real = site.x.dtype.startswith("float")
        yields = real and site.attrs.get("nan_yields", False)
        keeps = better[0] + ("" if site.attrs.last else "=")
        params = Attrs(better=better, unit=DTYPES[site.x.dtype].c_type, real=real, keeps=keeps if yields else "")
        return Lowered("reduce/arg_extreme", params, self.extents(site.op, site.x),
                       (Operand("x", 0, outer * n * inner),), (Operand("y", 0, outer * inner),), outer * inner,
                       site.kind + "_last" * site.attrs.last + "_tvm" * yields, self.name)


class CumulativeScalars(AlongAxis):
    name = "scalar"
    dtypes = (NUMBERS,)

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        dtype, size = site.x.dtype, outer * n * inner
        wide = "uint64_t" if site.x.itemsize == 8 else "uint32_t"
        params = Attrs(unit=DTYPES[dtype].c_type, sum=DTYPES[dtype].c_type if dtype.startswith("float") else wide,
                       exclusive=site.attrs.exclusive, reverse=site.attrs.reverse, product=site.kind == "cumprod")
        what = site.kind + "_exclusive" * site.attrs.exclusive + "_reverse" * site.attrs.reverse
        return Lowered("reduce/cumulative", params, self.extents(site.op, site.x), (Operand("x", 0, size),),
                       (Operand("y", 0, size),), outer * inner, what, self.name)
