# SPDX-License-Identifier: Apache-2.0
"""Axes that only a run knows."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MegccError, ModelError
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


def _axes_given(kind: str, x: list[int], count: int, y: list[int] | str, **attributes):
    shape = {"y": y} if isinstance(y, list) else [y]
    return model([node(kind, "x axes", "y", **attributes)], {"x": x, "axes": ("int64", [count])}, shape, opset=18)


#: Models, and axes that each run of them refuses: one twice, one that there is not, one that is not as declared.
REFUSED = {
    "all axes": (_axes_given("ReduceSum", [2, 3], 2, "y"), ((1, 1), (0, -2), (0, 2))),
    "some axes": (_axes_given("ReduceMax", [2, 3, 4], 2, "y"), ((1, 1), (2, -1), (0, 3))),
    "declared": (_axes_given("ReduceSum", [2, 3, 4], 1, [2, 4], keepdims=0), ((0,), (2,), (3,))),
    "axis": (model([node("CumSum", "x axes", "y")], {"x": [2, 3], "axes": ("int64", [1])}, {"y": [2, 3]}, opset=14),
             ((2,), (-3,))),
    "Squeeze": (_axes_given("Squeeze", [1, 3, 1], 2, "y"), ((0, 0), (0, 1), (2, 3))),
    "Squeeze, open": (_axes_given("Squeeze", [1, 1, 1, 3], 2, "y"), ((0, 0), (1, -3), (2, 4))),
    "Unsqueeze": (_axes_given("Unsqueeze", [2, 3], 2, "y"), ((0, 0), (1, -3), (1, 4)))}


@pytest.mark.parametrize("name", REFUSED)
def test_axes_that_a_run_refuses(name: str):
    graph, x = _graph_of(name)
    for axes in REFUSED[name][1]:
        with pytest.raises(MegccError):
            run(graph, {"x": x, "axes": np.array(axes)})


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "c"])
@pytest.mark.parametrize("name", REFUSED)
def test_axes_that_compiled_code_refuses(name: str, target: str):
    _, x = _graph_of(name)
    made, refused = REFUSED[name]
    with tvm_megcc.load(tvm_megcc.compile(made, target), target) as session:
        for axes in refused:
            with pytest.raises(MegccError, match=r"refused the values of its operands: .*gather from"):
                session.run({"x": x, "axes": np.array(axes)})


def _graph_of(name: str):
    graph = import_onnx(REFUSED[name][0])
    return graph, np.ones(graph.types["x"].shape, np.float32)


@pytest.mark.parametrize("axes", [(0, 1, 2), (-1, 0, 1), (2, -3, -2)])
def test_a_reduction_over_all_axes(axes):
    graph = import_onnx(_axes_given("ReduceSum", [3, 3, 3], 3, "y"))
    (y,) = run(graph, {"x": X, "axes": np.array(axes)}).values()
    np.testing.assert_allclose(y, X.sum(keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("axes", [(), (0, 1), (-1, 0)])
def test_a_number_of_axes_that_a_run_decides(axes):
    made = model([node("ReduceSum", "x axes", "y")], {"x": [3, 3], "axes": ("int64", ["n"])}, {"y": [1, 1]}, opset=18)
    graph = import_onnx(made)
    (y,) = run(graph, {"x": X[0], "axes": np.array(axes, np.int64)}).values()
    np.testing.assert_allclose(y, X[0].sum(keepdims=True), rtol=1e-5)
    with pytest.raises(MegccError):
        run(graph, {"x": X[0], "axes": np.array([1])})
