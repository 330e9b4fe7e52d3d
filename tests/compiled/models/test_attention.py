# SPDX-License-Identifier: Apache-2.0
"""Attention of whole models: keys that a decoder gains from run to run, and any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.onnx_models import model, node

pytestmark = pytest.mark.slow


def attention(queries: int | str, keys: int | str, mask: np.ndarray | None = None):
    """softmax(q kᵀ / 4 + mask) v of two heads."""
    scores, constants = [], {"quarter": np.array(0.25, np.float32)}
    if mask is not None:
        scores, constants["mask"] = [node("Add", "s mask", "m")], mask
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "qk"),
             node("Mul", "qk quarter", "s"), *scores, node("Softmax", "m" if scores else "s", "p", axis=-1),
             node("MatMul", "p v", "y")]
    return model(nodes, {"q": [1, 2, queries, 16], "k": [1, 2, keys, 16], "v": [1, 2, keys, 20]},
                 {"y": [1, 2, queries, 20]}, constants)


def drawn(queries: int, keys: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(keys)
    shapes = {"q": (1, 2, queries, 16), "k": (1, 2, keys, 16), "v": (1, 2, keys, 20)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def wanted(inputs: dict[str, np.ndarray], mask: np.ndarray | float = 0.0) -> np.ndarray:
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    powers = np.exp(q @ k.swapaxes(2, 3) / 4 + mask)
    return powers / powers.sum(3, keepdims=True) @ v


def test_keys_that_grow(tmp_path):
    """One kernel, whose workspace does not grow with them."""
    artifact = tvm_megcc.compile(attention(1, "t"), name="decoder", dispatch="k[2]=1..600")
    assert "__few_queries_1q_" in artifact.report
    with tvm_megcc.load(artifact.save(tmp_path / "decoder_megcc")) as session:
        for keys in (1, 7, 256, 257, 600):
            inputs = drawn(1, keys)
            np.testing.assert_allclose(session.run(inputs)["y"], wanted(inputs), rtol=1e-5, atol=1e-6)


def test_threads_do_not_change_a_bit(tmp_path):
    mask = np.where(np.tri(70, 300, 230, dtype=bool), 0, -np.inf).astype(np.float32)
    inputs, results = drawn(70, 300), []
    for threads in (1, 4):
        artifact = tvm_megcc.compile(attention(70, 300, mask), name="causal", threads=threads)
        assert "_causal_" in artifact.report and "__columns_" in artifact.report
        with tvm_megcc.load(artifact.save(tmp_path / f"causal{threads}_megcc")) as session:
            results.append(session.run(inputs)["y"])
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], wanted(inputs, mask), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [(3, 3), (4, 2)])
@pytest.mark.parametrize("mask", [("bool", (1, 1, 4, 16)), ("float32", (2, 1, 4, 16)), ("float32", (4, 16))])
def test_queries_that_see_no_keys(heads, mask, tmp_path):
    """Attention of operator set 24 with a mask that the run is given is one operator, and gives zeros there."""
    rng, (dtype, shape) = np.random.default_rng(0), mask
    shapes = {"q": [2, heads[0], 4, 8], "k": [2, heads[1], 16, 8], "v": [2, heads[1], 16, 12]}
    proto = model([node("Attention", "q k v mask", "y")], {**shapes, "mask": mask}, ["y"], opset=24)
    inputs = {name: rng.standard_normal(extents).astype(np.float32) for name, extents in shapes.items()}
    seen = rng.random(shape) > 0.6
    seen[..., 2, :] = False
    inputs["mask"] = seen if dtype == "bool" else np.where(seen, 0.3, -np.inf).astype(np.float32)
    expected = ReferenceEvaluator(proto).run(None, inputs)[0]
    with tvm_megcc.load(tvm_megcc.compile(proto, name="hidden").save(tmp_path / "hidden")) as session:
        assert "attention" in [call["kind"] for call in session.calls]
        y = session.run(inputs)["y"]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert not y[:, :, 2].any()
