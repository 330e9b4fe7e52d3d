# SPDX-License-Identifier: Apache-2.0
"""Cache blocking of a 1x1 convolution in register tiles.

Each row of pixels meets the weights of all output channels of a task. Both take far more than the first cache, so what
a tile does not find there is set by the order of the tiles: a group of weights that takes half of the cache stays
while the pixels of the row pass. Lines of 16 floats that are missed, for each multiply-add:

    1 / (16 * channels kept)  inputs, read again for each group of output channels
    1 / (16 * depth kept)     sums, put aside and taken up again for each group of input channels
    1 / (16 * pixels)         weights, read again for each row
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
    """A block of weights that stays in the first cache: output channels by input channels."""

    channels: int
    depth: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.depth}"

    def sums(self, depth: int, pixels: int) -> int:
        """Returns bytes of the sums of a row that are put aside between groups of input channels."""
        return 4 * self.channels * pixels if self.depth < depth else 0

    @staticmethod
    def of(depth: int, step: int, pixels: int, target: Target) -> CacheBlock | None:
        """Returns the weights to keep; None: none, tiles of pixels stay while weights pass.

        Args:
            depth: input channels. step: output channels of a tile. pixels: of a row.
        """
        room, step = target.l1 // 8, -(-step // BLOCK) * BLOCK
        if depth * step <= room:
            return CacheBlock(room // depth // step * step, depth)
        channels = -(-WIDE // step) * step
        parts = -(-depth // max(STEPS, room // channels // STEPS * STEPS))
        part = -(-depth // parts // STEPS) * STEPS
        while 0 < depth % part < STEPS:
            part -= STEPS
        kept = CacheBlock(channels, part)
        return kept if 4 * kept.sums(depth, pixels) <= target.l2 else None


def chunks_first(inputs: int, weights: int, rows: int, chunks: int, target: Target) -> bool:
    """Whether a row of pixels meets all chunks of weights before the next row does, or a chunk all rows: what reads
    less from beyond the second cache.

    Args:
        inputs, weights: bytes. rows, chunks: parts of them.
    """
    room = target.l2 * 3 // 4
    by_rows = inputs + weights * (1 if weights + inputs // rows <= room else rows)
    by_chunks = weights + inputs * (1 if inputs + weights // chunks <= room else chunks)
    return by_rows < by_chunks
