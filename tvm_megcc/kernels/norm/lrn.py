# SPDX-License-Identifier: Apache-2.0
"""Normalization over neighbouring channels."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product, round_up
from ...ir.types import NHWC
from ..base import CALL, FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..constants import c_constant, constant_name
from ..conv2d.geometry import blocked
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class LrnParameters(Parameters):
    """Parameters of `lrn.c.j2`.

    size: the number of channels whose squares are summed.
    before: the number of these channels that precede the channel itself: floor((size - 1) / 2), as ONNX's LRN says.
    exponent: -beta, the exponent of the divisor, as a C literal.
    bias: ONNX's attribute, the summand of the divisor, as a C literal.
    scale: alpha / size, as a C literal.
    nhwc: whether the layout is nhwc; otherwise it is nchwc.
    """

    size: int
    before: int
    exponent: str
    bias: str
    scale: str
    nhwc: bool


class LrnPixels(Kernel):
    """Normalizes pixel by pixel. The squares of a pixel's channels lie in scratch, with zeros on both sides."""

    name = "pixels"
    dtypes = (FLOAT32,)

    def layouts(self, site: Site):
        for layout in (blocked(site.target), NHWC):
            yield (layout,), (layout,)

    def lower(self, site: Site) -> Lowered:
        lanes, size, layout = site.isa.lanes, site.attrs.size, site.x.layout
        N, C, S = extent_symbols("N", "C", "S")
        shape = site.x.shape
        count = N * S * (C if layout == NHWC else round_up(C, lanes))
        exponent, bias, scale = (c_constant(value, "float32") for value in
                                 (-site.attrs.beta, site.attrs.bias, site.attrs.alpha / size))
        params = LrnParameters(
            size=size, before=(size - 1) // 2, exponent=exponent, bias=bias, scale=scale, nhwc=layout == NHWC)
        # Scratch: the squares of a pixel, float32 [channels], and size - 1 zeros before and after them.
        return Lowered("norm/lrn", params, {"N": shape[0], "C": shape[1], "S": product(shape[2:])},
                       (Operand("x", 0, count),), (Operand("y", 0, count),), N * S,
                       f"lrn{size}{constant_name(exponent, bias, scale)}" + "_nhwc" * (layout == NHWC), self.name,
                       scratch=4 * (round_up(C, lanes) + size - 1), in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        # For each vector: 20 for the power, and one multiply-add for each channel whose square is summed.
        return CALL + site.x.stored * (20.0 + site.attrs.size) / site.isa.lanes
