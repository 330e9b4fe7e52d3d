# SPDX-License-Identifier: Apache-2.0
"""Kernels that work along one axis."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.dims import Dim
from ...ir.types import PLAIN
from ...ops.memory import split_at
from ..base import NUMBERS, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..parameters import UnitParameters
from ..site import Site


class AlongAxis(Kernel):
    """The base class of operators along one axis, N of [OUTER][N][INNER] in memory."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout == PLAIN or (layout.kind == "nhwc" and site.y.rank == 4):
                yield (layout,), (layout,)

    @staticmethod
    def extents(site: Site) -> dict[str, Dim]:
        return dict(zip(("OUTER", "N", "INNER"), split_at(site.x, site.attrs.axis % site.x.rank), strict=True))


@dataclass(frozen=True)
class ArgExtremeParameters(UnitParameters):
    """Parameters of `arg_extreme.c.j2`. better: C comparison for a new best element. real: elements may be NaN. keeps:
    C comparison for keeping the best so far, which is false for NaN; "" if NaN is the best."""

    better: str = field(repr=False)
    real: bool
    keeps: str = field(repr=False)


class ArgExtremeScalars(AlongAxis):
    name = "scalar"
    dtypes = ((*NUMBERS, "bool"),)

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        better = ("<" if site.kind == "arg_min" else ">") + ("=" if site.attrs.last else "")
        real = site.x.dtype.startswith("float")
        yields = real and site.attrs.get("nan_yields", False)
        keeps = better[0] + ("" if site.attrs.last else "=")
        params = ArgExtremeParameters(site.x.c_type, better, real, keeps if yields else "")
        return Lowered("reduce/arg_extreme", params, self.extents(site),
                       (Operand("x", 0, outer * n * inner),), (Operand("y", 0, outer * inner),), outer * inner,
                       site.kind + "_last" * site.attrs.last + "_tvm" * yields, self.name)


@dataclass(frozen=True)
class CumulativeParameters(UnitParameters):
    """Parameters of `cumulative.c.j2`.

    sum: the C type of the accumulator.
    exclusive: whether a result leaves out the element at its own index.
    reverse: whether results accumulate from the end of the axis.
    product: whether elements are multiplied, not added.
    """

    sum: str
    exclusive: bool
    reverse: bool
    product: bool


class CumulativeScalars(AlongAxis):
    name = "scalar"
    dtypes = (NUMBERS,)

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        x, size = site.x, outer * n * inner
        params = CumulativeParameters(x.c_type, x.c_type if x.dtype.startswith("float") else x.c_unsigned,
                                      site.attrs.exclusive, site.attrs.reverse, site.kind == "cumprod")
        what = site.kind + "_exclusive" * site.attrs.exclusive + "_reverse" * site.attrs.reverse
        return Lowered("reduce/cumulative", params, self.extents(site), (Operand("x", 0, size),),
                       (Operand("y", 0, size),), outer * inner, what, self.name)
