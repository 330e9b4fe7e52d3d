# SPDX-License-Identifier: Apache-2.0
"""The kernel `rows` of nbits_rows: gathers rows of weights of 4 to 8 bits, such as the embeddings of tokens, from the
packed weights that a product reads as well."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ...ops.quantized.nbits import operand_bits
from ..base import Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Parameters, Scope
from ..site import Site
from .nbits import Stream, offset_kind, panel_operands, panel_width
from .nbits_rows_tile import StoredElements


@dataclass(frozen=True)
class NBitsRowsParameters(Parameters):
    """Parameters of `nbits_rows.c.j2`.

    bits: the bits of a weight.
    block: the number of elements of a row that share a scale.
    offset: "real" if offsets are stored as floats, "zero" if they are stored as zero points, "" without offsets.
    width: the number of rows in a panel.
    stream: whether elements, scales and offsets are one stream (`Stream`); else each is an operand, packed as panels.
    group, float16_scales, flipped, pairs, factored, tiled: as in `Stream`.
    """

    bits: int
    block: int
    offset: str
    width: int
    stream: bool = False
    group: int = 0
    float16_scales: bool = False
    flipped: str = ""
    pairs: bool = False
    factored: bool = False
    tiled: bool = False

    def microkernel(self, scope: Scope) -> StoredElements:
        return StoredElements(self)


class NBitsRowsGather(Kernel):
    """Gathers rows of [N, D] to y [indices, D] of floats. An index out of range fails the call. One task converts one
    row."""

    name = "rows"
    constants = (1, 2, 3)

    def lower(self, site: Site) -> Lowered:
        attrs, indices, columns = site.attrs, site.inputs[0], site.inputs[1].shape[0]
        COUNT, D, N = extent_symbols("COUNT", "D", "N")
        extents = {"COUNT": indices.size, "D": attrs.depth, "N": columns}
        # The weights are packed as for the product that they are tied to, with which they are stored once.
        if attrs.tied == "matmul_nbits_int8":
            stream = Stream.of(site, 1)
            K, extents["K"] = extent_symbols("K")[0], stream.padded
            parameters = NBitsRowsParameters(
                bits=attrs.bits, block=attrs.block, offset=stream.offset, width=stream.width, stream=True,
                group=stream.group, float16_scales=stream.float16_scales, flipped=stream.flipped,
                pairs=stream.pairs, factored=stream.factored, tiled=stream.tiled)
            weights = (stream.operand(1, N, K),)
        else:
            offset = offset_kind(site, scale=2, offset=3)
            width = panel_width(site.isa, columns) if attrs.tied else 1
            parameters = NBitsRowsParameters(bits=attrs.bits, block=attrs.block, offset=offset, width=width)
            stored_rows = ceildiv(N, width) * width
            weights = panel_operands(offset, width, weight_bytes=stored_rows * ceildiv(D * operand_bits(attrs.bits), 8),
                                     scales=stored_rows * ceildiv(D, attrs.block))
        suffix = f"_{parameters.offset}" * bool(parameters.offset) + "_half" * parameters.float16_scales \
            + "_factored" * parameters.factored
        return Lowered("matmul/nbits_rows", parameters, extents, present(site, Operand("index", 0, COUNT), *weights),
                       (Operand("y", 0, COUNT * D),), COUNT,
                       f"rows_{attrs.bits}bits_{attrs.block}{suffix}_{indices.dtype}",
                       f"{self.name}_{'stream' if parameters.stream else 'panels'}{parameters.width}")

    def cost(self, site: Site) -> float:
        # 2: an element is extracted, converted and scaled.
        return 2.0 * site.likely.y.size
