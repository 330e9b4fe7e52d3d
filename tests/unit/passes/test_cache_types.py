# SPDX-License-Identifier: Apache-2.0
"""KV caches of float16 and int8: what becomes of the graph, and of its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests import decoders
from tests.onnx_models import model, node
from tests.unit.passes.test_grown_states import growing, imported, kinds
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.ops.cache_rows import stored_rows, widened_rows
from tvm_megcc.passes.streaming.cache_types import store_caches
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS


@pytest.mark.parametrize("dtype, bound", [("float16", 2.0 ** -11), ("int8", 0.5 / 127)])
def test_rows(dtype, bound):
    """Errors are at most half a step, of float16 for each number, of int8 for the largest of a row. Zeros stay zeros,
    and a NaN stays in its row."""
    rows = np.random.default_rng(0).normal(size=(3, 5, 16)).astype(np.float32) * np.float32(100)
    rows[1, 2] = 0
    found = widened_rows(stored_rows(rows, dtype))
    limit = np.abs(rows) if dtype == "float16" else np.abs(rows).max(-1, keepdims=True)
    assert found.shape == rows.shape and (np.abs(found - rows) <= limit * bound * (1 + 1e-6)).all()
    assert (found != rows).any()
    rows[0, 0, 3] = np.nan
    found = widened_rows(stored_rows(rows, dtype))
    assert np.isnan(found[0, 0, 3]) and np.isfinite(found[1:]).all() and np.isfinite(found[0, 1:]).all()


@pytest.mark.parametrize("dtype, shape", [("float16", "float16[2,9,3]"), ("int8", "int8[2,9,7]")])
def test_a_cache_that_something_else_reads(dtype, shape):
    """Its readers read it widened; the results are those of the stored numbers."""
    graph = store_caches(imported(growing(node("ReduceSum", "present axes", "y"), results=("present", "y"))), dtype)
    assert kinds(graph) == ["extent", "dims", "append", "slice", "widen_cache", "reduce_sum"]
    assert str(graph.types["past"]) == str(graph.types["present"]) == shape
    x = np.random.default_rng(1).normal(size=(2, 2, 3)).astype(np.float32)
    past = np.zeros(graph.types["past"].shape, dtype)
    found = reference.run(graph, {"past": past, "x": x, "length": np.array([0])})
    rows = widened_rows(stored_rows(x, dtype))
    np.testing.assert_array_equal(found["present"][:, :2], stored_rows(x, dtype))
    np.testing.assert_allclose(found["y"], rows.sum(1, keepdims=True), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_attention_reads_what_is_stored(name, dtype):
    """No widened copy, on any CPU."""
    proto = getattr(decoders, name)(layers=1)
    graph = imported(proto, {"present.*": "past_key_values.*"}, {"past_sequence_length": 32},
                     input_shapes={"input_ids": (1, 1)})
    for target in ("c", "x86-64-v3", "arm64"):
        lowered = lower(store_caches(graph, dtype), Context(TARGETS[target])).plan.graph
        (attention,) = (op for op in lowered.ops if op.kind == "attention")
        assert attention.inputs[1:3] == ("present.0.key", "present.0.value")
        assert lowered.types["present.0.key"].dtype == dtype
        assert "widen_cache" not in kinds(lowered)


def test_what_is_refused():
    graph = imported(growing(results=("present",)))
    with pytest.raises(MegccError, match=r"cache int8: .* has no states of float32 that grow"):
        store_caches(store_caches(graph, "float16"), "int8")
    last = [node("Concat", "past x", "present", axis=2)]
    proto = model(last, {"past": [2, 3, "length"], "x": [2, 3, 2]}, ("present",), opset=18)
    with pytest.raises(ModelError, match="grows along its last axis"):
        store_caches(imported(proto), "int8")
    assert str(store_caches(imported(proto), "float16").types["past"]) == "float16[2,3,9]"
