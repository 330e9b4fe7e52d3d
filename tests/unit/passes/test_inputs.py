# SPDX-License-Identifier: Apache-2.0
"""Inputs as they are given: the text that says how, what it becomes in the graph, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tvm_megcc
from tests import onnx_models
from tests.graphs import Builder
from tests.onnx_models import node, saved
from tvm_megcc import Input, option_values
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.passes.canonicalize.preprocess import convert_inputs
from tvm_megcc.runtime import reference
from tvm_megcc.tools import run

MEAN, STD = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
IMAGE = "data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4"


@pytest.mark.parametrize(("text", "expected"), [
    (IMAGE, {"data": Input("uint8", "NHWC", mean=MEAN, std=STD)}),
    (" data = uint8 , BGR ; wav = int16, scale = 3.0517578125e-05 ",
     {"data": Input("uint8", order="BGR"), "wav": Input("int16", scale=1 / 32768)}),
    ("serving:0=NCHW,network=NHWC,mean=-1", {"serving:0": Input(layout="NCHW", network="NHWC", mean=-1)}),
    ("", {}),
])
def test_strings(text, expected):
    assert option_values.parse_inputs([text]) == expected
    assert option_values.parse_inputs([f"{name}={given}" for name, given in expected.items()]) == expected


@pytest.mark.parametrize(("text", "message"), [
    ("data", "input 'data': expected INPUT=WORD"),
    ("data=", "expected INPUT=WORD"),
    ("data=uint9", "'uint9' is not understood"),
    ("data=uint8,mode=fast", "'mode=fast' is not understood"),
    ("data=uint8,int8", "'int8' is a second dtype"),
    ("data=mean=1,mean=2", "'mean=2' is a second mean"),
    ("data=mean=1:x", "'mean=1:x' is no number"),
    ("data=uint8,RGB", "'RGB' is not understood"),
])
def test_texts_that_are_wrong_show_the_grammar(text, message):
    with pytest.raises(MegccError) as refused:
        option_values.parse_inputs([text])
    assert message in str(refused.value) and "data=uint8,NHWC,mean=123.7:116.3:103.5" in str(refused.value)


@pytest.mark.parametrize(("text", "message"), [
    ("data=std=0", "not finite or is 0"), ("data=mean=inf", "not finite"), ("data=std=1,scale=1", "both std and scale"),
    ("data=network=HWC", "expected NCHW or NHWC"), ("data=uint8;data=int8", "'data' is given in another string too"),
])
def test_values_that_are_wrong(text, message):
    with pytest.raises(MegccError, match=message):
        option_values.parse_inputs([text])


@pytest.mark.parametrize("verb", [tvm_megcc.compare, tvm_megcc.bench])
def test_arrays_are_no_description_of_inputs(verb):
    with pytest.raises(TypeError, match="arrays to run on are 'arrays'"):
        verb("net.onnx", inputs={"data": np.zeros(3)})


def convolution(pads: int = 1, groups: int = 1, bias: bool = True):
    b = Builder()
    x = b.input("data", 2, 3, 6, 7)
    operands = [x, b.const("w", 6, 3 // groups, 3, 3), *([b.const("b", 6)] if bias else [])]
    return b.graph(b.op("conv2d", *operands, name="y", strides=(1, 1), pads=(pads,) * 4, dilations=(1, 1),
                        groups=groups))


def behind_transpose():
    """As converters of TensorFlow models write them: the input lies NHWC and is transposed at once."""
    b = Builder()
    x = b.op("transpose", b.input("data", 2, 6, 7, 3), perm=(0, 3, 1, 2))
    return b.graph(b.conv(x, 4, name="y"))


def of_type(dtype: str, *shape: int):
    b = Builder()
    return b.graph(b.op("neg", b.input("data", *shape, dtype=dtype), name="y"))


def wanted(x: np.ndarray, given: Input, network: str = "NCHW") -> np.ndarray:
    """What the network was trained on, written as a training script would."""
    if given.layout == "NHWC" or (not given.layout and network == "NHWC"):
        x = x.transpose(0, 3, 1, 2)
    if given.order:
        x = x[:, ::-1]
    along = (1, -1) + (1,) * (x.ndim - 2)
    y = (x.astype(np.float32) - np.float32(given.mean or 0).reshape(along)) / np.float32(given.std or 1).reshape(along)
    y = y * np.float32(given.scale or 1).reshape(along)
    return y.transpose(0, 2, 3, 1) if network == "NHWC" else y


EVERYTHING = Input("uint8", "NHWC", "BGR", MEAN, STD)
#: graph, what is given, operators in front of the network's, order of the axes of the network's input.
CONVERSIONS = [
    (convolution(), EVERYTHING, ["convert_input"], "NCHW"),
    (convolution(), Input("uint8"), ["convert_input"], "NCHW"),
    (convolution(), Input("int8", mean=-3, scale=0.25), ["convert_input"], "NCHW"),
    (convolution(), Input("float16", "NHWC", mean=MEAN), ["convert_input"], "NCHW"),
    # Only float32 that keeps its place leaves nothing to do, and pads are zeros behind the mean.
    (convolution(pads=0), Input(mean=MEAN, std=STD), [], "NCHW"),
    (convolution(pads=0, bias=False), Input(mean=MEAN, std=STD, order="BGR"), [], "NCHW"),
    (convolution(pads=0, groups=3), Input(mean=MEAN, std=STD), [], "NCHW"),
    (convolution(pads=0, groups=3), Input(order="BGR"), ["convert_input"], "NCHW"),
    (convolution(), Input(std=STD), [], "NCHW"),
    (convolution(), Input(mean=MEAN), ["convert_input"], "NCHW"),
    (convolution(pads=0), Input(mean=MEAN, layout="NHWC"), ["transpose"], "NCHW"),
    (convolution(), Input("float32", "NCHW"), [], "NCHW"),
    (behind_transpose(), Input("uint8", mean=MEAN, std=STD), ["convert_input"], "NHWC"),
    (behind_transpose(), Input("uint8", "NHWC", "BGR"), ["convert_input"], "NHWC"),
    (behind_transpose(), Input("uint8", "NCHW", mean=MEAN), ["convert_input"], "NHWC"),
    (of_type("float32", 2, 6, 7, 3), Input("uint8", mean=MEAN, network="NHWC"), ["convert_input", "transpose"], "NHWC"),
    (of_type("float32", 2, 6, 7, 3), Input("uint8", mean=127.5, network="NHWC"), ["convert_input"], "NHWC"),
    (of_type("float32", 1, 40), Input("int16", scale=1 / 32768), ["convert_input"], "NCHW"),
    (of_type("float32", 2, 3, 8), Input("int16", mean=MEAN), ["convert_input"], "NCHW"),
    (of_type("float64", 1, 40), Input("uint16", mean=7), ["convert_input", "cast"], "NCHW"),
    (of_type("int8", 1, 40), Input("uint8", mean=128), ["convert_input", "round", "cast"], "NCHW"),
    (of_type("int64", 1, 40), Input("int32"), ["cast"], "NCHW"),
]


@pytest.mark.parametrize(("graph", "given", "kinds", "network"), CONVERSIONS,
                         ids=[f"{index}-{given}" for index, (_, given, _, _) in enumerate(CONVERSIONS)])
def test_what_is_given_becomes_what_the_network_wants(graph, given, kinds, network):
    converted = convert_inputs(graph, {"data": given})
    own = [op.kind for op in graph.ops if op.kind != "transpose"]
    assert [op.kind for op in converted.ops] == [*kinds, *own]
    type_ = converted.types["data"]
    assert type_.dtype == (given.dtype or graph.types["data"].dtype)
    low = 0 if type_.dtype.startswith("u") else -100
    x = np.random.default_rng(1).integers(low, 100, type_.shape).astype(type_.dtype)
    y = wanted(x, given, network).astype(graph.types["data"].dtype)
    assert y.shape == graph.types["data"].shape
    expected, actual = reference.run(graph, {"data": y})["y"], reference.run(converted, {"data": x})["y"]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 * float(np.abs(expected).max()))


def test_folding_leaves_weights_that_others_read():
    b = Builder()
    x, w = b.input("data", 1, 3, 6, 6), b.const("w", 2, 3, 1, 1)
    conv = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    graph = b.graph(b.op("conv2d", x, w, name="y", **conv), b.op("add", b.op("relu", w), w, name="z"))
    converted = convert_inputs(graph, {"data": Input(scale=2)})
    inputs = {"data": np.ones((1, 3, 6, 6), np.float32)}
    before, after = reference.run(graph, inputs), reference.run(converted, inputs)
    np.testing.assert_array_equal(after["z"], before["z"])
    np.testing.assert_allclose(after["y"], 2 * before["y"], rtol=1e-6)


@pytest.mark.parametrize(("graph", "inputs", "message"), [
    (convolution(), {"picture": Input("uint8")}, "no input 'picture'; its inputs are data"),
    (convolution(), {"date": Input("uint8")}, "no input 'date'; its inputs are data. Did you mean 'data'?"),
    (convolution(), {"data": Input(mean=(1, 2))}, "has 3 channels (axis 1 of float32[2,3,6,7]), not 2"),
    (of_type("float32", 2, 6, 7, 3), {"data": Input(mean=MEAN)}, "network=NHWC if its channels are axis 3"),
    (of_type("float32", 2, 5), {"data": Input(layout="NHWC")}, "is for inputs of 4 axes"),
    (of_type("float32", 2, 1, 5, 5), {"data": Input(order="BGR")}, "has one channel"),
])
def test_what_does_not_fit_the_model(graph, inputs, message):
    with pytest.raises(ModelError) as refused:
        convert_inputs(graph, inputs)
    assert message in str(refused.value)


@pytest.fixture
def model(tmp_path, monkeypatch) -> str:
    """data -> conv -> relu -> pool -> y, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    nodes = [node("Conv", "data w", "features", pads=[1, 1, 1, 1]), node("Relu", "features", "activation"),
             node("GlobalAveragePool", "activation", "y")]
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    return saved(onnx_models.model(nodes, {"data": [1, 3, 8, 8]}, {"y": [1, 4, 1, 1]}, {"w": w}), "net.onnx")


def test_the_folder_has_the_input_as_given(model, tmp_path):
    assert main(["compile", model, "--target", "c", "--input", IMAGE, "-q"]) == 0
    folder = tmp_path / "net_megcc"
    row = json.loads((folder / "manifest.json").read_text())["models"][0]["inputs"][0]
    assert row == {"name": "data", "dtype": "uint8", "shape": [1, 8, 8, 3]}
    for name in ("net.h", "README.md"):
        assert "uint8[1,8,8,3], given as uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4" \
            in (folder / name).read_text()
    assert "NET_IN_DATA_ELEMENTS * sizeof(uint8_t)" in (folder / "README.md").read_text()


def test_python_takes_text_and_values(model):
    by_string = tvm_megcc.compile(model, "c", inputs=IMAGE)
    by_words = tvm_megcc.compile(model, "c", inputs={"data": IMAGE.removeprefix("data=")})
    by_value = tvm_megcc.compile(model, "c", inputs={"data": Input("uint8", "NHWC", mean=np.array(MEAN), std=STD)})
    assert by_string.container == by_words.container == by_value.container


def test_explain_and_the_cut(model, capsys):
    assert main(["explain", model, "--target", "c", "--input", IMAGE, "--output-names", "activation", "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    assert [call["kind"] for call in calls] == ["convert_input", "conv2d"]


def test_cut_at_values(model, tmp_path, capsys):
    assert main(["compile", model, "--target", "c", "--output-names", "features, activation", "-q"]) == 0
    rows = json.loads((tmp_path / "net_megcc" / "manifest.json").read_text())["models"][0]["outputs"]
    assert [row["name"] for row in rows] == ["features", "activation"]
    for name, advice in (("feature", "did you mean features?"), ("zzz", "'megcc explain' shows the names")):
        assert main(["compile", model, "--target", "c", "--output-names", name]) == REFUSED
        assert f"output '{name}': nothing in the model produces it; {advice}" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["compile", "build", "run", "bench", "tune", "compare", "inspect", "explain"])
def test_every_verb_refuses_alike(verb, model, capsys):
    """No verb drops the option."""
    assert main([verb, model, "--target", "c", "--input", "date=uint8"]) == REFUSED
    output = capsys.readouterr()
    assert "no input 'date'" in output.err + output.out


def test_help_shows_the_grammar(capsys):
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    assert "data=uint8,NHWC,mean=123.7:116.3:103.5" in capsys.readouterr().out.replace("\n", "").replace(" ", "")


def test_inputs_that_are_not_drawn():
    """`megcc compare --value`."""
    feeds = {"x": np.zeros((2, 3), np.float32), "sr": np.zeros((), np.int64)}
    found = run.with_values(feeds, {"sr": 16000, "x": [1, 2, 3, 4, 5, 6.5]})
    assert found["sr"] == 16000 and found["sr"].dtype == np.int64 and found["sr"].shape == ()
    np.testing.assert_array_equal(found["x"], np.float32([[1, 2, 3], [4, 5, 6.5]]))
    assert (run.with_values(feeds, {"x": 2})["x"] == 2).all()
    for values, message in (({"y": 1}, "the inputs are x, sr"), ({"x": [1, 2]}, "6 elements, 2 values"),
                            ({"sr": 0.5}, "cannot hold 0.5")):
        with pytest.raises(MegccError, match=message):
            run.with_values(feeds, values)
