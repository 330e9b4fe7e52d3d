# SPDX-License-Identifier: Apache-2.0
"""Block-quantised weights, numbers of 4 to 8 bits with a scale and an offset for each block of a row, as importers of
GGUF and TFLite files read them; and the products and gathers that use them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..base import OnnxNode
from .int4 import pack_two_per_byte
from .nbits import default_zero_point


@dataclass(frozen=True)
class Blocks:
    """A matrix of weights, scale * number + offset, with a scale and an offset for `block` neighbours of a row.

    bits: 4, 5, 6 or 8.
    block: the numbers of a block.
    numbers: uint8 [rows, K], less than 1 << bits.
    scale, offset: float32 [rows, K / block].
    """

    bits: int
    block: int
    numbers: np.ndarray
    scale: np.ndarray
    offset: np.ndarray

    def dequantized(self) -> np.ndarray:
        """Returns the weights, float32 [rows, K]; the product is rounded, then the sum."""
        scale, offset = (np.repeat(array, self.block, 1) for array in (self.scale, self.offset))
        values: np.ndarray = self.numbers.astype(np.float32) * scale + offset
        return values

    @property
    def stored(self) -> np.ndarray:
        """Returns the numbers as operands have them: uint8 [rows, K], or [rows, K / 2] for 4 bits."""
        return pack_two_per_byte(self.numbers) if self.bits == 4 else self.numbers

    def centred(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns numbers and offsets of the same weights. If all weights are scale * (number - zero) with one zero
        point, the numbers are shifted so that it becomes 2^(bits - 1), and the offsets are None: kernels are faster
        without them."""
        nonzero = np.flatnonzero(self.scale)
        zero = 0
        if nonzero.size:
            zero_point = -self.offset.flat[nonzero[0]] / self.scale.flat[nonzero[0]]
            zero = int(np.rint(np.clip(zero_point, 0, 1 << self.bits)))
        middle = default_zero_point(self.bits)
        shifted = self.numbers.astype(np.int16) + (middle - zero)
        if np.array_equal(self.offset, -zero * self.scale) and shifted.min() >= 0 and shifted.max() < 2 * middle:
            return shifted.astype(np.uint8), None
        return self.numbers, self.offset


@dataclass(frozen=True)
class BlockConstants:
    """Block-quantised weights [rows, depth] as constants of a graph.

    bits, block: as of `Blocks`. operands: the names of numbers, scales and offsets, "" for no offsets.
    """

    bits: int
    block: int
    depth: int
    operands: tuple[str, str, str]


def block_constants(node: OnnxNode, weights: Blocks) -> BlockConstants:
    """Adds weights to the graph as constants. A product and a gather of rows may share them."""
    numbers, offset = weights.centred()
    stored = replace(weights, numbers=numbers).stored
    operands = (node.constant(stored), node.constant(weights.scale), "" if offset is None else node.constant(offset))
    return BlockConstants(weights.bits, weights.block, weights.numbers.shape[1], operands)


def emit_block_matmul(node: OnnxNode, a: str, weights: BlockConstants) -> str:
    """Emits the product of a, float32 [..., M, K], and the transpose of the weights: float32 [..., M, rows]. It may
    quantise a to int8, as llama.cpp and TFLite do."""
    return node.emit("matmul_nbits", (a, *weights.operands), bits=weights.bits, block=weights.block,
                     activations="int8")[0]


def emit_block_gather(node: OnnxNode, indices: str, weights: BlockConstants) -> str:
    """Emits rows of the weights at indices [...]: float32 [..., K]. A pass ties them to a product with the same weights
    later (`NBitsRows`)."""
    return node.emit("nbits_rows", (indices, *weights.operands), bits=weights.bits, block=weights.block,
                     depth=weights.depth, tied="")[0]
