# SPDX-License-Identifier: Apache-2.0
"""How layers in register tiles are cut into tasks."""

from __future__ import annotations

import pytest

from tvm_megcc.context import Context
from tvm_megcc.kernels.conv2d.geometry import Geometry
from tvm_megcc.kernels.conv2d.winograd import Blocking
from tvm_megcc.kernels.sharing import TaskGrid, chunk_count, is_large, load_imbalance
from tvm_megcc.kernels.tiling import Tiling
from tvm_megcc.target import TARGETS

CPU = TARGETS["x86-64-v4"]


@pytest.mark.parametrize(("channels", "step", "chunks", "rows", "share"), [
    (64, 16, 1, 1, 1.0),            # one task
    (64, 16, 4, 1, 0.5),
    (48, 16, 3, 1, 2 / 3),
    (224, 32, 2, 1, 4 / 7),         # seven steps
    (1000, 16, 2, 13, 504 / 1000),  # 31 and 32 steps in each of 13 rows: the 13th of the first half is taken last
    (64, 64, 1, 13, 7 / 13),
    (64, 64, 1, 1000, 0.5),         # so many that it does not matter
])
def test_two_workers(channels: int, step: int, chunks: int, rows: int, share: float):
    assert load_imbalance(channels, step, chunks, rows) == pytest.approx(0.75 + 0.5 * share, abs=0.005)


def test_rows_are_cut_where_channels_are_too_few():
    """48 channels are one tile wide: 169 pixels in one row would be one task."""
    tiling = Tiling.of(CPU.isa)
    assert is_large(256 * 48 * 169)
    large = TaskGrid.of(tiling, 256, 48, 1, 13, 13, True, Context(CPU))
    assert (large.rows, large.pixels) == (13, 13)
    small = TaskGrid.of(tiling, 64, 48, 1, 13, 13, True, Context(CPU))
    assert small.rows * small.chunks == 1, "too little work to wait for another thread"


def test_a_tile_may_be_narrower_for_equal_shares():
    tiling = Tiling.of(CPU.isa)
    best = tiling.best_vectors(49, 512)
    grid = TaskGrid.of(tiling, 2048, 512, 1, 7, 7, True, Context(CPU))
    step = grid.tiling.best_vectors(grid.pixels, 512) * tiling.lanes
    imbalance = load_imbalance(512, step, grid.chunks, grid.rows)
    assert imbalance <= load_imbalance(512, best * tiling.lanes, grid.chunks, grid.rows)
    assert imbalance < 1.01


def test_one_tile_for_all_layers_at_size():
    tiling = Tiling.of(CPU.isa)
    for channels in (24, 48, 96, 1000):
        assert TaskGrid.of(tiling, 256, channels, 1, 13, 13, True, Context(CPU, "size")).tiling == tiling


def test_chunks_fit_the_second_cache():
    """Weights of 32 channels, 590 KB, are more than half of it already; a CPU without one has one chunk."""
    assert chunk_count(4608, 512, 32, 7, 7, CPU) == 16
    assert chunk_count(4608, 512, 32, 7, 7, TARGETS["cortex-m4"]) == 1


def _square(ic: int, oc: int, extent: int) -> Geometry:
    """A 3x3 convolution that keeps its image's extents."""
    return Geometry(n=1, g=1, ic=ic, ih=extent, iw=extent, oc=oc, oh=extent, ow=extent, kh=3, kw=3, strides=(1, 1),
                    dilations=(1, 1), pads=(1, 1, 1, 1))


def test_winograd_has_tasks_for_two():
    """64 tiles are five products of 13, three of them for one worker, or six of 11."""
    s = _square(256, 128, 32)
    cut = Blocking.of(s, False, CPU, 0)
    assert cut.imbalance(s) < 1.01, cut


def test_winograd_where_weights_are_far():
    """Four tiles use a weight too little to read four times as many from memory; a cache gives them in time."""
    s = _square(128, 32, 7)

    def costs(network: int) -> list[float]:
        return [Blocking.of(s, raw, CPU, network).cost(s) for raw in (False, True)]

    expanded, raw = costs(1 << 20)
    assert expanded < raw
    expanded, raw = costs(40 << 20)
    assert expanded > raw
