# SPDX-License-Identifier: Apache-2.0
"""Winograd's convolution in 16 bits: exact in the integers it computes with, refused where they might not hold."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_megcc.context import Context
from tvm_megcc.ir.graph import Attrs, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.kernels.integer.winograd import WinogradBytes
from tvm_megcc.kernels.site import Site
from tvm_megcc.target import TARGETS

B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


def test_transforms_of_the_largest_numbers():
    """What the module's docstring says of them: four times the sums, all in 16 bits."""
    rng = np.random.default_rng(0)
    most = [0, 0]
    for _ in range(2000):
        d, g = rng.choice([-255, 255], (4, 4)), rng.choice([-128, 127], (3, 3))
        tile, weights = B @ d @ B.T, G @ g @ G.T
        most = [max(most[0], abs(tile).max()), max(most[1], abs(weights).max())]
        sums = [[(d[i:i + 3, j:j + 3] * g).sum() for j in range(2)] for i in range(2)]
        np.testing.assert_array_equal(A @ (tile * weights) @ A.T, 4 * np.array(sums))
    assert most[0] == 1020 and 1000 < most[1] <= 1152


@pytest.mark.parametrize(("channels", "bias", "refused"), [(1820, 0, False), (1900, 0, True), (64, 2**29, True)])
def test_refused_where_four_times_a_sum_may_overflow(channels: int, bias: int, refused: bool):
    w, b = np.full((4, channels, 3, 3), -128, np.int8), np.array([0, 0, -bias, 0], np.int32)
    assert (WinogradBytes().refuse(convolution(w, b, {1: w, 2: b})) is not None) == refused


@pytest.mark.parametrize(("bias", "refused"), [(0, False), (2**29, True)])
def test_a_bias_counts_if_the_weights_are_unknown(bias: int, refused: bool):
    w, b = np.zeros((4, 64, 3, 3), np.int8), np.array([0, 0, -bias, 0], np.int32)
    assert (WinogradBytes().refuse(convolution(w, b, {2: b})) is not None) == refused


def convolution(w: np.ndarray, b: np.ndarray, values: dict[int, np.ndarray]) -> Site:
    channels = w.shape[1]
    types = TensorType("int8", (1, channels, 8, 8)), TensorType("int8", w.shape), TensorType("int32", b.shape)
    attrs = Attrs({"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1, "x_zero": -128,
                   "w_zero": 0})
    return Site(Op("conv2d_integer", attrs, ("x", "w", "b"), ("y",)), types, (TensorType("int32", (1, 4, 8, 8)),),
                Context(TARGETS["arm64"]), frozenset({1, 2}), values)
