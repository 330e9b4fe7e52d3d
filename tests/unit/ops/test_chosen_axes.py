# SPDX-License-Identifier: Apache-2.0
"""Axes that only a run knows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.random.default_rng(3).standard_normal((3, 3, 3)).astype(np.float32)


@pytest.mark.parametrize(("kind", "numpy"), [
    ("ReduceSum", np.sum), ("ReduceL2", lambda x, axes: np.sqrt((x * x).sum(axes))),
    ("ReduceLogSumExp", lambda x, axes: np.log(np.exp(x).sum(axes)))])
def test_reductions_over_axes_that_one_shape_leaves_open(kind: str, numpy):
    made = model([node(kind, "x axes", "y", keepdims=0)], {"x": [3, 3, 3], "axes": ("int64", [2])}, {"y": [3]},
                 opset=18)
    graph = import_onnx(made)
    for axes in ((0, 2), (0, 1), (1, 2), (-3, -1), (2, 1)):
        (y,) = run(graph, {"x": X, "axes": np.array(axes)}).values()
        np.testing.assert_allclose(y, numpy(X, tuple(axes)), rtol=1e-5)


def test_sums_along_an_axis():
    graph = import_onnx(model([node("CumSum", "x axis", "y")], {"x": [3, 3, 3], "axis": ("int32", [])},
                              {"y": [3, 3, 3]}, opset=14))
    for axis in range(-3, 3):
        (y,) = run(graph, {"x": X, "axis": np.array(axis, np.int32)}).values()
        np.testing.assert_allclose(y, np.cumsum(X, axis), rtol=1e-5)


def test_results_of_different_shapes_are_refused():
    made = model([node("DFT", "x  axis", "y", onesided=1)], {"x": [1, 6, 10, 1], "axis": ("int64", [])}, ["y"],
                 opset=20)
    with pytest.raises(ModelError, match="its axis is computed at run time, and results have different shapes"):
        import_onnx(made)
