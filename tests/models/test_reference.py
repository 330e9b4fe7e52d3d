# SPDX-License-Identifier: Apache-2.0
"""Real networks through the importer and the numpy interpreter: what every later stage is compared with is right."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

from .networks import ALL_NETWORKS, NETWORKS, Network, assert_close

#: Also those with int8 weights. Shapes stay open, so that one graph with its symbols serves every stored case.
ALL = {network.name: replace(network, shapes=())
       for network in (*ALL_NETWORKS.values(), Network("ad_autoencoder_int8"))}
STORED = [name for name in ALL if not name.startswith("light_")]
LIGHT = [name for name in ALL if name.startswith("light_")]


#: Those that numpy is quick with, and those of the others that it is not.
SMALL = ("light_squeezenet", "light_shufflenet")
LARGE = ("basic_pitch_nmp", "super_resolution_10", "yolox_nano_416", "deeplab_v3_257")


def slow(names, are_slow) -> list:
    return [pytest.param(name, marks=pytest.mark.slow) if are_slow(name) else name for name in names]


def check(name: str, actual, expected) -> None:
    """Outputs that are nearly zero everywhere are compared absolutely."""
    if name in NETWORKS:
        assert_close(actual, expected)
        return
    for key, want in expected.items():
        tolerance = max(1e-4 * max(1.0, float(np.abs(want).max())), ALL[name].noise)
        np.testing.assert_allclose(actual[key], want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", slow(STORED, lambda name: name in LARGE))
def test_reference(name: str):
    network = ALL[name]
    graph = import_onnx(network.path, constants=dict(network.constants))
    for _, inputs, expected in network.references():
        check(name, reference.run(graph, inputs), expected)


@pytest.mark.parametrize("name", slow(LIGHT, lambda name: name not in SMALL))
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


@pytest.mark.parametrize("name", slow(LIGHT, lambda name: name not in SMALL))
def test_light_model_with_random_weights(name: str):
    network = ALL[name]
    inputs = network.inputs(seed=1)
    assert_close(reference.run(import_onnx(network.path), inputs), network.expected(inputs))


@pytest.mark.parametrize("name", ["resnet8_cifar10_f32", "minilm_l1_f32", "yunet_n_dynamic"])
def test_bound_shapes_give_the_same(name: str):
    network = Network(name)
    _, inputs, expected = network.references()[0]
    graph = import_onnx(network.path, {key: array.shape for key, array in inputs.items()})
    assert all(type_.is_static for type_ in graph.types.values())
    check(name, reference.run(graph, inputs), expected)
