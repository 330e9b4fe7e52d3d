# SPDX-License-Identifier: Apache-2.0
"""Divides a layer in register tiles into tasks: rows of pixels × chunks of output channels.

Each worker has an equal share of the tasks, in order, and steals from others when it is done (c_runtime/src/pool.c).
Results do not depend on the number of workers, because the division does not.
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
from .tiling import Tiling

TASKS, LEAST_MACS = 8, 1 << 17
"""Tasks that an instruction should give, for threads to share; multiply-adds that make a task worth that."""
READING = 10
"""Pixels more that a row could have in the time in which a worker reads weights that the other one has worked with:
45 GB/s where AVX-512 does 28 multiply-adds a weight."""


@dataclass(frozen=True)
class TaskGrid:
    """`rows` of `pixels` of an image, by tiles of `tiling.best(pixels, …)` vectors, and `chunks` of its channels."""

    rows: Dim
    pixels: Dim
    tiling: Tiling
    chunks: int

    @staticmethod
    def of(tiling: Tiling, depth: int, channels: int, images: Dim, rows: Dim, pixels: Dim, any_rows: bool,
           context: Context) -> TaskGrid:
        """Returns the grid of least cost.

        Args:
            depth: weights of an output channel. channels: channels of one group. images: images times groups.
            any_rows: the shape of the image does not matter, so its rows may have any length.
        """
        target = context.target
        if not isinstance(rows, int) or not isinstance(pixels, int):
            rows, pixels = (1, rows * pixels) if any_rows else (rows, pixels)
            row = pixels if isinstance(pixels, int) else None
            step = tiling.best(row, channels) * tiling.lanes
            return TaskGrid(rows, pixels, tiling, chunks_of(depth, channels, step, images * rows, pixels, target))
        # At -O size there is one tile for all layers. In assembler, tiles differ by more than load imbalance costs.
        shared = isinstance(images, int) and not context.compact and not tiling.assembler and target.l2 > 0
        return _least(tiling, depth, channels, images, rows, pixels, any_rows, shared, target)


@lru_cache(maxsize=1024)
def _least(tiling: Tiling, depth: int, channels: int, images: Dim, rows: int, pixels: int, any_rows: bool,
           shared: bool, target: Target) -> TaskGrid:
    options = []
    for height, width in _equal_rows(rows, pixels) if any_rows else [(rows, pixels)]:
        best = tiling.best(width, channels)
        for vectors in tiling.widths(width) if shared and not tiling.vectors else (best,):
            step = vectors * tiling.lanes
            chunks = chunks_of(depth, channels, step, images * height, width, target)
            cost = height * tiling.total(width, channels, vectors)
            if shared and is_large(images * rows * pixels * depth * channels):
                cost *= load_imbalance(channels, step, chunks, images * height, width)
            # Among equal costs, short rows share out best; but if weights stay in L1 (`blocking`), long ones do.
            options.append((round(cost, 3), -width if tiling.hoists_loads else width, -vectors, height, chunks, best))
    _, width, vectors, height, chunks, best = min(options)
    width = abs(width)
    return TaskGrid(height, width, tiling if best == -vectors else replace(tiling, vectors=-vectors), chunks)


def is_large(macs: Dim) -> bool:
    """Returns whether this many multiply-adds are worth sharing among threads; False if the number is unknown."""
    return isinstance(macs, int) and macs >= TASKS * LEAST_MACS


def _equal_rows(height: int, width: int) -> list[tuple[int, int]]:
    """Returns (rows, pixels of a row) for an image whose shape does not matter: if possible, 256 pixels or fewer."""
    options = [(rows, height // rows * width) for rows in range(1, height + 1) if height % rows == 0]
    return [option for option in options if option[1] <= 256] or options[-1:]


def chunks_of(depth: int, channels: int, step: int, rows: Dim, pixels: Dim, target: Target) -> int:
    """Returns the number of chunks, of whole steps, for the output channels. The weights of a chunk fit in half of L2,
    and there are enough tasks for threads if a few rows have much work.

    Args:
        depth: weights of an output channel. step: output channels of a tile. rows: tasks for one chunk.
        pixels: pixels of a row.
    """
    if not target.l2:
        return 1
    fitting = max(1, (target.l2 // 2) // (4 * depth * step))
    chunks = -(-channels // (fitting * step))
    if is_large(rows * pixels * depth * channels):
        chunks = max(chunks, min(-(-TASKS // rows), -(-channels // step)))
    return chunks


def load_imbalance(channels: int, step: int, chunks: int, rows: int, pixels: float = math.inf) -> float:
    """Returns the factor on the cost, 1 to 1.25, for one of two workers that waits for the other.

    The cost with one worker counts 0.75. The cost with two counts 0.5 times the larger share: with equal shares, that
    is 0.25, and the factor is 1.

    Args:
        step: output channels of a tile. chunks: parts of whole steps, as equal as possible. rows: tasks of a part.
        pixels: pixels of a row; by default, stealing a task costs nothing.
    """
    if rows * chunks > 8 * TASKS:
        return 1.0
    steps = -(-channels // step)
    ends = [min(channels, chunk * steps // chunks * step) for chunk in range(chunks + 1)]
    tasks = [(start, end - start) for start, end in pairwise(ends) for _ in range(rows)]
    shares = deque(tasks[:len(tasks) // 2]), deque(tasks[len(tasks) // 2:])
    done, known = [0.0, 0.0], [{start for start, _ in share} for share in shares]
    while shares[0] or shares[1]:
        worker = done[1] < done[0]
        start, size = (shares[worker] or shares[not worker]).popleft()
        done[worker] += size if start in known[worker] else size * (1 + READING / pixels)
        known[worker].add(start)
    return 0.75 + 0.5 * min(1, max(done) / (channels * rows))
