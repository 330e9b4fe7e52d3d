# SPDX-License-Identifier: Apache-2.0
"""Cache blocking of a 1x1 convolution in register tiles.

Each row of pixels is multiplied by the weights of all output channels of a task. Neither fits in L1, so the order of
the tiles determines the cache misses. The best order keeps a group of weights in half of L1 while the pixels of a row
pass. Cache lines of 16 floats missed per multiply-add:

    1 / (16 * channels kept)  inputs: read again for each group of output channels
    1 / (16 * depth kept)     sums: stored and reloaded for each group of input channels
    1 / (16 * pixels)         weights: read again for each row
"""

from __future__ import annotations

from dataclasses import dataclass

from ..target import Target
from .tiling import BLOCK

WIDE = 2 * BLOCK
"""Output channels whose weights are kept where those of one block over all input channels are too many."""

STEPS = 8
"""Input channels that a round of the loop in assembler takes: there is no loop over fewer."""


@dataclass(frozen=True)
class CacheBlock:
    """A block of weights that stays in L1. channels: output channels. depth: input channels."""

    channels: int
    depth: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.depth}"

    def sums(self, depth: int, pixels: int) -> int:
        """Returns the bytes of a row's partial sums that are stored between groups of input channels."""
        return 4 * self.channels * pixels if self.depth < depth else 0

    @staticmethod
    def of(depth: int, step: int, pixels: int, target: Target) -> CacheBlock | None:
        """Returns the weights to keep in L1; None if tiles of pixels should stay there instead.

        Args:
            depth: input channels. step: output channels of a tile. pixels: pixels of a row.
        """
        budget, step = target.l1 // 8, -(-step // BLOCK) * BLOCK
        if depth * step <= budget:
            return CacheBlock(budget // depth // step * step, depth)
        channels = -(-WIDE // step) * step
        parts = -(-depth // max(STEPS, budget // channels // STEPS * STEPS))
        part = -(-depth // parts // STEPS) * STEPS
        while 0 < depth % part < STEPS:
            part -= STEPS
        block = CacheBlock(channels, part)
        return block if 4 * block.sums(depth, pixels) <= target.l2 else None


def chunks_first(inputs: int, weights: int, rows: int, chunks: int, target: Target) -> bool:
    """Returns whether all chunks of weights should pass for each row of pixels, not all rows for each chunk. It
    compares the bytes that either order reads from beyond L2.

    Args:
        inputs, weights: bytes. rows, chunks: number of parts that they are divided into.
    """
    budget = target.l2 * 3 // 4
    by_rows = inputs + weights * (1 if weights + inputs // rows <= budget else rows)
    by_chunks = weights + inputs * (1 if inputs + weights // chunks <= budget else chunks)
    return by_rows < by_chunks
