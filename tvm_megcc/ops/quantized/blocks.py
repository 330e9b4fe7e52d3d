# SPDX-License-Identifier: Apache-2.0
"""Block-quantised weights: 4-bit or 8-bit numbers with a scale and an offset for each block of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..base import OnnxNode
from .int4 import packed
from .nbits import centre


@dataclass(frozen=True)
class Blocks:
    """Weights with value = scale * number + offset.

    numbers: uint8 [rows, K], less than 1 << bits.
    scale, offset: float32 [rows, K / block].
    bits: 4 or 8.
    """

    bits: int
    block: int
    numbers: np.ndarray
    scale: np.ndarray
    offset: np.ndarray

    def dequantized(self) -> np.ndarray:
        """Returns the values, float32 [rows, K]; the product is rounded, then the sum."""
        scale, offset = (np.repeat(array, self.block, 1) for array in (self.scale, self.offset))
        values: np.ndarray = self.numbers.astype(np.float32) * scale + offset
        return values

    @property
    def stored(self) -> np.ndarray:
        """Returns the numbers as stored: two in a byte if they have 4 bits."""
        return packed(self.numbers) if self.bits == 4 else self.numbers

    def centred(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns equivalent numbers and offsets. If all values are scale * (number - zero) with one zero point, the
        numbers are shifted so that it becomes 2^(bits - 1), and the offsets are None."""
        found = np.flatnonzero(self.scale)
        steps = -self.offset.flat[found[0]] / self.scale.flat[found[0]] if found.size else 0.0
        zero, middle = int(np.rint(np.clip(steps, 0, 1 << self.bits))), centre(self.bits)
        moved = self.numbers.astype(np.int16) + (middle - zero)
        if np.array_equal(self.offset, -zero * self.scale) and moved.min() >= 0 and moved.max() < 2 * middle:
            return moved.astype(np.uint8), None
        return self.numbers, self.offset


@dataclass(frozen=True)
class BlockConstants:
    """Weights as constants of a graph: names of numbers, scales and offsets, "" for no offsets."""

    bits: int
    block: int
    depth: int
    operands: tuple[str, str, str]


def block_constants(node: OnnxNode, weights: Blocks) -> BlockConstants:
    """Adds the weights to the graph. A product and a gather of rows may share them."""
    numbers, offset = weights.centred()
    stored = replace(weights, numbers=numbers).stored
    operands = (node.constant(stored), node.constant(weights.scale), "" if offset is None else node.constant(offset))
    return BlockConstants(weights.bits, weights.block, weights.numbers.shape[1], operands)


def block_product(node: OnnxNode, a: str, weights: BlockConstants) -> str:
    """Emits a, float32 [..., M, K], times the transpose of the weights: [..., M, rows]."""
    return node.emit("matmul_nbits", (a, *weights.operands), bits=weights.bits, block=weights.block,
                     activations="int8")[0]


def block_rows(node: OnnxNode, indices: str, weights: BlockConstants) -> str:
    """Gathers rows of the weights: float32 [..., K] for indices [...]."""
    return node.emit("nbits_rows", (indices, *weights.operands), bits=weights.bits, block=weights.block,
                     depth=weights.depth, tied="")[0]
