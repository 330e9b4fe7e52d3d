# SPDX-License-Identifier: Apache-2.0
"""The cases that MegCC's own document on dynamic shapes goes through, in float32, a test each.

The last of them, one model for arm64 and armv7, is test_targets.py::test_one_folder_for_arm64_and_armv7.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc

from .networks import Network, assert_close, onnxruntime_outputs


def network(tmp_path, nodes, inputs, outputs, weights=()):
    """An ONNX file. inputs, outputs: (name, element type, shape)."""
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights])
    path = tmp_path / "case.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) * 0.2


def run(path, tmp_path, **options):
    artifact = tvm_megcc.compile(path, **options)
    return artifact, tvm_megcc.load(artifact.save(tmp_path / "folder"))


def test_a_static_convolution(tmp_path):
    path = network(tmp_path, [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])],
                   [("x", TensorProto.FLOAT, [1, 3, 9, 7])], [("y", TensorProto.FLOAT, [1, 8, 9, 7])],
                   [("w", weights(8, 3, 3, 3)), ("b", weights(8))])
    artifact, session = run(path, tmp_path)
    assert artifact.manifest["buckets"] == [{}]
    inputs = {"x": weights(1, 3, 9, 7)}
    assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))


def test_a_conversion_and_a_chain_on_an_unbounded_tensor(tmp_path):
    nodes = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["f", "s"], ["m"]),
             helper.make_node("Add", ["m", "b"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    path = network(tmp_path, nodes, [("x", TensorProto.INT8, ["n", 5])], [("y", TensorProto.FLOAT, ["n", 5])],
                   [("s", weights(5)), ("b", weights(5))])
    artifact, session = run(path, tmp_path, dispatch="x[0]=1..*")
    program = artifact.manifest["programs"][0]
    assert program["arena_bytes"] == 0 and program["instructions"] > len(program["calls"])  # allocated, and released
    for count in (1, 7, 3000, 2):
        inputs = {"x": np.random.default_rng(count).integers(-128, 128, (count, 5)).astype(np.int8)}
        assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))


def test_a_reshape_is_memory_forwarding(tmp_path):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[4, 4]), helper.make_node("Flatten", ["c"], ["f"]),
             helper.make_node("MatMul", ["f", "v"], ["y"])]
    path = network(tmp_path, nodes, [("x", TensorProto.FLOAT, ["batch", 3, 4, 4])],
                   [("y", TensorProto.FLOAT, ["batch", 6])], [("w", weights(16, 3, 4, 4)), ("v", weights(16, 6))])
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
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Concat", ["x", "y"], ["c"], axis=1)]
    shapes = [("x", TensorProto.FLOAT, ["n", 4]), ("y", TensorProto.FLOAT, ["m", 4])]
    path = network(tmp_path, nodes, shapes, [("s", TensorProto.FLOAT, None), ("c", TensorProto.FLOAT, None)])
    _, session = run(path, tmp_path, dispatch="x[0]=1..9;y[0]=1..9")
    for count in (1, 9, 4):
        inputs = {"x": weights(count, 4), "y": weights(count, 4) + 1}
        assert_close(session.run(inputs), onnxruntime_outputs(path, inputs))
        with pytest.raises(tvm_megcc.MegccError, match="was not compiled for inputs"):
            session.run({"x": weights(count, 4), "y": weights(count % 9 + 1, 4)})
