# SPDX-License-Identifier: Apache-2.0
"""The kernel of L2 normalization in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ops.quantized.rsqrt import HALF_ROOT, STEPS
from ..base import Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class L2Parameters(UnitParameters):
    """Parameters of `l2.c.j2`.

    zero: the zero point.
    low, high: limits of the element type.
    steps, half_root: of 1 / sqrt, as in ops/quantized/rsqrt.py.
    """

    zero: int
    low: int
    high: int
    steps: int
    half_root: int


class L2Slices(AlongAxis):
    """Normalizes one slice along the axis in a task, element by element, with the same bits on every CPU."""

    name = "lines"
    dtypes = (("int8", "uint8"),)

    def lower(self, site: Site) -> Lowered:
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        low, high = (-128, 127) if site.x.dtype == "int8" else (0, 255)
        zero, size = site.attrs.zero, outer * n * inner
        return Lowered("norm/l2", L2Parameters(site.x.c_type, zero, low, high, STEPS, HALF_ROOT), self.extents(site),
                       (Operand("x", 0, size),), (Operand("y", 0, size),), outer * inner,
                       f"l2_fixed_{site.x.dtype}" + (f"_z{zero}" if zero >= 0 else f"_zm{-zero}"), self.name)

    def cost(self, site: Site) -> float:
        return 8.0 * site.likely.x.size
