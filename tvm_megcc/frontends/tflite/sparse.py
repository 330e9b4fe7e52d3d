# SPDX-License-Identifier: Apache-2.0
"""Sparse constants of a TFLite file, as the schema's SparsityParameters describe them (TACO's storage by levels).

A constant is a tree. It has a level for each axis in the order of traversal, then one for each axis of the blocks that
axes are divided into. In a dense level, each entry of the level above has all coordinates. In a sparse level, as in
CSR, it has the coordinates `indices[segments[entry]:segments[entry + 1]]`. The leaves are the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Level:
    """A level of the tree.

    size: the number of coordinates of a dense level.
    segments, indices: those of a sparse level, None for a dense one.
    """

    size: int
    segments: np.ndarray | None = None
    indices: np.ndarray | None = None


def dense(values: np.ndarray, shape: Sequence[int], order: Sequence[int], blocks: Sequence[int],
          levels: Sequence[Level]) -> np.ndarray:
    """Returns the constant in dense form.

    Args:
        values: the values of the leaves in the order of the tree, one-dimensional.
        order: the axis of each level; numbers from the rank on are axes within blocks.
        blocks: the axis that each axis of the blocks divides.

    Raises:
        ValueError: if the numbers contradict each other. Even then no more memory is allocated than for the dense
            constant.
    """
    rank, size = len(shape), int(np.prod(shape, dtype=object))
    require(sorted(order) == list(range(rank + len(blocks))) and len(levels) == len(order), "its axes")
    require(all(0 <= axis < rank for axis in blocks) and len(set(blocks)) == len(blocks), "its blocks")
    # The size of a block's axis is that of its level, and a sparse level states none.
    require(all(level.segments is None or axis < rank for level, axis in zip(levels, order, strict=True)), "its blocks")
    block_size = [1] * rank  # of each axis
    for level, axis in zip(levels, order, strict=True):
        if axis >= rank:
            block_size[blocks[axis - rank]] = level.size
    require(all(block > 0 and extent % block == 0 for block, extent in zip(block_size, shape, strict=True)),
            "its blocks")
    strides = [int(np.prod(shape[axis + 1:], dtype=object)) for axis in range(rank)]
    position = np.zeros(1, np.int64)  # flat index in the dense constant, for each entry of the level
    for level, axis in zip(levels, order, strict=True):
        if axis >= rank:  # within blocks
            extent, stride = block_size[blocks[axis - rank]], strides[blocks[axis - rank]]
        else:
            extent, stride = shape[axis] // block_size[axis], strides[axis] * block_size[axis]
        if level.segments is None:
            require(level.size == extent and len(position) * extent <= size, "the size of an axis")
            position = (position[:, None] + np.arange(extent) * stride).ravel()
            continue
        segments, indices = level.segments.astype(np.int64), level.indices.astype(np.int64)
        counts = np.diff(segments)
        require(len(counts) == len(position) and segments[0] == 0 and segments[-1] == len(indices), "its segments")
        require((counts >= 0).all() and len(indices) <= size, "its segments")
        require(((indices >= 0) & (indices < extent)).all(), "its indices")
        position = np.repeat(position, counts) + indices * stride
    require(len(position) == len(values), "the number of its values")
    result = np.zeros(size, values.dtype)
    result[position] = values
    return result.reshape(shape)


def require(holds: bool, what: str) -> None:
    """Raises ValueError unless a property of the constant holds. what: the part of it that is wrong, with which the
    caller's message ends."""
    if not holds:
        raise ValueError(what)
