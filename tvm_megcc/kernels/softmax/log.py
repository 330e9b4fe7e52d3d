# SPDX-License-Identifier: Apache-2.0
"""The kernel of log-softmax in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.quantized import log_softmax as operator
from ..base import Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class LogParameters(Parameters):
    """Parameters of `log.c.j2`, all integers. Most are constants of ops/quantized/log_softmax.py.

    sum_bits: integer bits of the sum of exponentials, Q12.19.
    bits: integer bits of the terms of the logarithm, Q6.25.
    quarter: 1/4 as such a term.
    root, fourth_root, log_2: sqrt(1/2), sqrt(sqrt(1/2)) and log(2) in Q0.31.
    over, under, constant, linear: coefficients of the rational function that computes the logarithm, in Q0.31: of the
        numerator's cube, and of the denominator's square, constant and linear terms.
    least, factor: the indices in `tables` of the smallest difference that counts, and of the multiplier from Q5.26 to
        differences.
    low: the smallest value of the element type.
    """

    sum_bits: int
    bits: int
    quarter: int
    root: int
    fourth_root: int
    log_2: int
    over: int
    under: int
    constant: int
    linear: int
    least: int
    factor: int
    low: int


class LogSoftmaxFixedRows(AlongAxis):
    """Computes log-softmax of one row in a task, element by element, with the same bits on every CPU."""

    name = "fixed"
    dtypes = (("int8", "uint8"), ("int32",))

    def layouts(self, site: Site):
        for (layout,), results in super().layouts(site):
            yield (layout, site.inputs[1].layout), results

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        size = outer * n * inner
        parameters = LogParameters(operator.SUM_BITS, operator.BITS, operator.QUARTER, operator.ROOT,
                                   operator.FOURTH_ROOT, operator.LOG_2, operator.OVER, operator.UNDER,
                                   operator.CONSTANT, operator.LINEAR, operator.LEAST, operator.FACTOR,
                                   0 if site.x.dtype == "uint8" else -128)
        return Lowered("softmax/log", parameters, self.extents(site),
                       (Operand("x", 0, size), Operand("tables", 1, operator.ENTRIES)), (Operand("y", 0, size),),
                       outer * inner, f"{site.kind}_{site.x.dtype}", self.name)

    def cost(self, site: Site) -> float:
        return 8.0 * site.likely.x.size
