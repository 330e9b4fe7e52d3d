# SPDX-License-Identifier: Apache-2.0
"""Reductions over no axes, and of numbers that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import fed, model, node
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

#: What each reduction makes of one element.
OF_ONE = {
    "ReduceSum": np.asarray, "ReduceMean": np.asarray, "ReduceMax": np.asarray, "ReduceMin": np.asarray,
    "ReduceProd": np.asarray, "ReduceLogSumExp": np.asarray, "ReduceL1": np.abs, "ReduceL2": np.abs,
    "ReduceSumSquare": np.square, "ReduceLogSum": np.log,
}


def reduced(kind: str, x: np.ndarray, constants=None, **attributes) -> np.ndarray:
    made = model([node(kind, " ".join(["x", *(constants or ())]), "y", **attributes)], fed({"x": x}), ["y"], constants,
                 opset=18)
    with np.errstate(all="ignore"):
        (y,) = run(import_onnx(made), {"x": x}).values()
    return y


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Compares shapes and dtypes too: assert_allclose has `strict` from numpy 2 on."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("kind", sorted(OF_ONE))
def test_over_no_axes_all_but_the_reduction_is_done(kind: str, dtype: str):
    """Of a scalar there are none; with `noop_with_empty_axes` there are none where none are named."""
    for number in (-4, 3):
        if kind == "ReduceLogSum" and (number < 0 or dtype == "int32"):
            continue
        for x in (np.array(number, dtype), np.full((2, 1, 3), number, dtype)):
            expected = OF_ONE[kind](x)
            for constants in (None, {"axes": np.zeros(0, np.int64)}):
                for keepdims in (0, 1):
                    assert_same(reduced(kind, x, constants, noop_with_empty_axes=1, keepdims=keepdims), expected)
        for keepdims in (0, 1):
            x = np.array(number, dtype)
            assert_same(reduced(kind, x, keepdims=keepdims), OF_ONE[kind](x))


@pytest.mark.parametrize(("line", "expected"), [
    ([-np.inf, -np.inf], -np.inf), ([np.inf, 1], np.inf), ([-np.inf, 1], 1), ([np.inf, -np.inf], np.inf),
    ([np.nan, np.inf], np.nan)])
def test_log_sum_exp_of_infinite_numbers(line, expected):
    y = reduced("ReduceLogSumExp", np.array([line], np.float32), {"axes": np.array([1])}, keepdims=0)
    np.testing.assert_array_equal(y, [np.float32(expected)])
