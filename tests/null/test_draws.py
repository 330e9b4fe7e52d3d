# SPDX-License-Identifier: Apache-2.0
"""Random operators with a seed give what ONNX's reference draws; those without one are refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.onnx_models import model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)


@pytest.mark.parametrize("kind, attributes", [
    ("RandomNormal", {"shape": [3, 5], "seed": 7.0, "mean": 2.0, "scale": 0.5}),
    ("RandomNormalLike", {"seed": 0.0}), ("RandomNormalLike", {"seed": 3.0, "dtype": 11}),
    ("RandomUniform", {"shape": [3, 5], "seed": 1.0, "low": -2.0, "high": 3.0, "dtype": 10})])
def test_a_seed_gives_the_numbers_of_the_reference(kind, attributes):
    source = model([node(kind, "x" * kind.endswith("Like"), "r", **attributes), node("Cast", "r", "c", to=1),
                    node("Add", "c x", "y")], {"x": [3, 5]}, {"y": [3, 5]})
    (expected,) = ReferenceEvaluator(source).run(None, {"x": X})
    np.testing.assert_allclose(run(import_onnx(source), {"x": X})["y"], expected, rtol=1e-6)


def test_dropout_in_training():
    source = model([node("Dropout", "x ratio training", "y mask", seed=5)],
                   {"x": [3, 5], "ratio": [], "training": ("bool", [])}, {"y": [3, 5], "mask": ("bool", [3, 5])})
    graph = import_onnx(source)
    for ratio, training in ((0.5, True), (0.25, True), (0.0, True), (0.5, False)):
        given = {"x": X, "ratio": np.float32(ratio), "training": np.array(training)}
        y, mask = ReferenceEvaluator(source).run(None, given)
        found = run(graph, given)
        np.testing.assert_allclose(found["y"], y, rtol=1e-6)
        np.testing.assert_array_equal(found["mask"], mask)


@pytest.mark.parametrize("made, why", [
    (node("RandomNormalLike", "x", "y"), "draws other numbers in every run; give it a seed"),
    (node("RandomNormalLike", "x", "y", seed=-1.0), "its seed is -1.0"),
    (node("RandomUniform", "", "y", shape=[9, 9], seed=float("nan")), "its seed is nan"),
    (node("Dropout", "x r t", "y"), "draws other numbers in every run"),
    (node("Bernoulli", "x", "y", seed=1.0), "no two implementations share")])
def test_what_is_refused(made, why):
    with pytest.raises(ModelError, match=why):
        import_onnx(model([made], {"x": [3, 5]}, ["y"], {"r": np.float32(0.5), "t": np.array(True)}))


def test_a_huge_draw_is_not_made():
    source = model([node("RandomNormal", "", "y", shape=[1 << 20, 1 << 20], seed=1.0)], {"x": [1]}, ["y"])
    with pytest.raises(ModelError, match="too large"):
        import_onnx(source)
