# SPDX-License-Identifier: Apache-2.0
"""Files that ONNX Runtime's optimiser wrote, with operators of its own domain in place of those of ONNX: the results
that it has of them. (Those of a dynamically quantised network differ from the original, by its roundings.)
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

from .networks import Network

NETWORKS = ("minilm_l1_f32", "minilm_l2_int8dyn", "kwt1_keyword_transformer", "kws_dscnn_f32", "ad_autoencoder_f32",
            "mobilenet_v1_025_224_f32", "yunet_n_dynamic", "lw_person_detector_192")
SLOW = NETWORKS[5:]


def optimised(path, into, level: str) -> str:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(into / "optimised.onnx")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return options.optimized_model_filepath


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
                                  for name in NETWORKS])
def test_extended(name: str, tmp_path):
    network = Network(name)
    path = optimised(network.path, tmp_path, "EXTENDED")
    assert any(node.domain == "com.microsoft" for node in onnx.load(path).graph.node)
    graph, session = import_onnx(path), pytest.importorskip("onnxruntime").InferenceSession(path)
    for _, inputs, expected in network.references():
        actual = reference.run(graph, inputs)
        for key, want in zip(expected, session.run(list(expected), inputs), strict=True):
            np.testing.assert_allclose(actual[key], want, rtol=0, atol=1e-4 * max(1.0, float(np.abs(want).max())))


def test_blocks_of_one_cpu_are_refused(tmp_path):
    path = optimised(Network("resnet8_cifar10_f32").path, tmp_path, "ALL")
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("ONNX Runtime has no blocks of channels for this CPU")
    with pytest.raises(ModelError, match="ORT_ENABLE_EXTENDED"):
        import_onnx(path)
