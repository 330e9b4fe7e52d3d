# SPDX-License-Identifier: Apache-2.0
"""Attention of whole models: keys that a decoder gains from run to run, and any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

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
    assert "__lines_1q_" in artifact.report
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
