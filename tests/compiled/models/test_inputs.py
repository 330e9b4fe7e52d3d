# SPDX-License-Identifier: Apache-2.0
"""Models that take their inputs as given, built and run: they compute what the network does on the converted array."""

from __future__ import annotations

import importlib.util

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.models.networks import NETWORKS, assert_close, onnxruntime_outputs
from tests.onnx_models import model, node
from tvm_megcc import Input
from tvm_megcc.cli import main
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 17, 19, 3)).astype(np.uint8)


@pytest.fixture(autouse=True)
def compiler(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    native_compiler()


def branches(*names: str, shape=(2, 3, 17, 19)) -> onnx.ModelProto:
    """For each name "x_P" an input x_P -> conv with pads P, relu -> conv -> output "y_" + name."""
    generator = np.random.default_rng(1)
    shapes = {"w": (16, 3, 3, 3), "b": (16,), "v": (5, 16, 1, 1)}
    weights = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [each for name in names for each in (
        node("Conv", f"{name} w b", f"h_{name}", pads=[int(name[-1])] * 4, strides=[2, 2]),
        node("Relu", f"h_{name}", f"r_{name}"), node("Conv", f"r_{name} v", f"y_{name}"))]
    return model(nodes, dict.fromkeys(names, shape), [f"y_{name}" for name in names], weights)


def normalised(pixels: np.ndarray, order: str = "") -> np.ndarray:
    """[N, 3, H, W] as a training script makes it."""
    rgb = pixels[..., ::-1] if order else pixels
    return ((rgb.astype(np.float32) - np.float32(MEAN)) / np.float32(STD)).transpose(0, 3, 1, 2)


def assert_equal(actual: np.ndarray, expected: np.ndarray, name: str) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-6 * float(np.abs(expected).max()), err_msg=name)


#: What is given, an array of it, and what the network was trained on.
GIVEN = {
    "pixels": (Input("uint8", "NHWC", mean=MEAN, std=STD), PIXELS, normalised(PIXELS)),
    "bgr": (Input("uint8", "NHWC", "BGR", MEAN, STD), PIXELS, normalised(PIXELS, "BGR")),
    "planes": (Input("int8", mean=-1.5, scale=0.25), (PIXELS // 2).astype(np.int8).transpose(0, 3, 1, 2),
               (PIXELS // 2 + np.float32(1.5)).transpose(0, 3, 1, 2) / np.float32(4)),
    "floats": (Input("float32", "NHWC", "BGR", MEAN, STD), PIXELS.astype(np.float32), normalised(PIXELS, "BGR")),
}


@pytest.mark.slow
def test_every_way_to_give_an_input(tmp_path):
    """Each into a convolution without pads, which may take the arithmetic into its weights, and into one with pads."""
    cases = {f"{name}_{pads}": case for name, case in GIVEN.items() for pads in (0, 1)}
    model = branches(*cases)
    artifact = tvm_megcc.compile(model, "native", inputs={name: given for name, (given, _, _) in cases.items()})
    session = tvm_megcc.load(artifact.save(tmp_path / "net"))
    assert [(port.dtype, port.shape) for port in session.inputs] \
        == [(str(x.dtype), x.shape) for _, x, _ in cases.values()]
    actual = session.run({name: np.ascontiguousarray(x) for name, (_, x, _) in cases.items()})
    expected = reference.run(import_onnx(model), {name: y for name, (_, _, y) in cases.items()})
    for name in expected:
        assert_equal(actual[name], expected[name], name)


def test_open_shapes(tmp_path):
    model = branches("x_1", shape=("n", 3, "h", 19))
    artifact = tvm_megcc.compile(model, "native", inputs="x_1=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4",
                                 dispatch="x_1[0]=1..4;x_1[2]=8..32")
    session = tvm_megcc.load(artifact.save(tmp_path / "open"))
    for pixels in (PIXELS, PIXELS[:1, :9]):
        expected = reference.run(import_onnx(model), {"x_1": normalised(pixels)})
        assert_equal(session.run({"x_1": np.ascontiguousarray(pixels)})["y_x_1"], expected["y_x_1"], str(pixels.shape))


def test_compare_converts_for_the_reference(capsys):
    onnx.save(branches("x_1"), "net.onnx")
    options = ["--input", "x_1=uint8,NHWC,BGR,mean=123.7:116.3:103.5,scale=0.017", "--output-names", "r_x_1"]
    for executor in ("numpy", *(["onnxruntime"] if importlib.util.find_spec("onnxruntime") else [])):
        assert main(["compare", "net.onnx", "--layers", "--reference", executor, *options]) == 0
        text = capsys.readouterr().out
        assert "no layer differs" in text and " r_x_1: max error" in text and " y_x_1: max error" not in text
    np.savez("in.npz", x_1=PIXELS)
    assert main(["run", "net.onnx", "--inputs", "in.npz", "--repeat", "1", *options]) == 0
    assert "x_1  uint8[2,17,19,3]" in capsys.readouterr().out


@pytest.mark.slow
def test_real_network(tmp_path):
    """Its file begins with a transpose from NHWC, which the conversion does on its way: one call for both."""
    path = NETWORKS["mobilenet_v1_025_224_f32"].path
    given = Input("uint8", "NHWC", mean=127.5, std=127.5)
    artifact = tvm_megcc.compile(path, "native", name="mobilenet", inputs={"input": given})
    kinds = [call["kind"] for call in artifact.manifest["programs"][0]["calls"]]
    assert kinds.count("convert_input") == 1 and "transpose" not in kinds
    pixels = np.random.default_rng(2).integers(0, 256, (1, 224, 224, 3)).astype(np.uint8)
    expected = onnxruntime_outputs(path, {"input": (pixels.astype(np.float32) - 127.5) / 127.5})
    assert_close(tvm_megcc.load(artifact.save(tmp_path / "given")).run({"input": pixels}), expected)
