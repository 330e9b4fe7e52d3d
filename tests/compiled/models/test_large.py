# SPDX-License-Identifier: Apache-2.0
"""Weights of more than 2 GB, as a few with a limit that is lower for the test; and what compiling takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_megcc
from tvm_megcc.codegen import container


def network(path: Path, width: int, layers: int) -> list[np.ndarray]:
    """tanh(... tanh(x @ w0) @ w1 ...), its weights beside the file; these."""
    random = np.random.default_rng(0)
    weights = [random.uniform(-1, 1, (width, width)).astype(np.float32) / np.float32(width ** 0.5)
               for _ in range(layers)]
    path.with_suffix(".data").write_bytes(b"".join(weight.tobytes() for weight in weights))
    nodes, tensors, value = [], [], "x"
    for index in range(layers):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[width, width],
                             data_location=TensorProto.EXTERNAL)
        for key, entry in (("location", path.with_suffix(".data").name), ("offset", index * width * width * 4)):
            tensor.external_data.add(key=key, value=str(entry))
        tensors.append(tensor)
        nodes += [helper.make_node("MatMul", [value, tensor.name], [f"m{index}"]),
                  helper.make_node("Tanh", [f"m{index}"], [f"y{index}"])]
        value = f"y{index}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, width]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "network", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return weights


def test_weights_behind_everything_else(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(container, "MAX_INNER_WEIGHTS", 100_000)
    weights = network(tmp_path / "large.onnx", 200, 3)
    artifact = tvm_megcc.compile(tmp_path / "large.onnx", "native,c")
    assert container.read(artifact.container).weights_begin
    session = tvm_megcc.load(artifact.save(tmp_path / "out"))
    x = np.random.default_rng(1).standard_normal((2, 200)).astype(np.float32)
    (found,) = session.run({"x": x}).values()
    wanted = x
    for weight in weights:
        wanted = np.tanh(wanted @ weight)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is counted in kilobytes on Linux")
def test_memory_of_compiling(tmp_path: Path):
    """At most 2.5 times the weights, besides what the compiler itself takes."""
    network(tmp_path / "small.onnx", 64, 6)
    weights = network(tmp_path / "large.onnx", 2048, 6)
    code = "import sys, tvm_megcc; tvm_megcc.compile(sys.argv[1], 'c').save(sys.argv[1] + '.out');" \
           "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    peak = {name: int(subprocess.run([sys.executable, "-c", code, str(tmp_path / f"{name}.onnx")], capture_output=True,
                                     text=True, check=True).stdout) * 1024 for name in ("small", "large")}
    size = sum(weight.nbytes for weight in weights)
    assert peak["large"] - peak["small"] < 2.5 * size, f"{(peak['large'] - peak['small']) / size:.2f}"
