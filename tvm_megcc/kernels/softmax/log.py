# SPDX-License-Identifier: Apache-2.0
"""The kernel of log-softmax in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.lanes import LIMITS
from ...ops.quantized import log_softmax
from ..base import Lowered, Operand
from ..parameters import UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class LogSoftmaxParameters(UnitParameters):
    """Parameters of `log.c.j2`. All but the first two are constants of ops/quantized/log_softmax.py.

    minimum: the smallest value of the element type.
    sum_bits: integer bits of the sum of exponentials, Q12.19.
    bits: integer bits of the terms of the logarithm, Q6.25.
    quarter: 1/4 as such a term.
    root, fourth_root, log_2: 2^(-1/2), 2^(-1/4) and log(2) in Q0.31.
    numerator_cube, denominator_square, denominator_constant, denominator_linear: the coefficients 0.0545, 0.0595,
        0.4926 and 0.2973, in Q0.31, of the rational function that computes the logarithm (gemmlowp's).
    least, factor: the indices in `tables` of the smallest difference that counts, and of the multiplier from Q5.26 to
        differences.
    """

    minimum: int
    sum_bits: int = log_softmax.SUM_BITS
    bits: int = log_softmax.INTEGER_BITS
    quarter: int = log_softmax.QUARTER
    root: int = log_softmax.ROOT
    fourth_root: int = log_softmax.FOURTH_ROOT
    log_2: int = log_softmax.LOG_2
    numerator_cube: int = log_softmax.NUMERATOR
    denominator_square: int = log_softmax.DENOMINATOR
    denominator_constant: int = log_softmax.CONSTANT
    denominator_linear: int = log_softmax.LINEAR
    least: int = log_softmax.LEAST_INDEX
    factor: int = log_softmax.MULTIPLIER_INDEX


class LogSoftmaxFixedRows(AlongAxis):
    """Computes log-softmax of one slice in a task, element by element, with the same bits on every CPU."""

    name = "fixed"
    dtypes = (("int8", "uint8"), ("int32",))

    def lower(self, site: Site) -> Lowered:
        return self.call(site, "softmax/log", LogSoftmaxParameters(site.x.c_type, LIMITS[site.x.dtype][0]),
                         f"{site.kind}_{site.x.dtype}", (Operand("tables", 1, log_softmax.TABLES_LENGTH),))

    def cost(self, site: Site) -> float:
        # For each element 8, to look it up for the sum, and to subtract and requantize for the result.
        return 8.0 * site.likely.x.size
