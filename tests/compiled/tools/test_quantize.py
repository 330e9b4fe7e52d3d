# SPDX-License-Identifier: Apache-2.0
"""megcc quantize: what it writes is nearly as accurate, runs, and is reported; what cannot be is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.quantize import quantize, timing

pytest.importorskip("onnxruntime.quantization")
DIGITS = "tvm_megcc/examples/digits.onnx"


@pytest.fixture(scope="module")
def digits():
    data = pytest.importorskip("sklearn.datasets").load_digits()
    return (data.images / 16).astype(np.float32)[:, None], data.target


@pytest.mark.slow
def test_digits(digits, tmp_path, capsys):
    images, labels = digits
    np.savez(tmp_path / "few.npz", image=images[:300], labels=labels[:300])
    np.savez(tmp_path / "others.npz", image=images[300:], labels=labels[300:])
    output = tmp_path / "digits_int8.onnx"
    command = ["quantize", DIGITS, "--calibrate", f"{tmp_path}/few.npz", "--evaluate", f"{tmp_path}/others.npz", "-o",
               str(output), "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    accuracy = report["accuracy"]
    assert accuracy["samples"] == 1497 and accuracy["after"] > accuracy["before"] - 0.005 > 0.98
    assert report["signal_to_noise"] > 30 and report["kept_float"] == [] and len(report["methods"]) == 3
    assert [row["name"] for row in report["layers"]] == ["conv1", "conv2", "dense"]
    assert all(row["signal_to_noise"] > 25 and row["alone"] > 25 for row in report["layers"])
    assert report["times"]["containers"]["after"] < report["times"]["containers"]["before"] / 3
    after = before_layouts(import_onnx(output), Context(TARGETS["x86-64-v3"]))
    assert not {op.kind for op in after.ops} & {"conv2d", "matmul", "quantize_linear", "dequantize_linear"}
    (logits,) = run(after, {"image": images[7:8]}).values()
    assert logits.argmax() == labels[7]


def test_layers_that_stay_float(digits, tmp_path):
    """By name and by kind; and of their own accord where outputs have too much noise."""
    few = {"image": digits[0][:20]}
    report = tvm_megcc.quantize(DIGITS, few, tmp_path / "a.onnx", method="minmax", keep_float=["conv1", "Gemm"],
                                time=False)
    assert [row["integers"] for row in report["layers"]] == [False, True, False] and "conv1" in str(report)
    assert report["accuracy"].keys() == {"samples", "agreement"}
    report = tvm_megcc.quantize(DIGITS, few, tmp_path / "b.onnx", method="minmax", min_snr=60, time=False)
    costliest = min(report["layers"], key=lambda row: row["alone"])
    assert report["kept_float"] == [costliest["name"]] and not costliest["integers"]
    assert report["methods"]["minmax"] + 1 < report["signal_to_noise"] < 60
    assert "less than the 60 dB wanted" in str(report)


def test_weights_that_are_integers_already(tmp_path):
    """Of a network that computes in float on weights of int8: they count as weights."""
    w = np.random.default_rng(0).integers(-99, 99, (4, 3, 3, 3)).astype(np.int8)
    nodes = [node("DequantizeLinear", "w s", "real"), node("Conv", "data real", "y", name="conv", pads=[1, 1, 1, 1])]
    onnx.save(model(nodes, {"data": [1, 3, 8, 10]}, {"y": [1, 4, 8, 10]}, {"w": w, "s": np.float32(0.02)}),
              tmp_path / "net.onnx")
    data = np.random.default_rng(1).normal(size=(8, 3, 8, 10)).astype(np.float32)
    report = tvm_megcc.quantize(tmp_path / "net.onnx", {"data": data}, tmp_path / "y.onnx", method="minmax", time=False)
    assert [(row["name"], row["integers"]) for row in report["layers"]] == [("conv", True)]
    after = before_layouts(import_onnx(tmp_path / "y.onnx"), Context(TARGETS["x86-64-v3"]))
    assert "conv2d_integer" in {op.kind for op in after.ops}


@pytest.mark.parametrize("shape", [(6,), (1, 6), (1,), (1, 1), (), (3, 6), (3, 1)], ids=str)
@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"beta": 0.5}], ids=["", "transposed", "scaled"])
def test_what_a_gemm_adds(shape, attributes, tmp_path):
    """Anything that broadcasts to its result; ORT's preparation makes such a Gemm of MatMul and Add."""
    generator = np.random.default_rng(0)
    w = generator.normal(size=(8, 6)).astype(np.float32)
    b = generator.normal(size=shape).astype(np.float32)
    nodes = [node("Gemm", "x w b", "h", **attributes), node("Relu", "h", "y")]
    given = {"w": w.T if "transB" in attributes else w, "b": b}
    made = model(nodes, {"x": [3, 8]}, {"y": [3, 6]}, given)
    made.graph.input.append(onnx.helper.make_tensor_value_info("b", 1, shape))  # as in files of old versions
    onnx.save(made, tmp_path / "net.onnx")
    x = generator.normal(size=(8, 3, 8)).astype(np.float32)
    report = tvm_megcc.quantize(tmp_path / "net.onnx", {"x": x}, tmp_path / "int8.onnx", method="minmax", time=False)
    assert report["signal_to_noise"] > 30 and (report["layers"][0]["integers"] or "beta" in attributes)


def test_images(tmp_path, monkeypatch):
    """A folder of images, brought to the size and the numbers that the network wants."""
    image = pytest.importorskip("PIL.Image")
    w = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    onnx.save(model([node("Conv", "data w", "y", pads=[1, 1, 1, 1])], {"data": [1, 3, 8, 10]}, {"y": [1, 4, 8, 10]},
                    {"w": w}), tmp_path / "net.onnx")
    (tmp_path / "images").mkdir()
    command = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "images"), "--no-time", "-q",
               "--method", "minmax", "-o", str(tmp_path / "out.onnx")]
    given = ["--input", "data=uint8,NHWC,mean=127,std=64"]
    assert main(command) == REFUSED and main([*command, *given]) == REFUSED
    for index in range(3):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 30, 3)).astype(np.uint8)
        image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    assert main([*command, *given]) == 0
    scales = [float(onnx.numpy_helper.to_array(tensor)) for tensor in onnx.load(tmp_path / "out.onnx").graph.initializer
              if tensor.name == "data_scale"]
    assert 1 / 255 < scales[0] < 4 / 255
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 100)
    assert main([*command, *given]) == REFUSED


def test_noise_that_is_no_number():
    """NaN in the results of the quantised model is as bad as can be, not a perfect result."""
    results = [[np.array([1.0, value], np.float32)] for value in (2.0, np.nan)]
    assert quantize._worst_ratio(results[:1], results[1:]) == -quantize.NO_NOISE


def test_weights_that_the_file_holds_in_integers(tmp_path):
    """Of float operators: they are quantised as others, and the file does not hold both."""
    w, x = np.random.default_rng(0).integers(-127, 128, (8, 4, 3, 3)).astype(np.int8), np.ones((2, 4, 9, 9), np.float32)
    onnx.save(model([node("DequantizeLinear", "w s z", "wr", axis=0), node("Conv", "x wr", "y")], {"x": [1, 4, 9, 9]},
                    {"y": [1, 8, 7, 7]}, {"w": w, "s": np.linspace(0.01, 0.02, 8, dtype=np.float32),
                                          "z": np.zeros(8, np.int8)}), tmp_path / "net.onnx")
    report = tvm_megcc.quantize(tmp_path / "net.onnx", {"x": x}, tmp_path / "out.onnx", method="minmax", time=False)
    assert [row["integers"] for row in report["layers"]] == [True] and report["signal_to_noise"] > 30
    held = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert sum(tuple(tensor.dims) == w.shape for tensor in held) == 1


def test_dimensions_that_the_model_leaves_open(tmp_path):
    """By name, as `megcc compile` takes them; samples of another size are refused."""
    w = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    onnx.save(model([node("Conv", "x w", "c"), node("Reshape", "c shape", "y")], {"x": ["batch", 4, "size", "size"]},
                    ("y",), {"w": w, "shape": np.array([1, 8, 49])}), tmp_path / "net.onnx")
    np.savez(tmp_path / "in.npz", x=np.ones((2, 4, 9, 9), np.float32))
    command = ["quantize", str(tmp_path / "net.onnx"), "--calibrate", str(tmp_path / "in.npz"), "-o",
               str(tmp_path / "out.onnx"), "--no-time", "--method", "minmax", "--dim", "batch=1", "--dim"]
    assert main([*command, "size=9"]) == 0
    assert main([*command, "size=11"]) == REFUSED
    report = tvm_megcc.quantize(tmp_path / "net.onnx", {"x": np.ones((2, 4, 9, 9), np.float32)}, tmp_path / "out.onnx",
                                method="minmax", time=False, dims={"batch": 1, "size": 9})
    assert report["signal_to_noise"] > 20


@pytest.mark.parametrize(("arguments", "why"), [
    ({"samples": {"image": np.zeros((4, 8, 8), np.float32)}}, "have 3 axes, the network's input has 4"),
    ({"samples": {"x": np.zeros((4, 1, 8, 8), np.float32)}}, "has no 'image'"),
    ({"samples": {"image": np.zeros((4, 1, 8, 7), np.float32)}}, r"sample of image is \[1,1,8,7\], the network's "),
    ({"samples": {"image": np.zeros((0, 1, 8, 8), np.float32)}}, "at least one"),
    *(({"samples": {"image": np.full((2, 1, 8, 8), number, np.float32)}}, "samples of image have numbers that are")
      for number in (np.nan, np.inf)),
    *(({"samples": {"image": np.full((2, 1, 8, 8), 3e38, np.float32)}, "method": method}, "infinite or NaN")
      for method in ("minmax", "entropy", "percentile")),
    ({"keep_float": ["conv9"]}, "no node and no operator of the model is called so"),
    ({"keep_float": ["Conv", "Gemm"]}, "no convolution or product"),
    ({"method": "best"}, "expected auto, minmax"),
    ({"max_samples": 0}, "max_samples is a number of at least 1, not 0"),
    ({"min_snr": "x"}, "min_snr is a number of dB, not 'x'"),
])
def test_what_cannot_be(arguments, why, tmp_path):
    given = {"model": DIGITS, "samples": {"image": np.zeros((2, 1, 8, 8), np.float32)}, "method": "minmax", **arguments}
    with pytest.raises(MegccError, match=why):
        quantize.quantize(given.pop("model"), given.pop("samples"), tmp_path / "y.onnx", time=False, **given)


def test_what_is_of_another_kind(tmp_path):
    for samples in (None, np.zeros((2, 1, 8, 8), np.float32), [{"image": 1}], 5):
        with pytest.raises(TypeError, match="are a dictionary from names of inputs"):
            tvm_megcc.quantize(DIGITS, samples, tmp_path / "y.onnx")
    for keep_float in (5, [5]):
        with pytest.raises(TypeError, match="keep_float is a list of names"):
            tvm_megcc.quantize(DIGITS, {"image": np.zeros((2, 1, 8, 8), np.float32)}, tmp_path / "y.onnx",
                               keep_float=keep_float)


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    """It is said before anything is calibrated."""
    monkeypatch.setattr(quantize, "read_samples", lambda *_: pytest.fail("samples were read"))
    with pytest.raises(MegccError, match="none is no folder"):
        quantize.quantize(DIGITS, {"image": np.zeros((2, 1, 8, 8), np.float32)}, tmp_path / "none" / "y.onnx")


def test_the_model_itself_is_not_written_over(tmp_path, monkeypatch):
    network = tmp_path / "net.onnx"
    network.write_bytes(Path(DIGITS).read_bytes())
    (tmp_path / "link.onnx").symlink_to(network)
    monkeypatch.setattr(quantize, "read_samples", lambda *_: pytest.fail("samples were read"))
    for output in (network, tmp_path / "link.onnx"):
        with pytest.raises(MegccError, match="is read for this, and would be lost"):
            quantize.quantize(network, {"image": np.zeros((2, 1, 8, 8), np.float32)}, output)


def test_without_the_quantiser(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime.quantization", None)
    with pytest.raises(MegccError, match=r"pip install tvm_megcc\[quantize\]"):
        quantize.require_onnxruntime()


def test_slower_is_said():
    times = {"target": "c", "before": 1e-3, "after": 1.5e-3, "containers": {"before": 9, "after": 3}}
    assert "SLOWER than float, by 50%" in "\n".join(timing.text({"times": times}))
    assert "SLOWER" not in "\n".join(timing.text({"times": {**times, "after": 1e-4}}))
