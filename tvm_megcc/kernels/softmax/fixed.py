# SPDX-License-Identifier: Apache-2.0
"""The kernels of softmax in integers: TFLite's for 8-bit operands (ops/quantized/softmax_int8.py) and for int16
(ops/quantized/softmax_int16.py)."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.quantized.softmax_int8 import SUM_BITS
from ...ops.quantized.softmax_int16 import POINTS
from ..base import Lowered, Operand, extent_symbols
from ..parameters import Parameters, UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class FixedParameters(UnitParameters):
    """Parameters of `fixed.c.j2`.

    least: least value of the operand's type.
    result, bits, low, high: the result's type and its limits.
    sum_bits: integer bits of sums.
    length: number of elements of the table.
    """

    least: int
    result: str
    bits: int
    low: int
    high: int
    sum_bits: int
    length: int


class SoftmaxFixedRows(AlongAxis):
    """Computes softmax of one row of 8-bit numbers in a task, element by element, with the same bits on every CPU.

    Operand 1 is the table of exponentials, one for each difference to the maximum.
    """

    name = "fixed"
    dtypes = (("int8", "uint8"), ("int32",))

    def layouts(self, site: Site):
        for (layout,), results in super().layouts(site):
            yield (layout, site.inputs[1].layout), results

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        least, result = 0 if site.x.dtype == "uint8" else -128, site.outputs[0]
        bits = 16 if result.dtype == "int16" else 8
        low = 0 if result.dtype == "uint8" else -2**(bits - 1)
        size, (length,) = outer * n * inner, site.inputs[1].shape
        parameters = FixedParameters(site.x.c_type, least, result.c_type, bits, low, low + 2**bits - 1, SUM_BITS,
                                     length)
        return Lowered("softmax/fixed", parameters, self.extents(site),
                       (Operand("x", 0, size), Operand("table", 1, length)), (Operand("y", 0, size),), outer * inner,
                       f"{site.kind}_{site.x.dtype}{'_wide' if bits == 16 else ''}_t{length}", self.name)

    def cost(self, site: Site) -> float:
        return 6.0 * site.likely.x.size


@dataclass(frozen=True)
class WideParameters(Parameters):
    """Parameters of `wide.c.j2`.

    significand, shift: fixed-point factor on differences.
    points: number of points of a table.
    """

    significand: int
    shift: int
    points: int


class SoftmaxWideRows(AlongAxis):
    """Computes softmax of one row of int16 in a task, element by element, with the same bits on every CPU.

    Operand 1 holds two tables to interpolate in: of exponentials and of reciprocals.
    """

    name = "wide"
    dtypes = (("int16",), ("int16",))

    def layouts(self, site: Site):
        for (layout,), results in super().layouts(site):
            yield (layout, site.inputs[1].layout), results

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        size, (significand, shift) = outer * n * inner, (site.attrs.significand, site.attrs.shift)
        return Lowered("softmax/wide", WideParameters(significand, shift, POINTS), self.extents(site),
                       (Operand("x", 0, size), Operand("tables", 1, 2 * POINTS)), (Operand("y", 0, size),),
                       outer * inner, f"{site.kind}_{significand:x}r{31 - shift}", self.name)

    def cost(self, site: Site) -> float:
        return 20.0 * site.likely.x.size
