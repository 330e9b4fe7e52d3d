# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM as ONNX Runtime computes it on one thread; on several it quantises parts of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.onnx_models import model
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

OPERANDS = ("X", "W", "R", "B", "", "h0", "c0", "P", "W_scale", "W_zero", "R_scale", "R_zero")


def lstm(direction: str = "forward", steps: int = 5, batch: int = 2, given: str = "B", kind: str = "int8",
         per_channel: bool = False, **attributes):
    """given: the operands that may be absent."""
    width, hidden, ends = 6, 5, 2 if direction == "bidirectional" else 1
    draw = np.random.default_rng(steps + batch)
    low, scales = np.iinfo(kind).min, (ends, 4 * hidden) if per_channel else (ends,)
    constants = {
        "W": draw.integers(low, low + 256, (ends, width, 4 * hidden)).astype(kind),
        "R": draw.integers(low, low + 256, (ends, hidden, 4 * hidden)).astype(kind),
        "B": draw.standard_normal((ends, 8 * hidden)).astype(np.float32),
        "h0": draw.standard_normal((ends, batch, hidden)).astype(np.float32),
        "c0": draw.standard_normal((ends, batch, hidden)).astype(np.float32),
        "P": draw.standard_normal((ends, 3 * hidden)).astype(np.float32),
        "W_scale": draw.uniform(0.001, 0.01, scales).astype(np.float32),
        "R_scale": draw.uniform(0.001, 0.01, scales).astype(np.float32),
        "W_zero": np.full(scales, low + 128 if per_channel else low + 120).astype(kind),
        "R_zero": np.full(scales, low + 128 if per_channel else low + 131).astype(kind)}
    absent = {"B", "h0", "c0", "P"} - set(given.split())
    names = ["" if name in absent else name for name in OPERANDS]
    made = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain="com.microsoft", hidden_size=hidden,
                            direction=direction, **attributes)
    proto = model([made], {"X": [steps, batch, width]}, ["y", "h", "c"],
                  {name: value for name, value in constants.items() if name not in absent})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto, {"X": draw.standard_normal((steps, batch, width)).astype(np.float32)}


@pytest.mark.parametrize("options", [
    {}, {"direction": "reverse", "given": ""}, {"direction": "bidirectional", "given": "B h0 c0"}, {"kind": "uint8"},
    {"given": "B P h0 c0", "steps": 9}, {"direction": "bidirectional", "given": "P", "per_channel": True},
    {"given": "c0", "clip": 0.5}, {"activations": ["Sigmoid", "Relu", "Tanh"]}, {"steps": 1, "batch": 7}], ids=str)
def test_against_onnxruntime(options: dict):
    onnxruntime = pytest.importorskip("onnxruntime")
    proto, inputs = lstm(**options)
    for output in proto.graph.output:
        output.ClearField("type")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    found = run(import_onnx(proto), inputs)
    for value, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(found[value.name], wanted, atol=1e-6)


@pytest.mark.parametrize(("options", "message"), [
    ({"direction": "sideways"}, "direction sideways"), ({"input_forget": 1}, "coupled"),
    ({"activations": ["Sigmoid", "Elu", "Tanh"]}, "activation Elu"), ({"activations": ["Tanh"]}, "1 activations")])
def test_what_is_refused(options: dict, message: str):
    with pytest.raises(ModelError, match=message):
        import_onnx(lstm(**options)[0])
