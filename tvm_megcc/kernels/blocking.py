# SPDX-License-Identifier: Apache-2.0
"""Cache blocking of 1x1 convolutions and matrix products in register tiles.

A task multiplies a row of pixels by the weights of all its output channels. Neither fits in L1, so the order of the
tiles determines the cache misses. The best order keeps a block of the weights, `channels` output channels by `depth`
input channels, in half of L1 while all pixels of the row are multiplied by it. Misses of cache lines (16 floats) per
multiply-add are then:

    inputs   1 / (16 * channels)  read again for each block of output channels
    sums     1 / (16 * depth)     stored and reloaded for each block of input channels
    weights  1 / (16 * pixels)    read again for each row
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.dims import ceildiv, round_up
from ..target import Target
from .tiling import BLOCK

SPLIT_CHANNELS = 2 * BLOCK
"""Output channels of a block of weights that does not span all input channels."""

ASSEMBLER_STEPS = 8
"""Input channels of one iteration of the loop in assembler, and the minimum that it works on."""


@dataclass(frozen=True)
class CacheBlock:
    """A block of weights that stays in L1. channels: its output channels. depth: its input channels."""

    channels: int
    depth: int

    def __str__(self) -> str:
        return f"{self.channels}x{self.depth}"

    def partial_sum_bytes(self, depth: int, pixels: int) -> int:
        """Returns the bytes of a row's partial sums between blocks of input channels. depth: all input channels."""
        return 4 * self.channels * pixels if self.depth < depth else 0

    @staticmethod
    def of(depth: int, step: int, pixels: int, target: Target) -> CacheBlock | None:
        """Returns the weights to keep in L1; None if the partial sums of a row would not fit in L2.

        Args:
            depth: input channels. step: output channels of a tile. pixels: pixels of a row.
        """
        budget, step = target.l1 // 8, round_up(step, BLOCK)  # budget: the floats of half of L1
        if depth * step <= budget:
            return CacheBlock(budget // depth // step * step, depth)
        # All input channels do not fit: as few and as equal parts of them as possible.
        channels = round_up(SPLIT_CHANNELS, step)
        max_depth = max(ASSEMBLER_STEPS, budget // channels // ASSEMBLER_STEPS * ASSEMBLER_STEPS)
        part_depth = round_up(ceildiv(depth, ceildiv(depth, max_depth)), ASSEMBLER_STEPS)
        # The last part must not have fewer channels than the loop in assembler works on.
        while 0 < depth % part_depth < ASSEMBLER_STEPS:
            part_depth -= ASSEMBLER_STEPS
        block = CacheBlock(channels, part_depth)
        # Partial sums may take a quarter of L2.
        return block if block.partial_sum_bytes(depth, pixels) <= target.l2 / 4 else None


def chunks_first(inputs: int, weights: int, rows: int, chunks: int, target: Target) -> bool:
    """Returns whether the loop over chunks of weights should be inside the loop over rows of pixels, not around it.
    The better order reads fewer bytes from outside L2.

    Args:
        inputs, weights: bytes of all pixels and of all weights. rows, chunks: the parts that they are divided into.
    """
    budget = target.l2 * 3 // 4  # not all of it, because results pass through L2 as well
    # The loop inside reads all of its bytes for each iteration of the loop outside; only for the first one if they stay
    # in L2 beside those of an iteration outside.
    times_weights_are_read = 1 if weights + inputs // rows <= budget else rows
    times_inputs_are_read = 1 if inputs + weights // chunks <= budget else chunks
    return inputs + weights * times_weights_are_read < weights + inputs * times_inputs_are_read
