# SPDX-License-Identifier: Apache-2.0
"""The kernel of softmax from quantized to quantized elements."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ...ops.quantized.lookup_table import INT8_TYPES
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..integer.dot import zero_name
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class QuantisedParameters(UnitParameters):
    """Parameters of `quantised.c.j2`.

    unit: the C type of an element of x.
    result: the C type of an element of y.
    zero: the zero point of y.
    """

    result: str
    zero: int


class SoftmaxQuantisedRows(Kernel):
    """Computes softmax of one row in a task, with the same bits on every CPU.

    Operands besides x: `table` int32 [256], the exponentials by the distance from the row's maximum; `inverse` float32
    [1], the reciprocal of the result's scale (ops/quantized/softmax.py). Scratch holds the exponentials of a row, int32
    [N].
    """

    name = "rows"
    dtypes = (INT8_TYPES, ("int32",), ("float32",))

    def lower(self, site: Site) -> Lowered:
        R, N = extent_symbols("R", "N")
        params = QuantisedParameters(site.x.c_type, site.y.c_type, site.attrs.zero)
        return Lowered("softmax/quantised", params, {"R": product(site.x.shape[:-1]), "N": site.x.shape[-1]},
                       (Operand("x", 0, R * N), Operand("table", 1, 256), Operand("inverse", 2, 1)),
                       (Operand("y", 0, R * N),), R,
                       f"{site.kind}_{site.x.dtype}_{site.y.dtype}{zero_name(site.attrs.zero)}", self.name,
                       scratch=4 * N)

    def cost(self, site: Site) -> float:
        # For each element 4, to look it up, sum, divide and round it.
        return 4.0 * site.y.size
