# SPDX-License-Identifier: Apache-2.0
"""Weights that stay in the first cache."""

from __future__ import annotations

import pytest

from tvm_megcc.kernels.blocking import ASSEMBLER_STEPS, CacheBlock, chunks_first
from tvm_megcc.target import TARGETS

ARM64 = TARGETS["arm64"]


@pytest.mark.parametrize("step", [8, 16, 32])
def test_weights_take_half_the_first_cache(step: int):
    for depth in range(1, 5000):
        kept = CacheBlock.of(depth, step, 196, ARM64)
        assert kept is not None and kept.channels % step == 0
        assert 4 * kept.channels * kept.depth <= ARM64.l1 // 2
        if kept.depth < depth:
            assert kept.depth % ASSEMBLER_STEPS == 0
            assert depth % kept.depth == 0 or depth % kept.depth >= ASSEMBLER_STEPS


def test_long_rows_put_no_sums_aside():
    assert CacheBlock.of(512, 16, 1 << 16, ARM64) is None
    assert CacheBlock.of(128, 16, 1 << 16, ARM64).partial_sum_bytes(128, 1 << 16) == 0
    assert CacheBlock.of(512, 16, 98, ARM64).partial_sum_bytes(512, 98) == 4 * 32 * 98


def test_what_fits_is_read_once():
    small, large = ARM64.l2 // 4, 4 * ARM64.l2
    assert chunks_first(large, small, 16, 2, ARM64)
    assert not chunks_first(small, large, 2, 16, ARM64)
