# SPDX-License-Identifier: Apache-2.0
"""The kernel of L2 normalization in integers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.lanes import LIMITS
from ...ops.quantized.rsqrt import HALF_ROOT, NEWTON_STEPS
from ..base import Lowered
from ..integer.dot import zero_name
from ..parameters import UnitParameters
from ..reduce.along_axis import AlongAxis
from ..site import Site


@dataclass(frozen=True)
class L2Parameters(UnitParameters):
    """Parameters of `l2.c.j2`.

    zero: the zero point of x.
    minimum, maximum: the limits of the element type.
    steps, half_root: the steps of Newton's method for 1 / sqrt, and sqrt(2) / 2 in Q0.31 (ops/quantized/rsqrt.py).
    """

    zero: int
    minimum: int
    maximum: int
    steps: int = NEWTON_STEPS
    half_root: int = HALF_ROOT


class L2Slices(AlongAxis):
    """Normalizes one slice along the axis in a task, element by element, with the same bits on every CPU."""

    name = "slices"
    dtypes = (("int8", "uint8"),)

    def lower(self, site: Site) -> Lowered:
        params = L2Parameters(site.x.c_type, site.attrs.zero, *LIMITS[site.x.dtype])
        return self.call(site, "norm/l2", params, f"l2_fixed_{site.x.dtype}{zero_name(site.attrs.zero)}")

    def cost(self, site: Site) -> float:
        # 8: an element is squared, then scaled in fixed point.
        return 8.0 * site.likely.x.size
