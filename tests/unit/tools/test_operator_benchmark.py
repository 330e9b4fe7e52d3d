# SPDX-License-Identifier: Apache-2.0
"""Models of one operator, cut out of a model of several for benchmarks/operators.py, and its page."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, saved

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
onnxruntime = pytest.importorskip("onnxruntime")
interpreter = pytest.importorskip("ai_edge_litert.interpreter")
sys.path.insert(0, str(BENCHMARKS))
try:
    import nodes
finally:
    sys.path.remove(str(BENCHMARKS))


def cases(tmp_path, proto: onnx.ModelProto) -> dict[str, nodes.Case]:
    return {case.operator: case for case in nodes.onnx_cases(Path(saved(proto, tmp_path / "net.onnx")))}


def test_nodes_have_their_shapes_attributes_and_weights(tmp_path):
    """Each case computes what the node does in the model."""
    weights = {"w": np.ones((4, 1, 3, 3), np.float32), "p": np.ones((2, 4, 1, 1), np.float32)}
    proto = model([node("Conv", "x w", "deep", group=4, pads=[1, 1, 1, 1]), node("Relu", "deep", "r"),
                   node("Conv", "r p", "point", kernel_shape=[1, 1]), node("Softmax", "point", "y", axis=1)],
                  {"x": ["n", 4, "h", "w"]}, ["y"], weights)
    found = cases(tmp_path, proto)
    assert list(found) == ["Conv in groups", "Relu", "Conv 1x1", "Softmax"]
    assert found["Conv 1x1"].signature.startswith("float32[1,4,224,224] float32[2,4,1,1]")
    assert {case.dtype for case in found.values()} == {"float32"}
    session = onnxruntime.InferenceSession(found["Softmax"].file, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((1, 2, 224, 224)).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"point": x})[0].sum(1), 1, rtol=1e-5)
    session = onnxruntime.InferenceSession(found["Conv in groups"].file, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((1, 4, 224, 224), np.float32)})[0].max() == 9


def test_a_quantised_operator_keeps_its_scales(tmp_path):
    constants = {"s": np.float32(0.1), "z": np.uint8(3), "w": np.ones((4, 5), np.uint8)}
    proto = model([node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
                   node("DequantizeLinear", "w s z", "dw"), node("MatMul", "d dw", "m"), node("Relu", "m", "r"),
                   node("QuantizeLinear", "r s z", "y")], {"x": [2, 4]}, ["y"], constants)
    found = cases(tmp_path, proto)
    assert list(found) == ["QuantizeLinear", "MatMul (QDQ)"]
    inside = onnx.load_from_string(found["MatMul (QDQ)"].file).graph
    assert [each.op_type for each in inside.node] == [
        "DequantizeLinear", "DequantizeLinear", "MatMul", "Relu", "QuantizeLinear"]
    assert found["MatMul (QDQ)"].dtype == "uint8" and [value.name for value in inside.input] == ["q"]


def test_operators_of_tflite(tmp_path):
    from tests.tflite_files import network
    (tmp_path / "net.tflite").write_bytes(network())
    found = list(nodes.tflite_cases(tmp_path / "net.tflite"))
    assert found
    for case in found:
        engine = interpreter.Interpreter(model_content=case.file)
        engine.allocate_tensors()
        engine.invoke()


def test_shapes_are_spread():
    assert nodes.spread(list(range(10)), 3) == [0, 4, 9]
    assert nodes.spread([1, 2], 5) == [1, 2]


def test_the_page_is_that_of_the_results():
    """`python benchmarks/operators.py` writes it again."""
    found = runpy.run_path(str(BENCHMARKS / "operators.py"))
    rows = [json.loads(line) for line in found["RESULTS"].read_text().splitlines()]
    assert found["PAGE"].read_text() == found["page"](rows)
