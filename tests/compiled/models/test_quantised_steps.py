# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU networks that ONNX Runtime's static quantisation wrote, compiled, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import tvm_megcc
from tests.onnx_models import model, node

STEPS, INPUTS, UNITS, RESULTS = 25, 40, 48, 12


class _Drawn(CalibrationDataReader):
    def __init__(self):
        generator = np.random.default_rng(7)
        self.left = [{"x": generator.standard_normal((STEPS, 1, INPUTS)).astype(np.float32)} for _ in range(8)]

    def get_next(self):
        return self.left.pop() if self.left else None


@pytest.fixture
def quantised(tmp_path, request):
    """The path of a network of two layers and a product."""
    kind, dtype = request.param
    gates, generator, nodes, weights, x = {"LSTM": 4, "GRU": 3}[kind], np.random.default_rng(3), [], {}, "x"
    for layer, width in enumerate((INPUTS, UNITS)):
        for name, shape in (("W", (1, gates * UNITS, width)), ("R", (1, gates * UNITS, UNITS)),
                            ("B", (1, 2 * gates * UNITS))):
            weights[f"{name}{layer}"] = (generator.standard_normal(shape) / UNITS ** 0.5).astype(np.float32)
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        nodes += [node(kind, f"{x} W{layer} R{layer} B{layer}", f"y{layer}", hidden_size=UNITS, **more),
                  node("Reshape", f"y{layer} rows", f"z{layer}")]
        x = f"z{layer}"
    weights |= {"M": (generator.standard_normal((UNITS, RESULTS)) / 8).astype(np.float32),
                "rows": np.array([STEPS, 1, UNITS])}
    nodes.append(node("MatMul", f"{x} M", "out"))
    onnx.save(model(nodes, {"x": [STEPS, 1, INPUTS]}, {"out": [STEPS, 1, RESULTS]}, weights), tmp_path / "real.onnx")
    path, type_ = tmp_path / "quantised.onnx", QuantType[dtype]
    quantize_static(tmp_path / "real.onnx", path, _Drawn(), quant_format=QuantFormat.QDQ, activation_type=type_,
                    weight_type=type_, op_types_to_quantize=[kind, "Reshape", "MatMul"])
    return path


@pytest.mark.parametrize("quantised", [("LSTM", "QUInt8"), pytest.param(("GRU", "QInt8"), marks=pytest.mark.slow)],
                         indirect=True)
def test_statically_quantised_layers(quantised, tmp_path):
    """Results differ by at most one step in one of 200 numbers: ONNX Runtime computes reals between the integers, whose
    last places differ. The container has the weights as the model has them; for each row of a gate, of 3 or 4, a real
    bias and what its weights add up to."""
    wanted = onnxruntime.InferenceSession(str(quantised))
    artifact = tvm_megcc.compile(str(quantised))
    session = tvm_megcc.load(artifact.save(tmp_path / "out"))
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(quantised).graph.initializer}
    integers = sum(array.nbytes for array in held.values() if array.dtype.itemsize == 1)
    assert max(program["weight_bytes"] for program in artifact.manifest["programs"]) < integers + 2 * 4 * UNITS * 8
    generator, differences = np.random.default_rng(1), []
    for _ in range(5):
        x = generator.standard_normal((STEPS, 1, INPUTS)).astype(np.float32)
        actual, expected = np.asarray(session.run({"x": x})["out"]), wanted.run(None, {"x": x})[0]
        differences.append(np.rint(np.abs(actual - expected) / held["out_scale"]))
    assert np.max(differences) <= 1 and np.mean(differences) < 0.005
