# SPDX-License-Identifier: Apache-2.0
"""Weights of 16 bits stay so in the container, and results have the bits of float32 weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import fed, model, node
from tvm_megcc.codegen.artifact import Artifact
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.kernels.matmul import weight_dtype
from tvm_megcc.target import parse_targets

WIDTH, TOKENS = 96, 704


def language_model(dtype: str, tied: bool = True) -> onnx.ModelProto:
    """An embedding, one product and a head, which has the weights of the embedding if `tied`."""
    draws = np.random.default_rng(1)
    tensors = {"table": draws.standard_normal((TOKENS, WIDTH)), "w": draws.standard_normal((WIDTH, 3 * WIDTH)),
               "back": draws.standard_normal((3 * WIDTH, WIDTH))}
    tensors["head"] = (tensors["table"] if tied else draws.standard_normal((TOKENS, WIDTH))).T
    nodes = [node("Gather", "table tokens", "x"), node("MatMul", "x w", "h"), node("Relu", "h", "r"),
             node("MatMul", "r back", "z"), node("MatMul", "z head", "logits16"),
             node("Cast", "logits16", "logits", to=onnx.TensorProto.FLOAT)]
    proto = model(nodes, fed({"tokens": np.array([3, 703, -704], np.int64)}), {"logits": [3, TOKENS]})
    for name, array in tensors.items():
        stored = np.ascontiguousarray(array).astype(np.dtype(dtype))
        proto.graph.initializer.append(onnx.helper.make_tensor(
            name, getattr(onnx.TensorProto, dtype.upper()), stored.shape, stored.tobytes(), raw=True))
    return proto


def compiled(proto: onnx.ModelProto, targets: str) -> Artifact:
    return compile_graph(import_onnx(proto), parse_targets(targets))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("targets", ["x86-64-v4", "x86-64-v4,x86-64-v3,x86-64", "arm64", "wasm32-simd128", "cortex-m4"])
def test_the_container_has_the_bytes_of_the_file(dtype: str, tied: bool, targets: str):
    """Also of the levels of one CPU together, and with an embedding that is the head's weights."""
    elements = TOKENS * WIDTH * (1 if tied else 2) + 2 * 3 * WIDTH * WIDTH
    container = compiled(language_model(dtype, tied), targets).container
    assert 2 * elements < len(container) < 1.02 * 2 * elements + 3000 * len(targets.split(","))


def test_scalar_code_widens_in_the_container():
    """Its conversion of float16 takes longer than a multiplication."""
    assert len(compiled(language_model("float16"), "c").container) > 4 * (TOKENS * WIDTH + 6 * WIDTH * WIDTH)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_results_have_the_bits_of_float32_weights(dtype: str, tied: bool, monkeypatch, tmp_path):
    proto, results, sizes = language_model(dtype, tied), [], []
    for min_elements in (weight_dtype.MIN_ELEMENTS, 1 << 30):
        monkeypatch.setattr(weight_dtype, "MIN_ELEMENTS", min_elements)
        artifact = tvm_megcc.compile(proto, name="model")
        sizes.append(len(artifact.container))
        with tvm_megcc.load(artifact.save(tmp_path / f"{len(sizes)}")) as session:
            results.append(session.run({"tokens": np.array([3, 703, -704], np.int64)})["logits"])
    assert sizes[1] > 1.6 * sizes[0]
    np.testing.assert_array_equal(results[0], results[1])
    assert results[0].std() > 1


@pytest.mark.parametrize("token", [TOKENS, -TOKENS - 1])
def test_tokens_that_the_embedding_lacks_fail_the_run(token: int, tmp_path):
    folder = tvm_megcc.compile(language_model("float16"), name="model").save(tmp_path / "model")
    with tvm_megcc.load(folder) as session, pytest.raises(MegccError):
        session.run({"tokens": np.array([0, token, 1], np.int64)})
