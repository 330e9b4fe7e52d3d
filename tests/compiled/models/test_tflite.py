# SPDX-License-Identifier: Apache-2.0
"""TFLite files as compiled C: what LiteRT computes, quantised ones to the bit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.tflite_files import Quantized, litert, network, written
from tests.tflite_networks import Network
from tests.unit.tflite.test_tflite_files import two_signatures
from tests.unit.tflite.test_tflite_operators import file_of, lstm
from tests.unit.tflite.test_tflite_states import steps_of, svdf, variables
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.frontends.tflite.importer import load
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[4] / "shared" / "models"))


def compiled(data: bytes, tmp_path, target: str, **options):
    path = tmp_path / "small.tflite"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    artifact = tvm_megcc.compile(path, target, **options)
    artifact.save(tmp_path / "out")
    return artifact, tvm_megcc.load(tmp_path / "out", target)


def kinds(artifact) -> set[str]:
    return {call["kind"] for call in artifact.manifest["programs"][0]["calls"]}


@pytest.mark.parametrize("target", [pytest.param("c", marks=pytest.mark.slow), "native"])
def test_float_network(target: str, tmp_path):
    artifact, session = compiled(network(), tmp_path, target)
    assert kinds(artifact) <= {"conv2d", "max_pool", "relayout", "transpose", "matmul", "softmax"}
    feeds = {"image": np.random.default_rng(0).standard_normal((1, 17, 13, 3)).astype(np.float32)}
    found, expected = session.run(feeds), litert(network(), feeds)
    assert list(found) == ["scores", "sum"] and artifact.manifest["model"]["file"] == "small.tflite"
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, atol=1e-5)


@pytest.mark.parametrize("signature", ["clip", "turn"])
def test_signatures(signature: str, tmp_path, capsys):
    """The command, and LiteRT's runner of the signature."""
    path = tmp_path / "two.tflite"
    path.write_bytes(two_signatures())
    assert main(["compare", str(path), "--target", "native"]) == REFUSED
    assert "has 2 signatures (clip, turn)" in capsys.readouterr().err
    assert main(["compare", str(path), "--target", "native", "--signature", signature]) == 0
    assert "against LiteRT's reference kernels" in capsys.readouterr().out


def test_clipped_cells(tmp_path):
    """LSTM layers of TFLite bound their cells."""
    data, feeds = file_of(lstm(9, 2, 5, 19, clip=0.3))
    _, session = compiled(data, tmp_path, "native")
    np.testing.assert_allclose(session.run(feeds)["y0"], litert(data, feeds)["y0"], atol=1e-5)


def quantised(dtype: str) -> bytes:
    """Two convolutions, one depthwise, a residual, a function, pools, a product and softmax."""
    random = np.random.default_rng(5)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max

    def weights(*shape: int, axis: int = 0) -> dict[str, Quantized]:
        channels = shape[axis]
        scales = np.exp(random.uniform(-5, -4, channels if dtype == "int8" else 1)).astype(np.float32)
        array = random.integers(low, high + 1, shape).astype(dtype)
        bias = random.integers(-3000, 3000, channels).astype(np.int32)
        zero = 0 if dtype == "int8" else 131
        return {"w": Quantized(shape, scales, zero, dtype, axis, array),
                "b": Quantized((channels,), scales * np.float32(0.05), 0, "int32", 0, bias)}

    def numbers(shape, scale=0.05, zero=-3) -> Quantized:
        return Quantized(shape, scale, zero if dtype == "int8" else zero + 128, dtype)

    conv = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": 1}
    pool = {"Padding": 0, "StrideW": 2, "StrideH": 2, "FilterWidth": 3, "FilterHeight": 2}
    tensors = {"image": numbers((1, 11, 9, 3)), "c1": numbers((1, 11, 9, 8), 0.2), "c2": numbers((1, 11, 9, 8), 0.3, 7),
               "sum": numbers((1, 11, 9, 8), 0.25), "curve": numbers((1, 11, 9, 8), 1 / 256, -128),
               "mean": numbers((1, 6, 5, 8), 1 / 256, -128), "flat": numbers((1, 240), 1 / 256, -128),
               "dense": numbers((1, 10), 0.1), "scores": numbers((1, 10), 1 / 256, -128),
               "shape": np.array([1, 240], np.int32)}
    for index, parts in enumerate((weights(8, 3, 3, 3), weights(1, 3, 3, 8, axis=3), weights(10, 240)), 1):
        tensors.update((f"{name}{index}", part) for name, part in parts.items())
    operators = [
        ("CONV_2D", "Conv2DOptions", conv, ["image", "w1", "b1"], ["c1"]),
        ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", {**conv, "DepthMultiplier": 1}, ["c1", "w2", "b2"], ["c2"]),
        ("ADD", "AddOptions", {}, ["c1", "c2"], ["sum"]), ("LOGISTIC", "", {}, ["sum"], ["curve"]),
        ("AVERAGE_POOL_2D", "Pool2DOptions", pool, ["curve"], ["mean"]),
        ("RESHAPE", "", {}, ["mean", "shape"], ["flat"]),
        ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["flat", "w3", "b3"], ["dense"]),
        ("SOFTMAX", "SoftmaxOptions", {"Beta": 1.0}, ["dense"], ["scores"])]
    return written(tensors, operators, ["image"], ["scores", "sum", "mean"])


@pytest.mark.parametrize("target", ["c", "native"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_network(dtype: str, target: str, tmp_path):
    data = quantised(dtype)
    artifact, session = compiled(data, tmp_path, target)
    assert {"conv2d_integer", "matmul_integer", "softmax_fixed"} <= kinds(artifact)
    limits = np.iinfo(dtype)
    image = np.random.default_rng(1).integers(limits.min, limits.max + 1, (1, 11, 9, 3)).astype(dtype)
    found, expected = session.run({"image": image}), litert(data, {"image": image})
    for name, wanted in expected.items():
        assert len(np.unique(wanted)) > 2
        np.testing.assert_array_equal(found[name], wanted)


def test_scales_of_inputs_and_outputs(tmp_path):
    """The manifest and the header have them; not of an input that is given in another form."""
    artifact, _ = compiled(quantised("int8"), tmp_path, "c")
    quants = {port["name"]: port["quant"] for port in (*artifact.manifest["inputs"], *artifact.manifest["outputs"])}
    assert quants["image"] == {"scale": float(np.float32(0.05)), "zero_point": -3}
    assert quants["scores"] == {"scale": 1 / 256, "zero_point": -128}
    artifact = tvm_megcc.compile(tmp_path / "small.tflite", "c", inputs="image=uint8,mean=128")
    assert "quant" not in artifact.manifest["inputs"][0] and "quant" in artifact.manifest["outputs"][0]


@pytest.mark.parametrize("form", ["float32", "int8"])
def test_states(form: str, tmp_path, capsys, monkeypatch):
    """Of a layer that keeps what earlier runs had, from step to step and in `megcc compare`."""
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    data, feeds = svdf(form, 3)
    _, session = compiled(data, tmp_path, "c")
    assert [port.name for port in session.inputs] == ["x"]
    for array, wanted in zip(feeds, steps_of(data, feeds), strict=True):
        np.testing.assert_allclose(session.run({"x": array})["y"], wanted, atol=1e-5 if form == "float32" else 0)
    assert main(["compare", str(tmp_path / "small.tflite"), "--target", "c", "--allow"]) == 0
    assert "equal" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["c", "native", pytest.param("cortex-m4", marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", [(3.0, 1.0), (2.5, 2.5)], ids=["numbers", "one number"])
def test_states_that_begin_with_numbers(first, target: str, tmp_path):
    artifact, session = compiled(variables(first), tmp_path, target)
    assert artifact.manifest["states"] == [{"output": "sum.next", "input": "sum", "begins": list(dict.fromkeys(first))}]
    x = np.array([0.5, -1], np.float32)
    np.testing.assert_array_equal(session.run({"x": x})["y"], x + np.float32(first))
    np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x + np.float32(first))
    session.reset()
    np.testing.assert_array_equal(session.states["sum"], np.float32(first))
    session.reset({"sum": np.array((7, 8), np.float32)})
    np.testing.assert_array_equal(session.run({"x": x})["y"], x + np.float32((7, 8)))


@pytest.mark.parametrize("begins", [[1.0, 2.0, 3.0], ["1"], [[1.0, 2.0]], 1.0, [], [None], [{}]], ids=str)
def test_what_a_state_cannot_begin_with(begins, tmp_path):
    """Of a manifest that somebody has changed."""
    compiled(variables((3.0, 1.0)), tmp_path, "c")
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["models"][0]["states"][0]["begins"] = begins
    path.write_text(json.dumps(manifest))
    with pytest.raises(MegccError, match="the initial value of a state is invalid"):
        tvm_megcc.load(tmp_path / "out", "c")


def test_compare(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "small.tflite"
    path.write_bytes(quantised("int8"))
    assert main(["compare", str(path), "--layers", "--target", "c", "--tolerance", "0"]) == 0
    text = capsys.readouterr().out
    assert "against LiteRT's reference kernels" in text and "no layer differs" in text
    assert main(["compare", str(path), "--reference", "onnxruntime", "--target", "c"]) == REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", pytest.param("native", marks=pytest.mark.long)])
def test_random_networks(target: str, tmp_path):
    """The kernels of files of which tests/unit has the graphs."""
    for seed in range(8):
        network = Network(seed)
        _, session = compiled(network.file, tmp_path / str(seed), target)
        found = session.run(network.feeds)
        for name, wanted in litert(network.file, network.feeds).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=f"file {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "kws_dscnn_f32", "kws_dscnn_int8", "ad_autoencoder_int8", "resnet8_cifar10_int8", "tflm_micro_speech",
    "tflm_mnist_lstm_int8", "mobilenet_v1_025_224_uint8", "mobilenet_v1_025_224_f32", "tflm_mnist_lstm_f32",
    "ssd_mobilenet_v1_coco_int8", "kwt1_keyword_transformer", "basic_pitch_nmp", "dtln_stage1", "dtln_stage2"])
def test_networks(name: str, tmp_path):
    """Trained ones, on random inputs; quantised ones to the bit."""
    path = MODELS / name / "model.tflite"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    artifact, session = compiled(path.read_bytes(), tmp_path, "native")
    assert "tir" not in kinds(artifact)
    for seed in range(3):
        random = np.random.default_rng(seed)
        feeds = {}
        for port in session.inputs:
            whole = np.iinfo(port.dtype) if "int" in str(port.dtype) else None
            draw = random.integers(whole.min, whole.max + 1, port.shape) if whole else random.uniform(-1, 1, port.shape)
            feeds[port.name] = draw.astype(port.dtype)
        found, expected = session.run(feeds), litert(path.read_bytes(), feeds)
        for key, wanted in expected.items():
            if wanted.dtype == np.float32:
                np.testing.assert_allclose(found[key], wanted, atol=7e-4 if name == "basic_pitch_nmp" else 1e-4)
            else:
                np.testing.assert_array_equal(found[key], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_dscnn_int8", "resnet8_cifar10_int8"])
def test_every_tensor(name: str, tmp_path):
    """Each result of each operator of a trained network, to the bit: in numpy, and in C that gives all of them."""
    path = MODELS / name / "model.tflite"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    file = load(path)
    made = [file.tensors[index].name for operator in file.operators for index in operator.outputs]
    assert len({*made}) == len(made) > 9
    graph = import_tflite(path, output_names=made)
    _, session = compiled(path.read_bytes(), tmp_path, "native", output_names=made)
    with np.load(path.with_name("reference_tflite.npz")) as arrays:
        given = {name: arrays[f"in:{name}"] for name in graph.inputs}
    for seed in range(3):
        random = np.random.default_rng(seed)
        feeds = {name: random.integers(-128, 128, array.shape).astype(np.int8) if seed else array
                 for name, array in given.items()}
        expected, numpy, found = litert(path.read_bytes(), feeds, made), reference.run(graph, feeds), session.run(feeds)
        for tensor in made:
            np.testing.assert_array_equal(numpy[tensor], expected[tensor], err_msg=tensor)
            np.testing.assert_array_equal(found[tensor], expected[tensor], err_msg=tensor)
