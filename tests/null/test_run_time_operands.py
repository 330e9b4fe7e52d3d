# SPDX-License-Identifier: Apache-2.0
"""Operands that are usually constants, computed by a run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.errors import ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_is_added_around():
    made = model([node("Pad", "x pads v", "y")], {"x": [2, 3], "v": []}, {"y": [4, 4]}, {"pads": [1, 0, 1, 1]},
                 opset=13)
    (y,) = run(import_onnx(made), {"x": X, "v": np.float32(-1.5)}).values()
    np.testing.assert_array_equal(y, np.pad(X, ((1, 1), (0, 1)), constant_values=-1.5))


def test_sizes_that_the_result_tells():
    shape = {"x": [1, 1, 2, 3], "sizes": ("int64", [4])}
    (y,) = run(import_onnx(model([node("Resize", "x   sizes", "y", mode="nearest")], shape, {"y": [1, 1, 4, 6]},
                                 opset=19)), {"x": X[None, None], "sizes": np.array([1, 1, 4, 6])}).values()
    np.testing.assert_array_equal(y[0, 0], X.repeat(2, 0).repeat(2, 1))
    kept = import_onnx(model([node("Resize", "x   sizes", "y", axes=[2, 3], keep_aspect_ratio_policy="not_larger")],
                             {"x": [1, 1, 2, 3], "sizes": ("int64", [2])}, {"y": [1, 1, 4, 6]}, opset=19))
    (y,) = run(kept, {"x": X[None, None], "sizes": np.array([4, 9])}).values()
    np.testing.assert_array_equal(y[0, 0], X.repeat(2, 0).repeat(2, 1))
    with pytest.raises(ShapeError, match="4 elements of an axis of 2 that is scaled"):
        run(kept, {"x": X[None, None], "sizes": np.array([4, 3])})
