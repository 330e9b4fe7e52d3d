# SPDX-License-Identifier: Apache-2.0
"""Outputs that nothing computes: inputs as they are, constants, one value several times."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node

CONSTANT = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(proto, feeds, folder, **options) -> tuple[list[str], list[np.ndarray]]:
    artifact = tvm_megcc.compile(proto, name="net", **options)
    with tvm_megcc.load(artifact.save(folder / "net_megcc")) as session:
        names = [port.name for port in session.outputs]
        return names, session.run(names, feeds)


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_an_input_is_an_output_of_its_own_name(tmp_path, optimize):
    """Beside one that is computed, one through an Identity, and a constant."""
    proto = model([node("Relu", "x", "y"), node("Identity", "x", "same")], {"x": [2, 3], "flags": ("bool", [4])},
                  {"y": [2, 3], "x": [2, 3], "same": [2, 3], "c": [2, 3], "flags": ("bool", [4])}, {"c": CONSTANT})
    feeds = {"x": CONSTANT - 2, "flags": np.array([True, False, True, True])}
    names, found = run(proto, feeds, tmp_path, optimize=optimize)
    assert names == ["y", "x", "same", "c", "flags"]
    for array, wanted in zip(found, (np.maximum(CONSTANT - 2, 0), CONSTANT - 2, CONSTANT - 2, CONSTANT,
                                     feeds["flags"]), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_nothing_is_computed_at_all(tmp_path):
    names, (found,) = run(model([], {"x": [2, 3]}, {"x": [2, 3]}), {"x": CONSTANT}, tmp_path)
    assert names == ["x"]
    np.testing.assert_array_equal(found, CONSTANT)


def test_an_output_that_the_model_lists_twice(tmp_path):
    """As ONNX Runtime has it, an input among them."""
    proto = model([node("Relu", "x", "y")], {"x": [2, 3]}, ["y", "x", "y", "x"])
    names, found = run(proto, {"x": CONSTANT - 2}, tmp_path)
    assert names == ["y", "x", "y", "x"]
    for array, wanted in zip(found, 2 * [np.maximum(CONSTANT - 2, 0), CONSTANT - 2], strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_open_axes(tmp_path):
    """Each range of a dispatch copies what it is given."""
    proto = model([node("Neg", "x", "y")], {"x": ["n", 3]}, {"x": ["n", 3], "y": ["n", 3]})
    artifact = tvm_megcc.compile(proto, name="net", dispatch="x[0]=1..2,3..5")
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for rows in (1, 2, 5):
            x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
            found = session.run({"x": x})
            np.testing.assert_array_equal(found["x"], x)
            np.testing.assert_array_equal(found["y"], -x)


def test_strings(tmp_path):
    proto = model([node("Equal", "text other", "equal")], {"text": ("object", [2]), "other": ("object", [2])},
                  {"text": ("object", [2]), "equal": ("bool", [2])}, opset=19)
    feeds = {"text": np.array(["a", "ü"], object), "other": np.array(["b", "ü"], object)}
    names, (found, _) = run(proto, feeds, tmp_path)
    assert names == ["text", "equal"] and found.tolist() == ["a", "ü"]


def test_a_state_of_the_same_name(tmp_path):
    """The copy is an output like others: another output may become the input."""
    proto = model([node("Add", "x s", "after")], {"x": [2], "s": [2]}, {"s": [2], "after": [2]})
    artifact = tvm_megcc.compile(proto, name="net", states={"after": "s"})
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        given = {"x": np.array([1, 2], np.float32)}
        assert [session.run(given)["s"].tolist() for _ in range(3)] == [[0, 0], [1, 2], [2, 4]]
