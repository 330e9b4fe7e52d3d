# SPDX-License-Identifier: Apache-2.0
"""Inputs without elements: results without any, and what reductions of nothing give."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tests.tflite_files import Tensor, litert, written
from tvm_megcc.errors import MegccError

GENERATOR = np.random.default_rng(5)
WEIGHTS = {"w": GENERATOR.standard_normal((3, 4)).astype(np.float32), "b": np.ones(4, np.float32),
           "kernel": GENERATOR.standard_normal((4, 3, 3, 3)).astype(np.float32)}
NOTHING = {"Sum": 0, "Max": -np.inf, "Min": np.inf, "Prod": 1, "L1": 0, "L2": 0, "SumSquare": 0, "LogSum": -np.inf,
           "LogSumExp": -np.inf, "Mean": np.nan}


def run(nodes, inputs: dict[str, np.ndarray], outputs, folder, target="native", constants=(), **options):
    used = {name: WEIGHTS[name] for name in constants}
    proto = model(nodes, {name: (array.dtype.name, list(array.shape)) for name, array in inputs.items()},
                  dict.fromkeys(outputs, ("float32", None)), used)
    shapes = {name: array.shape for name, array in inputs.items()}
    artifact = tvm_megcc.compile(proto, target, name="net", input_shapes=shapes, **options)
    with tvm_megcc.load(artifact.save(folder / f"{target}_megcc")) as session:
        return session.run(inputs)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_reductions_of_nothing(tmp_path):
    nodes = [node(f"Reduce{name}", "x", name, axes=[1], keepdims=0) for name in NOTHING if name != "Sum"]
    constants = {"axis": np.array([1])}
    nodes.append(node("ReduceSum", "x axis", "Sum", keepdims=0))
    proto = model(nodes, {"x": ("float32", ["n", "m", 3])}, {name: ("float32", None) for name in NOTHING}, constants,
                  opset=13)
    artifact = tvm_megcc.compile(proto, name="net", input_shapes={"x": (2, 0, 3)})
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        found = session.run({"x": zeros(2, 0, 3)})
    for name, value in NOTHING.items():
        np.testing.assert_array_equal(found[name], np.full((2, 3), value, np.float32), name)


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_products_of_nothing_are_zero_and_those_of_no_rows_are_empty(tmp_path, optimize):
    found = run([node("MatMul", "x w", "p"), node("Add", "p b", "rows"), node("Relu", "rows", "relu"),
                 node("MatMul", "left right", "none"), node("Softmax", "p", "softmax", axis=-1)],
                {"x": zeros(0, 3), "left": zeros(2, 0), "right": zeros(0, 5)}, ("rows", "relu", "none", "softmax"),
                tmp_path, constants=("w", "b"), optimize=optimize)
    assert found["rows"].shape == found["relu"].shape == found["softmax"].shape == (0, 4)
    np.testing.assert_array_equal(found["none"], zeros(2, 5))


def test_networks_of_no_images(tmp_path):
    found = run([node("Conv", "x kernel", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
                 node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]), node("GlobalAveragePool", "m", "g"),
                 node("Flatten", "g", "f"), node("Concat", "f given", "y", axis=0)],
                {"x": zeros(0, 3, 8, 8), "given": np.ones((2, 4), np.float32)}, ("m", "g", "y"), tmp_path,
                constants=("kernel",))
    assert found["m"].shape == (0, 4, 4, 4) and found["g"].shape == (0, 4, 1, 1)
    np.testing.assert_array_equal(found["y"], np.ones((2, 4), np.float32))


def test_a_size_of_0_by_name(tmp_path):
    proto = model([node("Add", "x x", "y")], {"x": ("float32", ["n", 3])}, {"y": ("float32", None)})
    artifact = tvm_megcc.compile(proto, name="net", dims={"n": 0})
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        assert session.run({"x": zeros(0, 3)})["y"].shape == (0, 3)


def test_tflite_files(tmp_path):
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    shapes = {"x": (0, 3), "row": (1, 3), "sum": (0, 3), "relu": (0, 3), "joined": (1, 3), "exp": (0, 3)}
    data = written(shapes, [("ADD", "AddOptions", {}, ["x", "row"], ["sum"]), ("RELU", "", {}, ["sum"], ["relu"]),
                            ("EXP", "", {}, ["x"], ["exp"]),
                            ("CONCATENATION", "ConcatenationOptions", {"Axis": 0}, ["relu", "row"], ["joined"])],
                   ["x", "row"], ["relu", "exp", "joined"])
    feeds = {"x": zeros(0, 3), "row": np.array([[1, -2, 3]], np.float32)}
    path = tmp_path / "net.tflite"
    path.write_bytes(data)
    with tvm_megcc.load(tvm_megcc.compile(path, name="net").save(tmp_path / "net_megcc")) as session:
        found = session.run(feeds)
    for name, wanted in litert(data, feeds).items():
        np.testing.assert_array_equal(found[name], wanted)


def onnxruntime_run(proto, feeds) -> dict[str, np.ndarray]:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds), strict=True))


@pytest.mark.parametrize("options", [{"dispatch": "x[0]=0..8"}, {"dims": {"n": "0,1..4,5..*"}}, {"dims": {"n": "0..*"}},
                                     {"input_shapes": [{"x": (0, 3)}, {"x": (2, 3)}, {"x": (6, 3)}]}])
def test_ranges_that_begin_at_0(tmp_path, options):
    """What a model asks of its extents is not known any more: whether they are 0, too."""
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "rows"), node("Softmax", "rows", "softmax", axis=-1),
             node("ReduceSum", "x axes", "sum", keepdims=0), node("ReduceMax", "x", "max", axes=[0], keepdims=0),
             node("ReduceProd", "rows", "product", keepdims=0), node("Shape", "x", "shape"),
             node("Gather", "shape zero", "count"), node("Equal", "count zero", "empty"),
             node("Concat", "rows given", "joined", axis=0), node("Transpose", "x", "turned", perm=[1, 0]),
             node("MatMul", "turned x", "square")]
    constants = {"w": WEIGHTS["w"], "b": WEIGHTS["b"], "axes": np.array([0]), "zero": np.array(0),
                 "given": np.ones((1, 4), np.float32)}
    outputs = {**dict.fromkeys(("rows", "softmax", "sum", "max", "product", "joined", "square"), ("float32", None)),
               "count": ("int64", []), "empty": ("bool", [])}
    proto = model(nodes, {"x": ["n", 3]}, outputs, constants)
    artifact = tvm_megcc.compile(proto, "native", name="net", **options)
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for rows in (0, 2, 6, 0):
            feeds = {"x": GENERATOR.standard_normal((rows, 3)).astype(np.float32)}
            found = session.run(feeds)
            for name, wanted in onnxruntime_run(proto, feeds).items():
                assert found[name].shape == wanted.shape and found[name].dtype == wanted.dtype
                np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6, err_msg=f"{name} of {rows} rows")


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_pads_around_an_axis_without_elements(tmp_path, optimize):
    """The mirrored axes have elements; the one between them has none, nor pads."""
    proto = model([node("Pad", "x pads", "y", mode="reflect")], {"x": [3, "n", 4]}, {"y": ("float32", None)},
                  {"pads": np.array([1, 0, 1, 1, 0, 1])})
    artifact = tvm_megcc.compile(proto, "native", name="net", dims={"n": "0..4"}, optimize=optimize)
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for rows in (2, 0):
            x = np.arange(12 * rows, dtype=np.float32).reshape(3, rows, 4)
            wanted = np.pad(x, ((1, 1), (0, 0), (1, 1)), mode="reflect")
            np.testing.assert_array_equal(session.run({"x": x})["y"], wanted)


def test_an_operator_that_needs_elements_says_so(tmp_path):
    proto = model([node("ArgMax", "x", "y", axis=0)], {"x": ["n", 3]}, {"y": ("int64", None)})
    artifact = tvm_megcc.compile(proto, "native", name="net", dispatch="x[0]=0..8")
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        assert session.run({"x": np.eye(3, dtype=np.float32)})["y"].tolist() == [[0, 1, 2]]
        with pytest.raises(MegccError, match=r"ArgMax 'y': axis 0 of .* is empty"):
            session.run({"x": zeros(0, 3)})


def test_open_extents_of_tflite_that_may_be_0(tmp_path):
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    data = written({"x": Tensor((1, 3), signature=(-1, 3)), "row": (1, 3), "sum": (1, 3), "exp": (1, 3)},
                   [("ADD", "AddOptions", {}, ["x", "row"], ["sum"]), ("EXP", "", {}, ["sum"], ["exp"])],
                   ["x", "row"], ["exp"])
    path = tmp_path / "net.tflite"
    path.write_bytes(data)
    artifact = tvm_megcc.compile(path, name="net", dispatch="x[0]=0..4")
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for rows in (0, 3):
            found = session.run({"x": np.ones((rows, 3), np.float32), "row": np.array([[1, -2, 3]], np.float32)})
            assert found["exp"].shape == (rows, 3)


def test_a_run_of_a_logarithmic_range_begins_at_1():
    with pytest.raises(MegccError, match="begins at 1 or more, not 0"):
        tvm_megcc.compile(model([node("Relu", "x", "y")], {"x": ["n"]}, ["y"]), dispatch="x[0]=log(0,64)")
