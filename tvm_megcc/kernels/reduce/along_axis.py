# SPDX-License-Identifier: Apache-2.0
"""Kernels that work along one axis."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.dims import Dim
from ...ir.types import DTYPES, PLAIN
from ...ops.memory import split_at
from ..base import NUMBERS, Kernel, Lowered, Operand, extent_symbols, layout_pair, possible_layouts
from ..parameters import Parameters, UnitParameters
from ..site import Site


class AlongAxis(Kernel):
    """The base class of operators along one axis, N of [OUTER][N][INNER] in memory. A task does one slice of N."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            # A result without the axis has three axes, so no layout nhwc.
            if layout == PLAIN or (layout.kind == "nhwc" and site.y.rank == 4):
                yield layout_pair(site, layout)

    @staticmethod
    def extents(site: Site) -> dict[str, Dim]:
        return dict(zip(("OUTER", "N", "INNER"), split_at(site.x, site.attrs.axis % site.x.rank), strict=True))

    def call(self, site: Site, template: str, params: Parameters, operation: str, tables: tuple[Operand, ...] = (),
             is_reduction: bool = False) -> Lowered:
        """Returns the call with a result y of the shape of x, or with one element of y for each slice.

        Args:
            tables: operands after x, which all slices read.
            is_reduction: whether a slice has one result.
        """
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        slices = outer * inner
        return Lowered(template, params, self.extents(site), (Operand("x", 0, slices * n), *tables),
                       (Operand("y", 0, slices if is_reduction else slices * n),), slices, operation, self.name)


@dataclass(frozen=True)
class ArgExtremeParameters(UnitParameters):
    """Parameters of `arg_extreme.c.j2`.

    better: the C operator by which an element replaces the best one so far.
    is_float: whether elements may be NaN.
    keeps: the C operator by which the best element so far remains, if NaNs are compared as by TVM: the comparison is
        false for NaN, so NaN replaces any element and any element replaces it. "": as in numpy, where NaN is the best.
    """

    better: str = field(repr=False)
    is_float: bool
    keeps: str = field(repr=False)


class ArgExtremeScalars(AlongAxis):
    """Computes arg max or arg min of one slice in a task."""

    name = "scalar"
    dtypes = ((*NUMBERS, "bool"),)

    def lower(self, site: Site) -> Lowered:
        strictly_better = "<" if site.kind == "arg_min" else ">"
        better = strictly_better + ("=" if site.attrs.last else "")
        is_float = site.x.dtype.startswith("float")
        nan_yields = is_float and site.attrs.get("nan_yields", False)
        keeps = strictly_better + ("" if site.attrs.last else "=")
        params = ArgExtremeParameters(site.x.c_type, better, is_float, keeps if nan_yields else "")
        return self.call(site, "reduce/arg_extreme", params,
                         site.kind + "_last" * site.attrs.last + "_tvm" * nan_yields, is_reduction=True)


@dataclass(frozen=True)
class ArgExtremeBytesParameters(UnitParameters):
    """Parameters of `arg_extreme_bytes.c.j2`.

    short: the suffix of mgc functions for the dtype of x, such as "u8".
    minimum: whether the smallest element is sought, not the largest.
    last: whether the last of equal elements is taken, else the first.
    """

    short: str
    minimum: bool
    last: bool


class ArgExtremeBytes(ArgExtremeScalars):
    """Computes arg max or arg min of bytes that lie together, by vectors of 2^16 times the element plus an index."""

    name = "vectors"
    dtypes = (("int8", "uint8"),)
    #: Indices are below 2^16, so that bytes and indices are integers that float32 holds.
    MAX_LENGTH = 1 << 16

    def refuse(self, site: Site):
        extents = self.extents(site)
        if site.isa.lanes == 1 or extents["INNER"] != 1:
            return "only vectors along the last axis in memory"
        if not isinstance(extents["N"], int) or extents["N"] > self.MAX_LENGTH:
            return f"only slices of at most {self.MAX_LENGTH} elements"
        return None

    def lower(self, site: Site) -> Lowered:
        params = ArgExtremeBytesParameters(site.x.c_type, DTYPES[site.x.dtype].short, site.kind == "arg_min",
                                           site.attrs.last)
        return self.call(site, "reduce/arg_extreme_bytes", params,
                         f"{site.kind}{'_last' * site.attrs.last}_{site.x.dtype}", is_reduction=True)


@dataclass(frozen=True)
class CumulativeParameters(UnitParameters):
    """Parameters of `cumulative.c.j2`.

    accumulator: the C type of the sum or product so far; unsigned for integers, which wrap.
    exclusive: whether a result leaves out the element at its own index.
    reverse: whether results accumulate from the end of the axis.
    product: whether elements are multiplied, not added.
    """

    accumulator: str
    exclusive: bool
    reverse: bool
    product: bool


class CumulativeScalars(AlongAxis):
    """Computes the cumulative sums or products of one slice in a task."""

    name = "scalar"
    dtypes = (NUMBERS,)

    def lower(self, site: Site) -> Lowered:
        x, attrs = site.x, site.attrs
        params = CumulativeParameters(
            unit=x.c_type, accumulator=x.c_type if x.dtype.startswith("float") else x.c_unsigned,
            exclusive=attrs.exclusive, reverse=attrs.reverse, product=site.kind == "cumprod")
        return self.call(site, "reduce/cumulative", params,
                         site.kind + "_exclusive" * attrs.exclusive + "_reverse" * attrs.reverse)
