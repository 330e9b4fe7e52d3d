# SPDX-License-Identifier: Apache-2.0
"""Operators whose results are as long as the model states, or fail."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.array([[0, 3, 0], [4, 0, 5]], np.float32)


@pytest.mark.parametrize(("made", "inputs", "result", "expected"), [
    (node("NonZero", "x", "y"), {"x": X}, ("int64", [2, 3]), [[0, 1, 1], [1, 0, 2]]),
    (node("Compress", "x c", "y", axis=1), {"x": X, "c": np.array([True, False, True])}, ("float32", [2, 2]),
     X[:, [0, 2]]),
    (node("Compress", "x c", "y"), {"x": X, "c": np.array([0, 1, 0, 0, 1], bool)}, ("float32", [2]), [3, 0]),
], ids=["nonzero", "axis", "all"])
def test_as_many_as_stated(made, inputs, result, expected):
    described = {name: (array.dtype.name, list(array.shape)) for name, array in inputs.items()}
    graph = import_onnx(model([made], described, {"y": result}))
    np.testing.assert_array_equal(run(graph, inputs)["y"], expected)
    with pytest.raises(ShapeError, match="where the model states"):
        run(graph, {name: np.ones_like(array) for name, array in inputs.items()})
    with pytest.raises(ModelError, match="state it in the model"):
        import_onnx(model([made], described, {"y": (result[0], ["n"] * len(result[1]))}))
    constants = {name: array for name, array in inputs.items() if name != "x" or len(inputs) == 1}
    rest = {name: described[name] for name in inputs if name not in constants}
    source = model([made, node("Identity", "y", "z")], rest, {"z": (result[0], None)}, constants)
    np.testing.assert_array_equal(run(import_onnx(source), {"x": X} if rest else {})["z"], expected)
