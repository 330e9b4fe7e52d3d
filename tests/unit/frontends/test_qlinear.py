# SPDX-License-Identifier: Apache-2.0
"""Quantised operators of ONNX Runtime's own domain: at most 1 away from ONNX Runtime, in at most 0.1 % of values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.onnx_models import fed, model, node
from tvm_megcc.context import Context
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])
ONE, TWO = "x xs xz ys yz", "x xs xz w ws wz ys yz"
WINDOWS = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
#: Operator, its operands, their shapes, attributes.
ROWS = [
    ("QLinearAdd", TWO, {"x": (2, 9, 7, 33), "w": (2, 9, 7, 33)}, {}),
    ("QLinearAdd", TWO, {"x": (2, 9, 7, 33), "w": (9, 1, 1)}, {}),
    ("QLinearMul", TWO, {"x": (2, 9, 7, 33), "w": (2, 9, 7, 33)}, {}),
    ("QLinearConcat", "ys yz x xs xz w ws wz", {"x": (2, 9, 33), "w": (2, 5, 33)}, {"axis": 1}),
    ("QLinearLeakyRelu", ONE, {"x": (40, 50)}, {"alpha": 0.1}),
    ("QLinearSigmoid", ONE, {"x": (40, 50)}, {}),
    ("QLinearGlobalAveragePool", ONE, {"x": (3, 70, 7, 5)}, {}),
    ("QLinearGlobalAveragePool", ONE, {"x": (3, 7, 5, 70)}, {"channels_last": 1}),
    ("QLinearAveragePool", ONE, {"x": (2, 30, 9, 12)}, WINDOWS),
    ("QLinearAveragePool", ONE, {"x": (2, 30, 9, 12)}, {**WINDOWS, "count_include_pad": 1}),
    ("QLinearAveragePool", ONE, {"x": (2, 30, 8, 12)}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("QLinearSoftmax", ONE, {"x": (60, 37)}, {"axis": 1, "opset": 13}),
    ("QLinearSoftmax", ONE, {"x": (6, 7, 50)}, {"axis": 1, "opset": 13}),
    ("QLinearWhere", "c x xs xz w ws wz ys yz", {"c": (40, 50), "x": (40, 50), "w": (50,)}, {}),
    ("QGemm", "x xs xz w ws wz b ys yz", {"x": (60, 50), "w": (50, 30), "b": (30,)}, {}),
    ("QGemm", "x xs xz w ws wz b", {"x": (60, 50), "w": (50, 30), "b": (30,)}, {"alpha": 0.5}),
    ("QGemm", "x xs xz w ws wz  ys yz", {"x": (50, 60), "w": (30, 50)}, {"transB": 1, "transA": 1}),
]


def drawn(kind: str, shapes, dtype: str, random) -> dict[str, np.ndarray]:
    """Operands by their names: ...s a scale, ...z a zero point, b a bias, c a condition."""
    limits = np.iinfo(dtype)
    values = {name: random.integers(limits.min, limits.max + 1, shape).astype(dtype) for name, shape in shapes.items()}
    if "c" in shapes:
        values["c"] = random.random(shapes["c"]) < 0.5
    if "b" in shapes:
        values["b"] = random.integers(-9999, 9999, shapes["b"]).astype(np.int32)
    for name in ("x", "w", "y"):
        values[f"{name}s"] = np.float32(random.uniform(0.01, 0.1))
        values[f"{name}z"] = np.array(random.choice([limits.min, limits.max, 3]), dtype)
    if kind in ("QLinearSoftmax", "QLinearSigmoid"):
        values |= {"ys": np.float32(1 / 256), "yz": np.array(limits.min, dtype)}
    if kind == "QGemm":
        values["ys"] = np.float32(0.3)
    return values


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}{len(row[3]) or ''}")
def test_against_onnxruntime(row):
    onnxruntime = pytest.importorskip("onnxruntime")
    kind, names, shapes, attributes = row
    for seed, dtype in enumerate(("int8", "uint8")):
        values = drawn(kind, shapes, dtype, np.random.default_rng(seed))
        inputs = {name: values[name] for name in ("c", "x", "w") if name in shapes and (kind, name) != ("QGemm", "w")}
        constants = {name: values[name] for name in names.split() if name not in inputs}
        proto = model([node(kind, names, "y", domain="com.microsoft", **attributes)], fed(inputs), ["y"], constants)
        proto.graph.output[0].ClearField("type")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        (expected,) = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                                   providers=["CPUExecutionProvider"]).run(None, inputs)
        actual = run(before_layouts(import_onnx(proto), CONTEXT), inputs)["y"]
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        steps = np.abs(actual.astype(np.float64) - expected)
        if expected.dtype == np.float32:
            assert steps.max() <= 1e-6 * np.abs(expected).max()
        else:
            assert steps.max() <= 1 and (steps > 0).mean() <= 0.001, steps.max()


def test_mean():
    """ONNX Runtime declares QLinearReduceMean and does not compute it."""
    x = np.random.default_rng(0).integers(-128, 128, (4, 5, 6)).astype(np.int8)
    constants = {"xs": np.float32(0.5), "xz": np.int8(-3), "ys": np.float32(0.25), "yz": np.int8(7)}
    proto = model([node("QLinearReduceMean", ONE, "y", domain="com.microsoft", axes=[2], keepdims=0)],
                  fed({"x": x}), {"y": ("int8", [4, 5])}, constants)
    expected = np.clip(np.rint((x.astype(np.float64) + 3).mean(2) * 2) + 7, -128, 127)
    np.testing.assert_array_equal(run(before_layouts(import_onnx(proto), CONTEXT), {"x": x})["y"], expected)


def test_a_bias_of_other_rank():
    """C of a QGemm is added where it is no bias."""
    x, c = np.arange(6, dtype=np.int8).reshape(2, 3), np.array([[100], [-50]], np.int32)
    constants = {"xs": np.float32(1), "xz": np.int8(0), "w": np.ones((3, 4), np.int8), "c": c}
    gemm = node("QGemm", "x xs xz w xs xz c", "y", domain="com.microsoft")
    proto = model([gemm], fed({"x": x}), {"y": ("float32", [2, 4])}, constants)
    expected = x.astype(np.float32).sum(1, keepdims=True) + c + np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(run(before_layouts(import_onnx(proto), CONTEXT), {"x": x})["y"], expected)
    onnx.checker.check_model(proto)
