# SPDX-License-Identifier: Apache-2.0
"""Scales of K-quants are found to be integers times shared float16; others are not."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_megcc.kernels.matmul.scale_factors import scale_factors


def drawn(rows: int, blocks: int, low: int, high: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    shared = random.normal(0, 0.01, (rows, 2, 1)).astype(np.float16).astype(np.float32)
    small = random.integers(low, high, (rows, 2, blocks // 2)).astype(np.float32)
    return (shared * small).reshape(rows, blocks)


def products(found: tuple[np.ndarray, np.ndarray], block: int) -> np.ndarray:
    return np.repeat(found[0].astype(np.float32), 256 // block, 1) * found[1].astype(np.float32)


@pytest.mark.parametrize("low, high", [(-128, 128), (-127, 128), (0, 64), (64, 65), (-128, -127), (0, 1), (-1, 2)])
def test_factors(low, high):
    for block in (16, 32):
        values = drawn(40, 512 // block, low, high)
        found = scale_factors(values, block)
        assert found is not None and (found[0].dtype, found[1].dtype) == (np.float16, np.int8)
        assert found[0].shape == (40, 2) and np.array_equal(products(found, block), values)


def test_subnormal_and_negative_shared_numbers():
    values = np.float32(-2.0 ** -24) * np.arange(-128, -112, dtype=np.float32)[None]
    assert np.array_equal(products(scale_factors(values, 16), 16), values)


@pytest.mark.parametrize("change", [np.inf, np.nan, 1 / 3, 1e-30, 1e30])
def test_no_factors(change):
    values = drawn(9, 32, 1, 64)
    values[5, 3] = change
    assert scale_factors(values, 16) is None


def test_floats_have_none():
    assert scale_factors(np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32), 32) is None
