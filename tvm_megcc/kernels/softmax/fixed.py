# SPDX-License-Identifier: Apache-2.0
"""The kernels of softmax in integers: TFLite's for 8-bit operands (ops/quantized/softmax_int8.py) and for int16
(ops/quantized/softmax_int16.py). Names of kernels and of the operator say "wide" for 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.lanes import LIMITS
from ...ops.quantized.softmax_int8 import SUM_BITS
from ...ops.quantized.softmax_int16 import POINTS
from ..base import Lowered, Operand
from ..parameters import Parameters, UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class SoftmaxFixedParameters(UnitParameters):
    """Parameters of `fixed.c.j2`.

    x_minimum: the smallest value of the operand's type.
    result_unit, result_bits: the C type and the bits of an element of the result.
    result_minimum, result_maximum: the limits of the result's type.
    length: the number of elements of the table; exponentials beyond it are 0.
    sum_bits: integer bits of the sum of exponentials.
    """

    x_minimum: int
    result_unit: str
    result_bits: int
    result_minimum: int
    result_maximum: int
    length: int
    sum_bits: int = SUM_BITS


class SoftmaxFixedRows(AlongAxis):
    """Computes softmax of one slice of 8-bit elements in a task, with the same bits on every CPU.

    Operand 1 is the table of exponentials, one for each difference to the maximum.
    """

    name = "fixed"
    dtypes = (("int8", "uint8"), ("int32",))

    def lower(self, site: Site) -> Lowered:
        x, y, (length,) = site.x, site.y, site.inputs[1].shape
        limits = np.iinfo(y.dtype)
        params = SoftmaxFixedParameters(
            unit=x.c_type, x_minimum=LIMITS[x.dtype][0], result_unit=y.c_type, result_bits=limits.bits,
            result_minimum=int(limits.min), result_maximum=int(limits.max), length=length)
        return self.call(site, "softmax/fixed", params,
                         f"{site.kind}_{x.dtype}{'_wide' if limits.bits == 16 else ''}_t{length}",
                         (Operand("table", 1, length),))

    def cost(self, site: Site) -> float:
        # For each element 6, to look it up for the sum and again for the result, and to divide it in fixed point.
        return 6.0 * site.likely.x.size


@dataclass(frozen=True)
class SoftmaxInt16Parameters(Parameters):
    """Parameters of `int16.c.j2`.

    significand, shift: differences are multiplied by significand * 2^(shift - 31).
    points: the number of points of a table.
    """

    significand: int
    shift: int
    points: int = POINTS


class SoftmaxInt16Rows(AlongAxis):
    """Computes softmax of one slice of int16 in a task, element by element, with the same bits on every CPU.

    Operand 1 holds two tables to interpolate in: of exponentials and of reciprocals.
    """

    name = "wide"
    dtypes = (("int16",), ("int16",))

    def lower(self, site: Site) -> Lowered:
        significand, shift = site.attrs.significand, site.attrs.shift
        return self.call(site, "softmax/int16", SoftmaxInt16Parameters(significand, shift),
                         f"{site.kind}_{significand:x}r{31 - shift}", (Operand("tables", 1, 2 * POINTS),))

    def cost(self, site: Site) -> float:
        # For each element 20, to interpolate in the table and multiply by the interpolated reciprocal.
        return 20.0 * site.likely.x.size
