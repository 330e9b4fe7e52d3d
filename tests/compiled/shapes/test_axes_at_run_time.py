# SPDX-License-Identifier: Apache-2.0
"""Axes that only the run knows, where the model states no shape for the result: reductions, Squeeze and Unsqueeze."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MegccError

X = np.random.default_rng(2).standard_normal((2, 1, 3, 4)).astype(np.float32)


def compiled(operator: str, shape, count, folder, opset=18, **attributes):
    proto = model([node(operator, "x axes", "y", **attributes)],
                  {"x": ("float32", list(shape)), "axes": ("int64", count)}, {"y": ("float32", None)}, opset=opset)
    artifact = tvm_megcc.compile(proto, name="net")
    return proto, tvm_megcc.load(artifact.save(folder / "net_megcc"))


def compare(proto, session, x: np.ndarray, axes) -> None:
    feeds = {"x": x, "axes": np.array(axes)}
    (wanted,) = ReferenceEvaluator(proto).run(None, feeds)
    found = session.run(feeds)["y"]
    assert found.shape == wanted.shape, axes
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator, keepdims", [("ReduceSum", 1), ("ReduceMax", 0), ("ReduceL2", 1), ("ReduceMean", 0),
                                                ("ReduceLogSumExp", 1), ("ReduceLogSumExp", 0)])
@pytest.mark.parametrize("count", [1, 2])
def test_reductions(operator: str, keepdims: int, count: int, tmp_path):
    proto, session = compiled(operator, X.shape, [count], tmp_path, keepdims=keepdims)
    with session:
        for axes in combinations(range(4), count):
            compare(proto, session, X, axes)
            compare(proto, session, X, [axis - 4 for axis in reversed(axes)])


def test_a_reduction_over_all_axes_has_a_known_shape(tmp_path):
    proto, session = compiled("ReduceSum", X.shape, [4], tmp_path, keepdims=0)
    with session:
        compare(proto, session, X, [2, 0, 1, 3])


def test_squeeze_and_unsqueeze(tmp_path):
    ones = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3, 1)
    for name, operator, x, count, choices in (
            ("one", "Squeeze", ones, 1, [[0], [2], [-1]]), ("two", "Squeeze", ones, 2, [[0, 2], [4, 0], [-1, -3]]),
            ("all", "Squeeze", ones, 3, [[0, 2, 4]]),
            ("un", "Unsqueeze", X[0, 0], 2, [[0, 1], [3, 1], [-1, 0], [1, 2]])):
        proto, session = compiled(operator, x.shape, [count], tmp_path / name)
        with session:
            for axes in choices:
                compare(proto, session, x, axes)


def test_a_squeeze_of_an_axis_that_is_longer_fails(tmp_path):
    ones = np.ones((1, 2, 1, 3), np.float32)
    _, session = compiled("Squeeze", ones.shape, [1], tmp_path)
    with session, pytest.raises(MegccError):
        session.run({"x": ones, "axes": np.array([1])})


def test_how_many_axes_there_are_is_known(tmp_path):
    with pytest.raises(MegccError, match="does not tell how many"):
        compiled("ReduceSum", X.shape, ["n"], tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_one_number(operator: str, dtype: str, tmp_path):
    proto = model([node(operator, "x", "y")], {"x": (dtype, [])}, {"y": (dtype, None)}, opset=13)
    with tvm_megcc.load(tvm_megcc.compile(proto, name="net").save(tmp_path / "net_megcc")) as session:
        found = session.run({"x": np.array(-3, dtype)})["y"]
    np.testing.assert_array_equal(found, np.array(0 if operator == "LogSoftmax" else 1, dtype))
