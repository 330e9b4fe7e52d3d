# SPDX-License-Identifier: Apache-2.0
"""Divides a convolution or matrix product into tasks: rows of pixels × chunks of output channels.

A worker starts with an equal share of the tasks, in order, and steals from others when it is done
(c_runtime/src/pool.c). Results do not depend on the number of workers, because the division does not.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from ..context import Context
from ..ir.dims import Dim
from ..target import Target
from .tiling import BLOCK, Tiling

MIN_TASKS = 8
"""Tasks that a large kernel call is divided into, for threads to share."""
MIN_TASK_MACS = 1 << 17
"""Multiply-adds that make a task worth its overhead."""
WEIGHT_READ_PIXELS = 10
"""The cost of reading a weight that lies in another worker's cache, in pixels: the read takes as long as the
multiply-adds of the weight with this many pixels. A rough number: 4 bytes at 45 GB/s take 0.09 ns, in which AVX-512
does 10 multiply-adds (32 a cycle at 3.5 GHz)."""
MANY_TASKS = 8 * MIN_TASKS
"""With more tasks than this, a worker waits for a small part of the time, which costs leave out."""


@dataclass(frozen=True)
class TaskGrid:
    """The division of an image: `rows` rows of `pixels` pixels, and `chunks` parts of its output channels. Tiles have
    `tiling.best_vectors(pixels, …)` vectors."""

    rows: Dim
    pixels: Dim
    tiling: Tiling
    chunks: int

    @staticmethod
    def of(tiling: Tiling, depth: int, channels: int, images: Dim, rows: Dim, pixels: Dim, any_rows: bool,
           context: Context) -> TaskGrid:
        """Returns the grid of least cost.

        Args:
            depth: weights of an output channel. channels: output channels of one group. images: images times groups.
            rows, pixels: of an image of the output.
            any_rows: the shape of the image does not matter, so its rows may have any length.
        """
        target = context.target
        if not isinstance(rows, int) or not isinstance(pixels, int):
            rows, pixels = (1, rows * pixels) if any_rows else (rows, pixels)
            known_pixels = pixels if isinstance(pixels, int) else None
            step = tiling.best_vectors(known_pixels, channels) * tiling.lanes
            return TaskGrid(rows, pixels, tiling, chunk_count(depth, channels, step, images * rows, pixels, target))
        # At -O size there is one tile for all layers. Tiles in assembler differ by more cycles than a better balance of
        # threads gains.
        threads_matter = isinstance(images, int) and not context.compact and not tiling.assembler and target.l2 > 0
        return _cheapest_grid(tiling, depth, channels, images, rows, pixels, any_rows, threads_matter, target)

    def packed_block(self, channels: int, compact: bool) -> tuple[int, tuple[int, ...]]:
        """Returns (output channels in a block of packed weights, arguments `block` and `step` of the packer). There are
        no arguments for the packer's default block, which kernels at `-O size` (compact) share.

        channels: output channels of one group.
        """
        known_pixels = self.pixels if isinstance(self.pixels, int) else None
        vectors = self.tiling.best_vectors(known_pixels, channels)
        block = BLOCK if compact else self.tiling.block(known_pixels, vectors)
        return block, (block, vectors * self.tiling.lanes) if block > BLOCK else ()


@lru_cache(maxsize=1024)
def _cheapest_grid(tiling: Tiling, depth: int, channels: int, images: Dim, rows: int, pixels: int, any_rows: bool,
                   threads_matter: bool, target: Target) -> TaskGrid:
    """Returns the grid of least cost. threads_matter: the cost counts load imbalance. Others: as in `TaskGrid.of`."""
    options: list[tuple[tuple[float, int, int], TaskGrid]] = []
    for height, width in _row_splits(rows, pixels) if any_rows else [(rows, pixels)]:
        best = tiling.best_vectors(width, channels)
        for vectors in tiling.tile_vectors(width) if threads_matter and not tiling.vectors else (best,):
            step = vectors * tiling.lanes
            chunks = chunk_count(depth, channels, step, images * height, width, target)
            cost = height * tiling.total_cost(width, channels, vectors)
            if threads_matter and is_large(images * rows * pixels * depth * channels):
                cost *= load_imbalance(channels, step, chunks, images * height, width)
            # Among equal costs, short rows give the most even tasks. In WebAssembly (`hoists_loads`) long rows are
            # better, because a block of weights stays in L1 while a row is computed (blocking.py).
            rank = round(cost, 3), -width if tiling.hoists_loads else width, -vectors
            tiles = tiling if vectors == best else replace(tiling, vectors=vectors)
            options.append((rank, TaskGrid(height, width, tiles, chunks)))
    return min(options, key=lambda option: option[0])[1]


def is_large(macs: Dim) -> bool:
    """Returns whether this many multiply-adds are worth sharing among threads; False if the number is unknown."""
    return isinstance(macs, int) and macs >= MIN_TASKS * MIN_TASK_MACS


def _row_splits(height: int, width: int) -> list[tuple[int, int]]:
    """Returns the candidates (rows, pixels of a row) for an image whose shape does not matter.

    They are those with at most 256 pixels a row: a row wastes less than one tile, at most 28 pixels, so longer rows
    hardly waste a smaller part. If there are none, the candidate is the one with the shortest rows."""
    options = [(rows, height // rows * width) for rows in range(1, height + 1) if height % rows == 0]
    return [option for option in options if option[1] <= 256] or options[-1:]


def chunk_count(depth: int, channels: int, step: int, rows: Dim, pixels: Dim, target: Target) -> int:
    """Returns the number of chunks that the output channels are divided into. A chunk consists of whole steps, its
    weights fit in half of L2, and there are enough tasks for threads if a few rows have much work.

    Args:
        depth: weights of an output channel. step: output channels of a tile. rows: tasks for one chunk.
        pixels: pixels of a row.
    """
    if not target.l2:
        return 1
    fitting = max(1, (target.l2 // 2) // (4 * depth * step))
    chunks = -(-channels // (fitting * step))
    if is_large(rows * pixels * depth * channels):
        chunks = max(chunks, min(-(-MIN_TASKS // rows), -(-channels // step)))
    return chunks


def load_imbalance(channels: int, step: int, chunks: int, rows: int, pixels: float = math.inf) -> float:
    """Returns the factor on the cost, 1 to 1.25, for the time that one of two workers waits for the other.

    It is 0.75 * 1 + 0.25 * 2s. A run with one worker, which never waits, has the factor 1 and weighs three quarters. A
    run with two has the factor 2s, where s is the share of the work that the busier one does (0.5: equal shares), and
    weighs one quarter. These weights are a choice, not a measurement.

    Args:
        step: output channels of a tile. chunks: parts of whole steps, as equal as possible. rows: tasks of a part.
        pixels: pixels of a row; by default, stealing a task costs nothing.
    """
    if rows * chunks > MANY_TASKS:
        return 1.0
    steps = -(-channels // step)
    ends = [min(channels, chunk * steps // chunks * step) for chunk in range(chunks + 1)]
    tasks = [(start, end - start) for start, end in pairwise(ends) for _ in range(rows)]
    shares = deque(tasks[:len(tasks) // 2]), deque(tasks[len(tasks) // 2:])
    done, read_chunks = [0.0, 0.0], [{start for start, _ in share} for share in shares]
    while shares[0] or shares[1]:
        worker = done[1] < done[0]
        start, size = (shares[worker] or shares[not worker]).popleft()
        done[worker] += size if start in read_chunks[worker] else size * (1 + WEIGHT_READ_PIXELS / pixels)
        read_chunks[worker].add(start)
    return 0.75 + 0.5 * min(1, max(done) / (channels * rows))
