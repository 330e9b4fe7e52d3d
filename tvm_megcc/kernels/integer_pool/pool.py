# SPDX-License-Identifier: Apache-2.0
"""Kernels of 8-bit operands: the sums of average pooling, max pooling, and sums over axes. Sums are int32."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, ceildiv, product
from ...ir.types import DTYPES, NHWC, PLAIN
from ...ops.quantized.lookup_table import INT8_TYPES
from ..base import CALL, LOOP_CALL, Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import WindowParameters, window_name
from ..integer.dot import zero_name
from ..parameters import Parameters
from ..reduce.reducers import reduced_axes
from ..site import Site


@dataclass(frozen=True)
class WindowPoolBytesParameters(WindowParameters):
    """Parameters of `window.c.j2`, which computes either a maximum or a sum.

    unit: the C type of an element of x.
    minimum: for a maximum, the smallest value of `unit` as a C constant; "" for a sum.
    x_short: for a sum, the suffix of mgc functions for the dtype of x, such as "u8"; "" for a maximum.
    x_zero: for a sum, the zero point of x; None for a maximum.
    """

    unit: str
    minimum: str = ""
    x_short: str = ""
    x_zero: int | None = None


class PoolBytes(Kernel):
    """Pooling, channels last; one task computes one row of the result."""

    dtypes = (INT8_TYPES,)

    def layouts(self, site: Site):
        if site.x.rank == 4:
            yield (NHWC,), (NHWC,)

    @staticmethod
    def call(site: Site, kind: str, params: WindowParameters, name: str) -> Lowered:
        """Returns the call of `window.c.j2`. kind: the beginning of the kernel's symbol. name: the end of it."""
        attrs, x, y = site.attrs, site.x, site.y
        N, C, IH, IW, OH, OW = extent_symbols("N", "C", "IH", "IW", "OH", "OW")
        extents = {"N": x.shape[0], "C": x.shape[1], "IH": x.shape[2], "IW": x.shape[3], "OH": y.shape[2],
                   "OW": y.shape[3], "PT": attrs.pads[0], "PL": attrs.pads[1]}
        window = window_name(attrs.kernel, attrs.strides, attrs.dilations)
        return Lowered("integer_pool/window", params, extents, (Operand("x", 0, N * IH * IW * C),),
                       (Operand("y", 0, N * OH * OW * C),), N * OH, f"{kind}_{window}{name}",
                       "channels", channels=C)


def _window(site: Site) -> tuple[int, int, int, int, int, int]:
    (kh, kw), (sh, sw), (dh, dw) = site.attrs.kernel, site.attrs.strides, site.attrs.dilations
    return kh, kw, sh, sw, dh, dw


class SumPoolBytes(PoolBytes):
    """Sums of the elements of a window minus their zero points, int32. An average pool divides them."""

    name = "channels"
    fuses_epilogue = True
    lane_kind = "i"  # its epilogue works on int32

    def lower(self, site: Site) -> Lowered:
        x, zero = site.x, site.attrs.x_zero
        params = WindowPoolBytesParameters(*_window(site), unit=x.c_type, x_short=DTYPES[x.dtype].short, x_zero=zero)
        return self.call(site, "sum_pool", params, f"_{x.dtype}{zero_name(zero)}")

    def cost(self, site: Site) -> float:
        # For each result: 2 for a vector of a tap, which is widened and added; 1 for the epilogue and the store.
        return CALL + site.y.size * (2.0 * product(site.attrs.kernel) / site.isa.lanes + 1)


class MaxPoolBytes(PoolBytes):
    """Max pooling by vectors of 8-bit elements."""

    name = "channels"

    def lower(self, site: Site) -> Lowered:
        minimum = "INT8_MIN" if site.x.dtype == "int8" else "0"
        params = WindowPoolBytesParameters(*_window(site), unit=site.x.c_type, minimum=minimum)
        return self.call(site, "max_pool", params, f"_{site.x.dtype}")

    def cost(self, site: Site) -> float:
        # For each vector: 1 for each tap, 2 for the store. A vector has bytes, more than twice as many as floats.
        return CALL + site.y.size * (product(site.attrs.kernel) + 2.0) / (2 * site.isa.lanes)


@dataclass(frozen=True)
class ReduceSumParameters(Parameters):
    """Parameters of `reduce_sum.c.j2`.

    unit: the C type of an element of x.
    x_short: the suffix of mgc functions for the dtype of x, such as "u8".
    x_zero: the zero point of x.
    across: whether a vector holds neighbouring results, because the reduced axis is not the last one in memory;
        otherwise it holds neighbouring elements of one sum.
    """

    unit: str
    x_short: str
    x_zero: int
    across: bool


class ReduceSumBytes(Kernel):
    """Sums [OUTER][N][INNER] along N. One task computes a vector of results; if INNER is 1, one result."""

    name = "vectors"
    dtypes = (INT8_TYPES,)
    fuses_epilogue = True
    lane_kind = "i"  # its epilogue works on int32

    def layouts(self, site: Site):
        yield (PLAIN,), (PLAIN,)
        if site.x.rank == site.y.rank == 4:
            yield (NHWC,), (NHWC,)

    def refuse(self, site: Site):
        return None if _around_axis(site) else "reduced axes that do not lie together"

    def lower(self, site: Site) -> Lowered:
        around_axis = _around_axis(site)
        assert around_axis is not None
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        across = around_axis[2] != 1
        params = ReduceSumParameters(unit=site.x.c_type, x_short=DTYPES[site.x.dtype].short,
                                     x_zero=site.attrs.x_zero, across=across)
        return Lowered("integer_pool/reduce_sum", params, dict(zip(("OUTER", "N", "INNER"), around_axis, strict=True)),
                       (Operand("x", 0, outer * n * inner),), (Operand("y", 0, outer * inner),),
                       outer * ceildiv(inner, site.isa.lanes) if across else outer * inner,
                       f"reduce_sum_{'across' if across else 'along'}_{site.x.dtype}{zero_name(site.attrs.x_zero)}",
                       self.name)

    def cost(self, site: Site) -> float:
        # 2: a vector is loaded, widened and added.
        return LOOP_CALL + 2.0 * site.x.size / site.isa.lanes


def _around_axis(site: Site) -> tuple[Dim, Dim, Dim] | None:
    """Returns the elements before, along and after the reduced axes in memory; None if these are not neighbours."""
    axes = reduced_axes(site.x, site.attrs.axes)
    runs = [index for index, (_, reduced) in enumerate(axes) if reduced]
    if len(runs) != 1:
        return None
    axis, sizes = runs[0], [extent for extent, _ in axes]
    return product(sizes[:axis]), sizes[axis], product(sizes[axis + 1:])
