# SPDX-License-Identifier: Apache-2.0
"""Gathers rows of weights of 4 or 8 bits with a scale for each block of a row, from what a product with the same
weights reads."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ..base import Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Parameters
from ..site import Site
from .nbits import Stream, offset_kind, panel_operands, panel_width


@dataclass(frozen=True)
class NBitsRowsParameters(Parameters):
    """Parameters of `nbits_rows.c.j2`.

    bits: the bits of a weight.
    block: the number of elements of a row that share a scale.
    offset: "real" if offsets are stored as floats, "zero" if they are stored as zero points, "" without offsets.
    width: the number of rows in a panel.
    stream: whether numbers, scales and offsets are one stream (`Stream`); else they are panels, an operand each.
    group, float16_scales, flipped: of the stream.
    """

    bits: int
    block: int
    offset: str
    width: int
    stream: bool = False
    group: int = 0
    float16_scales: bool = False
    flipped: bool = False


class NBitsRowsGather(Kernel):
    """Dequantizes one row in a task. An index out of range fails the call."""

    name = "rows"
    constants = (1, 2, 3)

    def lower(self, site: Site) -> Lowered:
        attrs, indices, columns = site.attrs, site.inputs[0], site.inputs[1].shape[0]
        COUNT, D, N = extent_symbols("COUNT", "D", "N")
        extents = {"COUNT": indices.size, "D": attrs.depth, "N": columns}
        if attrs.tied == "matmul_nbits_int8":
            stream = Stream.of(site, 1)
            K, extents["K"] = extent_symbols("K")[0], stream.padded
            parameters = NBitsRowsParameters(attrs.bits, attrs.block, stream.offset, stream.width, True, stream.group,
                                             stream.float16_scales, stream.flipped)
            weights = (stream.operand(1, N, K),)
        else:
            offset = offset_kind(site, 2, 3)
            width = panel_width(site.isa, columns) if attrs.tied else 1
            parameters = NBitsRowsParameters(attrs.bits, attrs.block, offset, width)
            rows = ceildiv(N, width) * width
            weights = panel_operands(offset, width, rows * ceildiv(D * attrs.bits, 8), rows * ceildiv(D, attrs.block))
        kind = f"_{parameters.offset}" * bool(parameters.offset) + "_half" * parameters.float16_scales
        return Lowered("matmul/nbits_rows", parameters, extents, present(site, Operand("index", 0, COUNT), *weights),
                       (Operand("y", 0, COUNT * D),), COUNT,
                       f"rows_{attrs.bits}bits_{attrs.block}{kind}_{indices.dtype}",
                       f"{self.name}_{'stream' if parameters.stream else 'panels'}{parameters.width}")

    def cost(self, site: Site) -> float:
        return 2.0 * site.likely.y.size
