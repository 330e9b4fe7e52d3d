# SPDX-License-Identifier: Apache-2.0
"""Real networks through the importer and the numpy interpreter: what every later stage is compared with is right."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

from .networks import NETWORKS, Network, assert_close

#: Networks beyond those that compile today: transformers, audio, int8 weights, dynamic extents.
MORE = {network.name: network for network in (
    Network("super_resolution_10"), Network("ad_autoencoder_f32"), Network("ad_autoencoder_int8"),
    Network("dtln_stage2"), Network("minilm_l1_f32"), Network("vespa_tiny_transformer"), Network("yunet_n_dynamic"),
    Network("sinet_portrait_seg"), Network("kwt1_keyword_transformer"), Network("deeplab_v3_257"),
    Network("lw_person_detector_192"),
)}
ALL = NETWORKS | MORE


def references(network: Network):
    if not network.name.startswith("light_"):
        return Network(network.name).references()
    model = onnx.load(network.path)
    initializers = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in initializers)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    # The input that ONNX's own backend tests feed the light models.
    x = (np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)).astype(np.float32)
    stored = onnx.TensorProto()
    stored.ParseFromString(network.path.with_name(f"{network.name}_output_0.pb").read_bytes())
    return [("output_0", {value.name: x}, {model.graph.output[0].name: onnx.numpy_helper.to_array(stored)})]


def check(name: str, actual, expected) -> None:
    """Outputs that are nearly zero everywhere are compared absolutely."""
    if name in NETWORKS:
        assert_close(actual, expected)
        return
    for key, want in expected.items():
        np.testing.assert_allclose(actual[key], want, rtol=0, atol=1e-4 * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("name", ALL)
def test_reference(name: str):
    """One graph, with its shape symbols, serves every stored case."""
    network = ALL[name]
    graph = import_onnx(network.path)
    for _, inputs, expected in references(network):
        check(name, reference.run(graph, inputs), expected)


@pytest.mark.parametrize("name", ["resnet8_cifar10_f32", "minilm_l1_f32", "yunet_n_dynamic"])
def test_bound_shapes_give_the_same(name: str):
    network = ALL[name]
    _, inputs, expected = references(network)[0]
    graph = import_onnx(network.path, {key: array.shape for key, array in inputs.items()})
    assert all(type_.is_static for type_ in graph.types.values())
    check(name, reference.run(graph, inputs), expected)
