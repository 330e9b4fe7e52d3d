# SPDX-License-Identifier: Apache-2.0
"""Sums of 8-bit operands over windows and over axes."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, ceildiv, product
from ...ir.types import DTYPES, NHWC, PLAIN
from ...ops.lookup import BYTES
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import WindowParameters
from ..parameters import Parameters
from ..reduce.folds import reduced_axes
from ..site import Site
from .dot import zero_name


@dataclass(frozen=True)
class SumPoolParameters(WindowParameters):
    """Of `sum_pool.c.j2`. unit: C type of an element of x. x_short: what functions of lanes call it. x_zero: the zero
    point."""

    unit: str
    x_short: str
    x_zero: int


class SumPoolBytes(Kernel):
    """Channels last; a task is a row of the result."""

    name = "channels"
    dtypes = (BYTES,)
    fuses_epilogue, lanes = True, "i"

    def layouts(self, site: Site):
        if site.x.rank == 4:
            yield (NHWC,), (NHWC,)

    def lower(self, site: Site) -> Lowered:
        attrs, x, y = site.attrs, site.x, site.y
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        extents = {"N": x.shape[0], "C": x.shape[1], "IH": x.shape[2], "IW": x.shape[3], "OH": y.shape[2],
                   "OW": y.shape[3], "PT": attrs.pads[0], "PL": attrs.pads[1]}
        (kh, kw), (sh, sw), (dh, dw) = attrs.kernel, attrs.strides, attrs.dilations
        params = SumPoolParameters(kh, kw, sh, sw, dh, dw, x.c_type, DTYPES[x.dtype].short, attrs.x_zero)
        return Lowered("integer/sum_pool", params, extents, (Operand("x", 0, N * IH * IW * C),),
                       (Operand("y", 0, N * OH * OW * C),), N * OH,
                       f"sum_pool_{kh}x{kw}_{x.dtype}{zero_name(attrs.x_zero)}", self.name, channels=C)

    def cost(self, site: Site) -> float:
        return 200 + site.y.size * (2.0 * product(site.attrs.kernel) / site.isa.lanes + 1)


@dataclass(frozen=True)
class ReduceSumParameters(Parameters):
    """Of `reduce_sum.c.j2`. unit, x_short, x_zero: as of pools. across: the reduced axis is not the last in memory."""

    unit: str
    x_short: str
    x_zero: int
    across: bool


class ReduceSumBytes(Kernel):
    """[OUTER][N][INNER] in memory; a task is a vector of results, or where INNER is 1, one."""

    name = "lines"
    dtypes = (BYTES,)
    fuses_epilogue, lanes = True, "i"

    def layouts(self, site: Site):
        yield (PLAIN,), (PLAIN,)
        if site.x.rank == site.y.rank == 4:
            yield (NHWC,), (NHWC,)

    def refuse(self, site: Site):
        return None if _lines(site) else "reduced axes that do not lie together"

    def lower(self, site: Site) -> Lowered:
        lines = _lines(site)
        assert lines is not None
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        across = lines[2] != 1
        params = ReduceSumParameters(site.x.c_type, DTYPES[site.x.dtype].short, site.attrs.x_zero, across)
        return Lowered("integer/reduce_sum", params, dict(zip(("OUTER", "N", "INNER"), lines, strict=True)),
                       (Operand("x", 0, outer * n * inner),), (Operand("y", 0, outer * inner),),
                       outer * ceildiv(inner, site.isa.lanes) if across else outer * inner,
                       f"reduce_sum_{'across' if across else 'along'}_{site.x.dtype}{zero_name(site.attrs.x_zero)}",
                       self.name)

    def cost(self, site: Site) -> float:
        return 100 + 2.0 * site.x.size / site.isa.lanes


def _lines(site: Site) -> tuple[Dim, Dim, Dim] | None:
    """What lies before the reduced axes in memory, along them and behind them; None where something lies between."""
    axes = reduced_axes(site.x, site.attrs.axes)
    places = [index for index, (_, reduced) in enumerate(axes) if reduced]
    if len(places) != 1:
        return None
    at, sizes = places[0], [extent for extent, _ in axes]
    return product(sizes[:at]), sizes[at], product(sizes[at + 1:])
