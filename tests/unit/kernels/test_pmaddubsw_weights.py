# SPDX-License-Identifier: Apache-2.0
"""Weights as lists: no two products that the CPU adds in int16 go beyond it, and all of them make the sum."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_megcc.kernels.integer.pmaddubsw import (
    pack_lists,
    pack_moves,
    pack_pmaddubsw_bias,
    pack_pmaddubsw_sums,
    pack_weights,
)

LANES = 8


def packed_twice(x: np.ndarray) -> np.ndarray:
    """[…, 4n] of uint8 → [… , 4n, 2]: each four bytes as they are, behind them with every second one turned over."""
    fours = x.reshape(*x.shape[:-1], -1, 4)
    turned = np.where(np.arange(4) % 2, 255 - fours, fours)
    return np.concatenate([fours, turned], axis=-1).reshape(*x.shape, 2)


def multiplied(x: np.ndarray, weights: np.ndarray, groups: int, runs: int) -> np.ndarray:
    """[pixels][groups][runs][length] by packed weights → [pixels][O, rounded up in each group], as a kernel does it."""
    how = True, 0, groups, runs, LANES
    packed, moves, lists = pack_weights(weights, *how), pack_moves(weights, *how), pack_lists(weights, *how)
    sums, expanded = np.zeros((len(x), len(lists) * LANES), np.int64), packed_twice(x)
    end = 0
    for vector, (first, *counts) in enumerate(lists):
        entry = first
        assert first == end
        for run, count in enumerate(counts):
            there = expanded[:, vector // (len(lists) // groups), run].reshape(len(x), -1).astype(np.int64)
            place = 0
            for _ in range(count):
                place += int(moves[entry])
                four = there[:, 2 * place:2 * place + 4]
                products = four[:, None, :] * packed[entry].reshape(LANES, 4)
                twos = products[..., 0::2] + products[..., 1::2]
                assert -2**15 <= twos.min() and twos.max() < 2**15
                sums[:, vector * LANES:(vector + 1) * LANES] += twos.sum(axis=-1)
                entry += 1
        end = entry
    assert end == len(moves) == len(packed)
    return sums


@pytest.mark.parametrize("kind", ["any", "greatest", "least", "opposite", "small"])
@pytest.mark.parametrize(("outputs", "inputs", "kernel", "groups"), [(8, 4, (1, 1), 1), (11, 12, (3, 3), 1),
                                                                    (6, 8, (1, 3), 2)])
def test_sums(kind: str, outputs: int, inputs: int, kernel: tuple[int, int], groups: int):
    rng = np.random.default_rng(0)
    shape = outputs * groups, inputs, *kernel
    weights = {"any": rng.integers(-128, 128, shape), "greatest": np.full(shape, 127), "least": np.full(shape, -128),
               "opposite": rng.choice([-128, 127], shape), "small": rng.integers(-64, 65, shape)}[kind].astype(np.int8)
    x = np.concatenate([rng.integers(0, 256, (3, groups, *kernel, inputs)),
                        np.zeros((1, groups, *kernel, inputs), int), np.full((1, groups, *kernel, inputs), 255)])
    x = x.astype(np.uint8)
    runs, zero = kernel[0], 77
    bias = rng.integers(-2**31, 2**31, outputs * groups).astype(np.int32)
    how = True, 0, groups, runs, LANES, zero
    sums = multiplied(x.reshape(len(x), groups, runs, -1), weights, groups, runs)
    sums = sums.reshape(len(x), groups, -1)[:, :, :outputs].reshape(len(x), -1)
    expected = np.einsum("pghwi,goihw->pgo", x.astype(np.int64) - zero,
                         weights.reshape(groups, outputs, *shape[1:]).astype(np.int64)).reshape(len(x), -1)
    np.testing.assert_array_equal(sums + pack_pmaddubsw_sums(weights, *how), expected)
    with_bias = (sums + pack_pmaddubsw_bias(bias, weights, *how)).astype(np.int32)
    np.testing.assert_array_equal(with_bias, (expected + bias).astype(np.int32))


def test_small_weights_take_an_entry_each():
    weights = np.random.default_rng(0).integers(-64, 65, (16, 64, 1, 1)).astype(np.int8)
    assert len(pack_moves(weights, True, 0, 1, 1, LANES)) == 2 * 16
    assert len(pack_moves(np.full_like(weights, 127), True, 0, 1, 1, LANES)) == 2 * 16
    weights[:, ::2] = 127
    assert len(pack_moves(weights, True, 0, 1, 1, LANES)) == 2 * 16 * 2


def test_zero_points_of_weights():
    """uint8 weights less 128 are int8."""
    weights = np.random.default_rng(0).integers(0, 256, (8, 16, 1, 1)).astype(np.uint8)
    signed = (weights.astype(np.int16) - 128).astype(np.int8)
    for packer in (pack_weights, pack_moves, pack_lists):
        np.testing.assert_array_equal(packer(weights, True, 128, 1, 1, LANES), packer(signed, True, 0, 1, 1, LANES))
