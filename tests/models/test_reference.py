# SPDX-License-Identifier: Apache-2.0
"""Real networks through the importer and the numpy interpreter: what every later stage is compared with is right."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

from .networks import ALL_NETWORKS, NETWORKS, Network, assert_close, onnxruntime_outputs

#: Also those with int8 weights; one graph with its shape symbols serves every stored case.
ALL = {name: Network(name) for name in (*ALL_NETWORKS, "ad_autoencoder_int8")}
STORED = [name for name in ALL if not name.startswith("light_")]
LIGHT = [name for name in ALL if name.startswith("light_")]


def check(name: str, actual, expected) -> None:
    """Outputs that are nearly zero everywhere are compared absolutely."""
    if name in NETWORKS:
        assert_close(actual, expected)
        return
    for key, want in expected.items():
        np.testing.assert_allclose(actual[key], want, rtol=0, atol=1e-4 * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("name", STORED)
def test_reference(name: str):
    """One graph, with its shape symbols, serves every stored case."""
    network = Network(name)
    graph = import_onnx(network.path)
    for _, inputs, expected in network.references():
        check(name, reference.run(graph, inputs), expected)


@pytest.mark.parametrize("name", LIGHT)
def test_light_model_as_stored(name: str):
    """Weights made by ConstantOfShape, the input that ONNX's own backend tests feed, the output stored beside it."""
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    model = onnx.load(path)
    initializers = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in initializers)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    x = (np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)).astype(np.float32)
    stored = onnx.TensorProto()
    stored.ParseFromString(path.with_name(f"{name}_output_0.pb").read_bytes())
    graph = import_onnx(model)
    assert not {"full", "expand"} & {op.kind for op in graph.ops}
    assert_close(reference.run(graph, {value.name: x}), {graph.outputs[0]: onnx.numpy_helper.to_array(stored)})


@pytest.mark.parametrize("name", LIGHT)
def test_light_model_with_random_weights(name: str):
    network = ALL[name]
    inputs = network.inputs(seed=1)
    assert_close(reference.run(import_onnx(network.path), inputs), onnxruntime_outputs(network.path, inputs))


@pytest.mark.parametrize("name", ["resnet8_cifar10_f32", "minilm_l1_f32", "yunet_n_dynamic"])
def test_bound_shapes_give_the_same(name: str):
    network = Network(name)
    _, inputs, expected = network.references()[0]
    graph = import_onnx(network.path, {key: array.shape for key, array in inputs.items()})
    assert all(type_.is_static for type_ in graph.types.values())
    check(name, reference.run(graph, inputs), expected)
