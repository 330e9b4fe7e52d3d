# SPDX-License-Identifier: Apache-2.0
"""The cases that MegCC's own document on dynamic shapes goes through, in float32, a test each.

The last of them, one model for arm64 and armv7, is test_targets.py::test_one_folder_for_arm64_and_armv7.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import tvm_megcc
from tests.onnx_models import model, node, saved

from .networks import Network, assert_close, onnxruntime_outputs


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) * 0.2


def run(path, tmp_path, **options):
    artifact = tvm_megcc.compile(path, **options)
    return artifact, tvm_megcc.load(artifact.save(tmp_path / "folder"))


def test_a_static_convolution(tmp_path):
    path = saved(model([node("Conv", "x w b", "y", pads=[1, 1, 1, 1])], {"x": [1, 3, 9, 7]}, {"y": [1, 8, 9, 7]},
                       {"w": weights(8, 3, 3, 3), "b": weights(8)}), tmp_path / "case.onnx")
    artifact, session = run(path, tmp_path)
    assert artifact.manifest["buckets"] == [{}]
    inputs = {"x": weights(1, 3, 9, 7)}
    assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))


def test_a_conversion_and_a_chain_on_an_unbounded_tensor(tmp_path):
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Mul", "f s", "m"), node("Add", "m b", "a"),
             node("Relu", "a", "y")]
    path = saved(model(nodes, {"x": ("int8", ["n", 5])}, {"y": ["n", 5]}, {"s": weights(5), "b": weights(5)}),
                 tmp_path / "case.onnx")
    artifact, session = run(path, tmp_path, dispatch="x[0]=1..*")
    program = artifact.manifest["programs"][0]
    assert program["arena_bytes"] == 0 and program["instructions"] > len(program["calls"])  # allocated, and released
    for count in (1, 7, 3000, 2):
        inputs = {"x": np.random.default_rng(count).integers(-128, 128, (count, 5)).astype(np.int8)}
        assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))


def test_a_reshape_is_memory_forwarding(tmp_path):
    nodes = [node("Conv", "x w", "c", strides=[4, 4]), node("Flatten", "c", "f"), node("MatMul", "f v", "y")]
    path = saved(model(nodes, {"x": ["batch", 3, 4, 4]}, {"y": ["batch", 6]},
                       {"w": weights(16, 3, 4, 4), "v": weights(16, 6)}), tmp_path / "case.onnx")
    artifact, session = run(path, tmp_path, dispatch="x[0]=log(1,8)")
    assert [call["kind"] for call in artifact.manifest["programs"][0]["calls"]] == ["conv2d", "matmul"]
    for batch in (1, 5, 8):
        inputs = {"x": weights(batch, 3, 4, 4)}
        assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))


@pytest.mark.slow
def test_mobilenet_with_batch_1_and_2(tmp_path):
    """Up to its last pooling: behind it this file reshapes to a batch of 1."""
    path, cut = Network("mobilenet_v1_025_224_f32").path, ["MobilenetV1/Logits/AvgPool_1a/AvgPool"]
    shape = (224, 224, 3)
    artifact, session = run(path, tmp_path, input_shapes="input=(1,224,224,3):input=(2,224,224,3)", output_names=cut)
    exact = tvm_megcc.compile(path, output_names=cut)
    reference = tvm_megcc.load(exact.save(tmp_path / "exact"))
    assert len(artifact.manifest["buckets"]) == 2 and len(artifact.container) < 1.01 * len(exact.container)
    image = np.random.default_rng(0).uniform(-1, 1, (2, *shape)).astype(np.float32)
    both = session.run({"input": image})[cut[0]]
    for index in range(2):
        single = {"input": image[index:index + 1]}
        assert_close(session.run(single), reference.run(single))
        assert_close({"": both[index:index + 1]}, {"": reference.run(single)[cut[0]]})
    with pytest.raises(tvm_megcc.MegccError, match="was not compiled for inputs"):
        session.run({"input": np.concatenate([image, image])})
    with pytest.raises(tvm_megcc.MegccError, match=r"cannot have shape \[1,256,1,1\]"):
        tvm_megcc.compile(path, input_shapes="input=(1,224,224,3):input=(2,224,224,3)")


def test_operands_that_must_have_one_shape(tmp_path):
    """Not in MegCC's document: where a sum or a concat wants equal extents, others are refused, not read past."""
    nodes = [node("Add", "x y", "s"), node("Concat", "x y", "c", axis=1)]
    path = saved(model(nodes, {"x": ["n", 4], "y": ["m", 4]}, ["s", "c"]), tmp_path / "case.onnx")
    _, session = run(path, tmp_path, dispatch="x[0]=1..9;y[0]=1..9")
    for count in (1, 9, 4):
        inputs = {"x": weights(count, 4), "y": weights(count, 4) + 1}
        assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))
        with pytest.raises(tvm_megcc.MegccError, match="was not compiled for inputs"):
            session.run({"x": weights(count, 4), "y": weights(count % 9 + 1, 4)})
