# SPDX-License-Identifier: Apache-2.0
"""Real networks through Relay's ONNX importer: every multiply-accumulate in kernels of ours, results as stored."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from ..models.networks import ALL_NETWORKS, onnxruntime_outputs
from .modules import assert_same, megcc, relay, run_aot, run_graph

MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[3] / "shared" / "models"))


@dataclass(frozen=True)
class Network:
    """slow: its C takes long to compile, or TVM long to import it."""

    name: str
    slow: bool = True
    tolerance: float = 1e-4


NETWORKS = (Network("mnist8", slow=False), Network("resnet8_cifar10_f32"), Network("super_resolution_10"),
            Network("ultraface_rfb320"), Network("yolox_nano_416"), Network("kws_dscnn_f32"),
            Network("mobilenet_v1_025_224_f32"), Network("sinet_portrait_seg"))
LIGHTS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
          "vgg19", "zfnet512")
PARAMETERS = [pytest.param(network, id=network.name, marks=[pytest.mark.slow] * network.slow) for network in NETWORKS]


def imported(name: str):
    """(Relay module, its weights, inputs by name, outputs in order) of a stored model with its reference."""
    path = MODELS / name / "model.onnx"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    model, arrays = onnx.load(path), np.load(path.parent / "reference.npz")
    inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
    mod, params = relay.frontend.from_onnx(model, shape={key: array.shape for key, array in inputs.items()})
    return mod, params, inputs, [arrays[f"out:{value.name}"] for value in model.graph.output]


def partitioned_altogether(mod, params, target: str):
    """Partitioned; every operator is in one region."""
    partitioned = megcc.partition_for_megcc(mod, params, target=target)
    report = megcc.report(partitioned)
    assert report.share == 1.0 and len(report.regions) == 1 and not report.theirs, str(report)
    return partitioned


@pytest.mark.parametrize("network", PARAMETERS)
def test_network(network):
    mod, params, inputs, outputs = imported(network.name)
    partitioned = partitioned_altogether(mod, params, "megcc-native")
    ordered = [inputs[parameter.name_hint] for parameter in partitioned["main"].params]
    assert_same(run_graph(partitioned, ordered, "megcc-native"), outputs, network.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist8", "resnet8_cifar10_f32"])
def test_network_by_the_aot_executor(name):
    mod, params, inputs, outputs = imported(name)
    partitioned = partitioned_altogether(mod, params, "megcc-native")
    ordered = [inputs[parameter.name_hint] for parameter in partitioned["main"].params]
    assert_same(run_aot(partitioned, ordered, "megcc-native"), outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHTS)
def test_light_network(name):
    """Of the onnx package, with seeded weights; ONNX Runtime says what they compute."""
    network = ALL_NETWORKS[f"light_{name}"]
    inputs = network.inputs(0)
    mod, params = relay.frontend.from_onnx(onnx.load(network.path))
    partitioned = partitioned_altogether(mod, params, "megcc-native")
    ordered = [inputs[parameter.name_hint] for parameter in partitioned["main"].params]
    expected = onnxruntime_outputs(network.path, inputs)
    assert_same(run_graph(partitioned, ordered, "megcc-native"), list(expected.values()))
