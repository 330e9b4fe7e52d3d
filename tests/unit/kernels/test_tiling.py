# SPDX-License-Identifier: Apache-2.0
"""Tiles of output channels, and the blocks of weights that they read."""

import numpy as np
import pytest

from tvm_megcc.kernels.packing import pack
from tvm_megcc.kernels.tiling import BLOCK, Tiling
from tvm_megcc.target import ISAS, TARGETS


@pytest.mark.parametrize("isa", ISAS.values(), ids=list(ISAS))
def test_tiles_read_what_was_packed(isa):
    for channels in (1, 10, 16, 24, 40, 63, 64, 96, 128, 130, 200, 255, 1000):
        for pixels in (1, 7):
            check_tiles(isa, pixels, channels)


def check_tiles(isa, pixels: int, channels: int) -> None:
    """Every channel is in one tile, and its weights are where conv2d/direct looks for them."""
    depth, tiling = 3, Tiling.of(isa, isa.lane_fma)
    weights = np.arange(1, depth * channels + 1, dtype=np.float32).reshape(depth, channels)
    for vectors in tiling.tile_vectors(pixels):
        block = tiling.block(pixels, vectors)
        packed = pack(("columns", isa.lanes, False, block, vectors * isa.lanes if block > BLOCK else BLOCK), weights)
        seen = []
        for group in tiling.channel_ranges(pixels, channels, vectors, block):
            for oc in range(group.start, group.end, group.vectors * isa.lanes):
                tile = packed[oc // block * block * depth + oc % block:]
                for channel in range(group.vectors * isa.lanes):
                    place = channel // group.width * group.width * depth + channel % group.width
                    if oc + channel < channels:
                        seen.append(oc + channel)
                        found = [tile[place + k * group.width] for k in range(depth)]
                        np.testing.assert_array_equal(found, weights[:, oc + channel])
        assert seen == list(range(channels)), f"{channels} channels of {pixels} pixels in {vectors} vectors"


@pytest.mark.parametrize(("isa", "block"), [("avx512", 64), ("avx2", 32), ("neon", 16), ("sse2", 16), ("c", 16)])
def test_a_single_pixel_reads_two_streams(isa: str, block: int):
    tiling = Tiling.of(ISAS[isa])
    assert tiling.block(1, tiling.best_vectors(1, 640)) == block
    assert tiling.block(2, tiling.best_vectors(2, 640)) == tiling.block(None, tiling.best_vectors(None, 640)) == BLOCK


@pytest.mark.parametrize("isa", ["simd128", "relaxed_simd"])
def test_an_engine_has_registers_for_a_whole_step(isa: str):
    """Sums and operands of a tile of WebAssembly are 14 at most, of x86's 16, and one pixel more would be too many."""
    tiling = Tiling.of(ISAS[isa])
    tiles = {vectors: tiling.max_pixels(vectors) for vectors in tiling.tile_vectors()}
    assert tiles == {1: 6, 2: 4, 4: 2}
    assert all(p * v + p + v <= 14 < (p + 1) * v + p + 1 + v for v, p in tiles.items())


@pytest.mark.parametrize(("isa", "tile"), [("rvv", (7, 1)), ("rvv256", (7, 2)), ("rvv512", (7, 4))])
def test_tiles_of_risc_v_take_four_registers_at_once(isa: str, tile: tuple[int, int]):
    """Seven pixels and their weights are all 32 registers, and the weights of a tile are one block."""
    tiling = Tiling.of(ISAS[isa])
    pixels, vectors = tile
    assert (tiling.best_vectors(14, 64), tiling.max_pixels(vectors)) == (vectors, pixels)
    assert tiling.parts(vectors, tiling.block(14, vectors)) == ((0, vectors),)


@pytest.mark.parametrize("isa", ["avx2", "rvv", "rvv256", "rvv512"])
def test_parts_of_a_tile_are_neighbours_in_a_block(isa: str):
    tiling = Tiling.of(ISAS[isa])
    for width in (16, 32, 48, 64, 112):
        block = max(1, width // tiling.lanes)
        for vectors in range(1, 9):
            parts = tiling.parts(vectors, width)
            assert [v for first, n in parts for v in range(first, first + n)] == list(range(vectors))
            assert all(first // block == (first + n - 1) // block and n <= max(1, tiling.lmul_vectors)
                       for first, n in parts)


@pytest.mark.parametrize(("stride", "rows", "tile"), [
    (4096, 8, (8, 3)), (3 * 4096, 8, (8, 3)), (2048, 16, (14, 2)), (1536, 64, (14, 2)), (4100, 8 * 1024, (14, 2))])
def test_rows_of_a_tile_do_not_evict_each_other(stride: int, rows: int, tile: tuple[int, int]):
    """L1 has 64 sets of 8 lines: rows that are 4096 bytes apart share one set, so a tile has at most 8 of them."""
    target = TARGETS["x86-64-v4"]
    assert target.rows_in_l1(stride) == rows
    tiling = Tiling.of(target.isa).for_rows(stride, target)
    vectors = tiling.best_vectors(56, 1024)
    assert (tiling.max_pixels(vectors), vectors) == tile
    assert TARGETS["x86-64"].rows_in_l1(stride) == 0
    assert Tiling.of(ISAS["sse2"]).for_rows(stride, TARGETS["x86-64"]) == Tiling.of(ISAS["sse2"])
