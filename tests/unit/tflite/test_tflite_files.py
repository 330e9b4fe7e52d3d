# SPDX-License-Identifier: Apache-2.0
"""TFLite files as a whole: names, shapes, orders of axes, several graphs, and what is wrong with damaged ones."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.tflite_draws import FILES, Draw
from tests.tflite_files import Quantized, Tensor, litert, network, written
from tests.tflite_hybrid_draws import FLOATS
from tests.tflite_networks import Network
from tests.unit.tflite.test_tflite_states import svdf, variables
from tvm_megcc import extern
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.dispatch import parse_shape_sets
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.tflite import UnsupportedModel, file, import_tflite, input_dims
from tvm_megcc.runtime import reference

DETECTOR = "CUSTOM TFLite_Detection_PostProcess"
MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[4] / "shared" / "models"))
FLOAT = ["ad_autoencoder_f32", "dtln_stage1", "dtln_stage2", "kwt1_keyword_transformer", "mobilenet_v1_025_224_f32",
         "resnet8_cifar10_f32", "tflm_mnist_lstm_f32",
         *(pytest.param(name, marks=pytest.mark.slow) for name in ("basic_pitch_nmp", "deeplab_v3_257"))]


@pytest.fixture
def of(tmp_path):
    """The graph of a file's bytes."""
    def imported(data: bytes, **options):
        path = tmp_path / "small.tflite"
        path.write_bytes(data)
        return import_tflite(path, **options)
    return imported


def image(seed: int = 0) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(seed).standard_normal((1, 17, 13, 3)).astype(np.float32)}


def test_a_network(of):
    """Channels come first inside; only the ends of the network, and what is flattened, are turned round."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    graph = of(network())
    assert graph.name == "small" and graph.inputs == ("image",) and graph.outputs == ("scores", "sum")
    assert [op.attrs.perm for op in graph.ops if op.kind == "transpose"] == [(0, 3, 1, 2), *[(0, 2, 3, 1)] * 2]
    found, expected = reference.run(graph, image()), litert(network(), image())
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


def test_other_shapes(of, tmp_path):
    data = written({"x": Tensor((1, 4, 4, 2), signature=(-1, 4, 4, 2)), "w": np.ones((3, 3, 3, 2), np.float32),
                    "y": Tensor((1, 4, 4, 3), signature=(-1, 4, 4, 3))},
                   [("CONV_2D", "Conv2DOptions", {"StrideH": 1, "StrideW": 1}, ["x", "w", ""], ["y"])], ["x"], ["y"])
    assert of(data).types["y"].shape == (1, 4, 4, 3)
    assert of(data, input_shapes={"x": (5, 4, 6, 2)}).types["y"].shape == (5, 4, 6, 3)
    assert str(of(data, input_shapes={"x": ("n", 4, 4, 2)}).types["y"].shape[0]) == "n"
    path = tmp_path / "small.tflite"
    assert input_dims(path) == {"x": (1, 4, 4, 2)}
    graph, buckets = import_model(path, dispatch="x[0]=1..4,5..8")
    assert str(graph.types["y"].shape[0]) == "x_0" and len(buckets) == 2
    with pytest.raises(ModelError, match="input_shapes names z, but the inputs are: x"):
        of(data, input_shapes=parse_shape_sets("z=(1,2)")[0])
    with pytest.raises(ModelError, match="has 4 axes, input_shapes gives 2"):
        of(data, input_shapes={"x": (1, 2)})


def test_names(of):
    """Results have the file's, whatever else is called so; what is an input, a constant or given twice is copied."""
    relu = ("RELU", "", {}, ["x"], ["y"])
    graph = of(written({"x": (2,), "y": (2,), "c": np.ones(2, np.float32)}, [relu], ["x"], ["x", "y", "c"]))
    assert graph.inputs == ("x",) and graph.outputs == ("x.1", "y", "c")
    feeds = {"x": np.array([-1, 1], np.float32)}
    assert {name: value.tolist() for name, value in reference.run(graph, feeds).items()} == \
        {"x.1": [-1, 1], "y": [0, 1], "c": [1, 1]}


def test_values_inside_are_outputs(of):
    graph = of(network(), output_names=["c1", "dense"])
    assert graph.outputs == ("c1", "dense") and graph.types["c1"].shape == (1, 9, 7, 8)
    with pytest.raises(ModelError, match="output 'other': nothing in the model is called so"):
        of(network(), output_names=["other"])


def test_what_scales_say(of):
    """Biases have one axis, whatever the file calls it; scales that stand for nothing are said to."""
    def conv(axis: int, scale: float) -> bytes:
        bias = Quantized((2,), [0.1, 0.2], 0, "int32", axis, np.array([3, 5], np.int32))
        return written({"x": Quantized((1, 2, 2, 1), 1.0), "b": bias, "y": Quantized((1, 2, 2, 2), scale),
                        "w": Quantized((2, 1, 1, 1), [0.1, 0.2], 0, "int8", 0, np.full((2, 1, 1, 1), 4, np.int8))},
                       [("CONV_2D", "Conv2DOptions", {"StrideH": 1, "StrideW": 1}, ["x", "w", "b"], ["y"])], ["x"],
                       ["y"])

    feeds = {"x": np.arange(4, dtype=np.int8).reshape(1, 2, 2, 1)}
    first, other = (reference.run(of(conv(axis, 0.3)), feeds)["y"] for axis in (0, 3))
    np.testing.assert_array_equal(first, other)
    for scale in (np.inf, np.nan, -1.0):
        with pytest.raises(ModelError, match=f"'y' has the scale {scale}, which is not a finite number >= 0") as error:
            of(conv(0, scale))
        assert "truncated" not in str(error.value)


def test_scales_of_several_axes(of):
    weights = Quantized((2, 64), 1.0, details=3, array=np.ones((2, 64), np.int8))
    with pytest.raises(ModelError, match=r"'w' has scales along several axes[^$]*a scale each channel"):
        of(written({"x": (1, 64), "w": weights, "y": (1, 2)},
                   [("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["x", "w", ""], ["y"])], ["x"], ["y"]))


def test_no_outputs(of, tmp_path):
    data = written({"x": (2,), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], [])
    of(data)
    with pytest.raises(ModelError, match="it has no outputs, so nothing is computed"):
        tvm_megcc.compile(tmp_path / "small.tflite", "c")


@pytest.mark.parametrize("options, message", [
    ({"graphs": 2}, "2 graphs of which none runs another"),
    ({"signatures": ("encode", "decode"), "graphs": 2}, r"2 signatures \(encode, decode\)[^$]*signature=.NAME"),
])
def test_files_of_several_graphs(options, message: str, of):
    with pytest.raises(ModelError, match=rf"small\.tflite: 1 problem\n  - has {message}"):
        of(written({"x": (2,), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"], **options))


def two_signatures() -> bytes:
    return written({"x": (2,), "y": (2,), "u": (3,), "v": (3,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"],
                   behind=[([("NEG", "", {}, ["u"], ["v"])], ["u"], ["v"])], signatures={"clip": 0, "turn": 1})


def test_one_of_several_signatures(of, tmp_path):
    graph = of(two_signatures(), signature="turn")
    assert (graph.inputs, graph.outputs) == (("u",), ("v",)) and [op.kind for op in graph.ops] == ["neg"]
    path = tmp_path / "small.tflite"
    assert tvm_megcc.compile(path, "c", signature="clip").manifest["inputs"][0]["name"] == "x"
    with pytest.raises(ModelError, match="has the signatures clip, turn, and not 'other'"):
        of(two_signatures(), signature="other")
    with pytest.raises(ModelError, match="has no signatures"):
        of(network(), signature="clip")


def test_what_nobody_reads(of, tmp_path):
    data = written({"x": (2,), "y": (2,), "z": (2,)}, [(":Own", "", {}, ["x"], ["y"]), ("RELU", "", {}, ["y"], ["z"])],
                   ["x"], ["z"])
    with pytest.raises(UnsupportedModel, match="CUSTOM Own 'y': this operator is not supported") as error:
        of(data)
    assert len(error.value.findings) == 1 and error.value.custom and not error.value.quantised
    with pytest.raises(ModelError, match=r"\n  Bind custom operators to C functions of yours with extern \(.*\)$"):
        import_model(tmp_path / "small.tflite")
    numbers = {"x": Quantized((2,), 0.1), "y": Quantized((2,), 0.1)}
    with pytest.raises(UnsupportedModel) as error:
        of(written(numbers, [("COS", "", {}, ["x"], ["y"])], ["x"], ["y"]))
    assert error.value.quantised and not error.value.custom


def test_custom_operators_of_the_user(of, tmp_path):
    """By their names in the domain tflite; options are attributes."""
    from flatbuffers import flexbuffers

    (tmp_path / "shift.c").write_text("int shift(const int8_t *x, const int32_t *x_dims, int8_t *y, const int32_t "
                                      "*y_dims, int32_t by) { (void)x; (void)x_dims; (void)y; (void)y_dims; "
                                      "(void)by; return 0; }\n")
    own = extern.Operator("tflite", "Shift", source=tmp_path / "shift.c", inputs={"x": "int8"}, outputs={"y": "int8"},
                          attributes={"by": int}, compute=lambda attrs, x: [x + np.int8(attrs.by)])
    options = flexbuffers.Builder()
    with options.Map():
        options.Int("by", 3)
    numbers = {"x": Quantized((2, 3), 0.1), "y": Quantized((2, 3), 0.1)}
    data = written(numbers, [(":Shift", "", {}, ["x"], ["y"], {"custom": bytes(options.Finish())})], ["x"], ["y"])
    graph = of(data, extern=own)
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    np.testing.assert_array_equal(reference.run(graph, {"x": x})["y"], x + 3)
    with pytest.raises(ModelError, match="the extern tflite::Shift requires"):
        of(written(numbers, [(":Shift", "", {}, ["x"], ["y"])], ["x"], ["y"]), extern=own)


#: A file, and what is wrong with it.
WRONG = [
    (({"x": (2,), "y": (3,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"]),
     r"float32\[2\] by our rules, float32\[3\]"),
    (({"x": (2,), "u": (2,), "y": (2,)}, [("ADD", "", {}, ["x", "u"], ["y"])], ["x"], ["y"]),
     "tensor 'u': is read before an operator gives it"),
    (({"x": (2,), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])] * 2, ["x"], ["y"]), "gives 'y' once more"),
    (({"x": (2,), "y": (2,)}, [], ["x"], ["y"]), "'y'"),
    (({"x": (1, 4, 4, 2), "w": (3, 3, 3, 2), "y": (1, 4, 4, 3)},
      [("CONV_2D", "AddOptions", {}, ["x", "w"], ["y"])], ["x", "w"], ["y"]), "has no option Padding"),
    (({"x": (1, 4, 4, 2), "w": (3, 3, 3, 2), "y": (1, 4, 4, 3)},
      [("CONV_2D", "Conv2DOptions", {"StrideW": -1}, ["x", "w"], ["y"])], ["x", "w"], ["y"]), "must be positive"),
    (({"x": Tensor((2,), "string"), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"]), "element type string"),
    (({"x": (2**16, 2**16), "y": (2,)}, [("RELU", "", {}, ["x"], ["y"])], ["x"], ["y"]), "no tensor may reach 2 GB"),
    *((({"x": (2,), "y": (2,)}, [(kind, "", {}, ["x"] * count, ["y"])], ["x"], ["y"]),
       rf"has operands \({', '.join(count * ['.x.'])}\), where {kind.lower()} has")
      for kind, count in (("ADD", 1), ("SQRT", 2))),
    *((({"x": Quantized((2,), 0.5, zero, dtype), "y": (2,)}, [("DEQUANTIZE", "", {}, ["x"], ["y"])], ["x"], ["y"]),
       f"'x' of {dtype} has a zero point out of the range of its dtype")
      for dtype, zero in (("int8", 128), ("int8", 2**40), ("uint8", -1), ("int16", -2**15 - 1), ("int32", 2**31))),
    (({"x": (3, 2, 4), "y": (3, 2, 4)}, [("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions",
                                          {}, ["x", *[""] * 23], ["y"])], ["x"], ["y"]),
     "has none of the operands 1, 4, 2, 3"),
]


@pytest.mark.parametrize("parts, message", WRONG)
def test_wrong_files(parts, message: str, of):
    with pytest.raises(ModelError, match=message):
        of(written(*parts))


def test_no_tflite_file(tmp_path, capsys):
    path = tmp_path / "broken.tflite"
    with pytest.raises(MegccError, match=r"broken\.tflite does not exist"):
        tvm_megcc.compile(path, "c")
    path.write_bytes(b"\x1c\0\0\0TFL2")
    with pytest.raises(ModelError, match="is no TFLite file"):
        tvm_megcc.compile(path, "c")
    path.write_bytes(network()[:1000])
    assert main(["compile", str(path), "--target", "c", "-o", str(tmp_path / "out")]) == REFUSED
    assert "truncated or corrupt" in capsys.readouterr().err and not (tmp_path / "out").exists()


def refused_or_read(data: bytes, of) -> bool:
    """Whether a damaged file is refused; nothing but our own errors, in little time."""
    begin = time.monotonic()
    try:
        of(data)
        refused = False
    except MegccError:
        refused = True
    assert time.monotonic() - begin < 20
    return refused


#: Files whose damage is tried, with tables and options of several kinds.
SOUND = {"floats": network, "variables": variables, "svdf": lambda: svdf("int8", 3)[0],
         "lstm": lambda: FILES["UNIDIRECTIONAL_SEQUENCE_LSTM"](Draw("UNIDIRECTIONAL_SEQUENCE_LSTM", 1)),
         "detector": lambda: FILES[DETECTOR](Draw(DETECTOR, 2)),
         "hybrid": lambda: FLOATS["CONV_2D"](Draw("CONV_2D", 1)),
         "16 bits": lambda: Network(3).file, "8 bits": lambda: Network(4).file}


@pytest.mark.parametrize("name", SOUND)
def test_damaged_files(name: str, of):
    """Bytes changed, words made large, parts cut off, at random."""
    data, generator = SOUND[name](), np.random.default_rng(7)
    plain = bytearray(data)
    tables = len(data) - 4 * 1100  # constants lie in front of what describes them or behind: change both
    count = int(os.environ.get("MEGCC_DAMAGED_FILES", "400")) // (1 if name == "floats" else 4)
    refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        damaged = bytearray(plain)
        for _ in range(1 + number % 3):
            place = int(generator.integers(0, len(data) if number % 2 else max(tables, 64)))
            if number % 5 == 0:
                word = generator.choice([0, 1, 0x7fffffff, 0xffffffff, 0x80000000, len(data), 0xffff])
                damaged[place:place + 4] = int(word).to_bytes(4, "little")
            else:
                damaged[place] = int(generator.integers(0, 256))
        if number % 11 == 0:
            del damaged[int(generator.integers(0, len(damaged))):]
        refused += refused_or_read(bytes(damaged), of)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KB
    assert count // 20 < refused < count


def test_tables_that_overlap():
    """A vector of a million tables, all the same one, costs no more than the file's length allows."""
    data = bytearray(network())
    model = file.tflite.Model.GetRootAs(bytes(data), 0)
    graph = model.Subgraphs(0)
    vector = graph._tab.Vector(graph._tab.Offset(4))
    target = graph.Tensors(0)._tab.Pos
    many = 200_000
    place = len(data)
    data += many.to_bytes(4, "little") + bytes(4 * many)
    for index in range(many):
        at = place + 4 + 4 * index
        data[at:at + 4] = ((target - at) % 2**32).to_bytes(4, "little")
    field = graph._tab.Pos + graph._tab.Offset(4)
    data[field:field + 4] = (place - field).to_bytes(4, "little")
    assert vector
    begin = time.monotonic()
    with pytest.raises(ModelError, match="truncated or corrupt"):
        file.read(bytes(data), "the file")
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("name", FLOAT)
def test_float_networks(name: str):
    """The imported graph computes what LiteRT does."""
    folder = MODELS / name
    if not (folder / "model.tflite").exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    graph = import_tflite(folder / "model.tflite")
    stored = folder / "reference_tflite.npz"
    arrays = np.load(stored if stored.exists() else folder / "reference.npz")
    results = reference.run(graph, {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")})
    for key in (key for key in arrays.files if key.startswith("out:")):
        np.testing.assert_allclose(results[key[4:]], arrays[key], atol=7e-4 if name == "basic_pitch_nmp" else 1e-4)


WITHOUT_TVM = """\
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

sys.meta_path.insert(0, Missing())
import tvm_megcc
from tvm_megcc.cli import main
sys.exit(main(["explain", sys.argv[1], "--target", "c"]))
"""


def test_without_tvm(tmp_path):
    path = tmp_path / "small.tflite"
    path.write_bytes(network())
    done = subprocess.run([sys.executable, "-c", WITHOUT_TVM, str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "conv2d" in done.stdout, done.stderr


@pytest.mark.parametrize("padding, shape", [(0, (1, 6, 8, 2)), (1, (1, 7, 9, 2)), (1, (1, 8, 10, 2))])
def test_a_transposed_convolution_whose_shape_the_run_knows(of, padding: int, shape):
    """The file states it."""
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    random = np.random.default_rng(4)
    weights = random.standard_normal((2, 3, 3, 3)).astype(np.float32)
    options = {"Padding": padding, "StrideH": 2, "StrideW": 2}
    tensors = {"shape": Tensor((4,), "int32"), "w": weights, "x": (1, 3, 4, 3), "y": shape}
    data = written(tensors, [("TRANSPOSE_CONV", "TransposeConvOptions", options, ["shape", "w", "x"], ["y"])],
                   ["x", "shape"], ["y"])
    feeds = {"x": random.standard_normal((1, 3, 4, 3)).astype(np.float32), "shape": np.array(shape, np.int32)}
    np.testing.assert_allclose(reference.run(of(data), feeds)["y"], litert(data, feeds)["y"], atol=1e-5)
    with pytest.raises(ModelError, match="which a convolution does not shrink to"):
        of(written({**tensors, "y": (1, 1, 1, 2)},
                   [("TRANSPOSE_CONV", "TransposeConvOptions", options, ["shape", "w", "x"], ["y"])],
                   ["x", "shape"], ["y"]))
