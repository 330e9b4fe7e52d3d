# SPDX-License-Identifier: Apache-2.0
"""Where `matmul/nbits_rows` finds the bits of an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ops.quantized.nbits import BLOCK, operand_bits
from .nbits_int8_tile import scale_and_offset_bytes
from .scale_factors import SUPER_BLOCK

if TYPE_CHECKING:
    from .nbits_rows import NBitsRowsParameters


class StoredElements:
    """Prints where the bits of an element are.

    params: `NBitsRowsParameters`.
    """

    def __init__(self, params: NBitsRowsParameters):
        self.params = params
        #: The bits that an element takes in panels.
        self.panel_bits = operand_bits(params.bits)
        #: The number of elements of a row whose lower four bits lie together, then their upper ones (`pack_stream`).
        self.part = min(params.block, BLOCK)
        #: Bytes of the float16 of a super-block, for all rows of a panel.
        self.shared_bytes = params.width * scale_and_offset_bytes(params.offset, False, params.factored)[1]
        #: Elements of a row of a super-block.
        self.super_block = SUPER_BLOCK

    def upper_byte(self) -> str:
        """Returns C for the byte, of those with the upper bits of a part of a panel, that has those of element r of the
        part in row `lane` of the panel."""
        byte = "lane / 4 * 16 + lane % 2 * 8 + r % 8" if self.params.pairs else "4 * lane + r % 4"
        return f"r / {32 // (self.params.bits - 4)} * {4 * self.params.width} + {byte}"

    def upper_shift(self) -> str:
        """Returns C for the position of these bits in their byte."""
        vector = "(r / 16 * 4 + lane / 2 % 2 * 2 + r / 8 % 2)" if self.params.pairs else "r / 4"
        bits = self.params.bits - 4
        return f"{vector} % {8 // bits} * {bits}"
