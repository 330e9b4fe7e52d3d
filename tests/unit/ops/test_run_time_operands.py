# SPDX-License-Identifier: Apache-2.0
"""Operands that are usually constants, computed by a run."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError, ShapeError
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


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_that_the_run_tells(onesided):
    """Of the step and the length of a short-time transform, also where the model states no shape."""
    signal = np.random.default_rng(1).normal(size=(2, 50, 1)).astype(np.float32)
    for lengths, shapes in (({}, {"w": [8]}), ({"l": ("int64", [])}, {})):
        inputs = {"x": [2, 50, 1], "s": ("int64", []), **shapes, **lengths}
        source = model([node("STFT", "x s w" if shapes else "x s  l", "y", onesided=onesided)], inputs, ["y"])
        graph = import_onnx(source)
        for step, length in ((8, 8), (3, 8), (50, 8), *(((4, 13), (1, 50)) if lengths else ())):
            given = {"x": signal, "s": np.array(step), "w": np.hanning(8).astype(np.float32), "l": np.array(length)}
            given = {name: given[name] for name in inputs}
            (expected,) = ReferenceEvaluator(source).run(None, given)
            (found,) = run(graph, given).values()
            np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0])
def test_scales_that_are_none(scale):
    with pytest.raises(ModelError, match=f"scales an axis by {scale}"):
        import_onnx(model([node("Resize", "x  v", "y", mode="linear")], {"x": [1, 4]}, ["y"],
                          {"v": np.array([1, scale], np.float32)}))
