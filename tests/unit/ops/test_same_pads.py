# SPDX-License-Identifier: Apache-2.0
"""Windows with auto_pad SAME and strides over extents that are known at run time only: their pads are computed then."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.differential.targets import missing
from tests.tflite_draws import FILES, Draw
from tests.tflite_files import Quantized, litert, written
from tests.tflite_hybrid_draws import FLOATS
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.tflite.importer import import_tflite
from tvm_megcc.runtime import reference

EXTENTS = ((7, 6, 5), (8, 9, 4), (3, 4, 5), (1, 2, 1), (4, 1, 9))
KERNEL = (3, 2, 2)
STRIDES = ((1, 1, 1), (2, 3, 2), (3, 2, 1), (4, 1, 3))
#: Operator, its own attributes, its results.
POOLS = [("AveragePool", {"count_include_pad": 0}, "y"), ("AveragePool", {"count_include_pad": 1}, "y"),
         ("MaxPool", {}, "y"), ("MaxPool", {}, "yi"), ("MaxPool", {"storage_order": 1}, "yi"),
         ("LpPool", {"p": 3}, "y")]


def model(kind: str, results: str, axes: int, auto_pad: str, strides, dtype: int = TensorProto.FLOAT,
          **attributes) -> onnx.ModelProto:
    node = helper.make_node(kind, ["x"], [*results], auto_pad=auto_pad, kernel_shape=KERNEL[:axes],
                            strides=[*strides[:axes]], **attributes)
    ends = [helper.make_tensor_value_info(name, dtype if name != "i" else TensorProto.INT64, [None] * (2 + axes))
            for name in results]
    x = helper.make_tensor_value_info("x", dtype, ["N", 3, "H", "W", "D"][:2 + axes])
    return helper.make_model(helper.make_graph([node], "pool", [x], ends), ir_version=10,
                             opset_imports=[helper.make_opsetid("", 22)])


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("kind", "attributes", "results"), POOLS)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pools(kind: str, attributes: dict, results: str, axes: int, tmp_path: Path):
    """As ONNX Runtime and ONNX's evaluator compute them, where they do: they want no negative pads, which strides wider
    than the window have there, and the evaluator has auto_pad in AveragePool without ceil_mode."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for auto_pad, strides, ceil in itertools.product(("SAME_UPPER", "SAME_LOWER"), STRIDES, (0, 1)):
        made = model(kind, results, axes, auto_pad, strides, ceil_mode=ceil, **attributes)
        onnx.save(made, tmp_path / "pool.onnx")
        graph, _ = import_model(tmp_path / "pool.onnx")
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for extents in EXTENTS:
            feeds = {"x": drawn((2, 3, *extents[:axes]))}
            found = reference.run(graph, feeds)
            if results == "y" and kind != "LpPool" and (np.greater(strides, KERNEL)[:axes]).any():
                static, _ = import_model(tmp_path / "pool.onnx", input_shapes={"x": feeds["x"].shape})
                np.testing.assert_allclose(found["y"], reference.run(static, feeds)["y"], rtol=1e-5, atol=1e-6)
                continue
            for name, expected in zip(results, session.run([*results], feeds), strict=True):
                np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)
            if kind == "AveragePool" and not ceil:
                (expected,) = ReferenceEvaluator(made).run(None, feeds)
                np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-6)


def test_means_of_float16(tmp_path: Path):
    """Sums are not rounded before they are divided: these are greater than float16 has."""
    onnx.save(model("AveragePool", "y", 2, "SAME_UPPER", (2, 3), TensorProto.FLOAT16), tmp_path / "pool.onnx")
    graph, _ = import_model(tmp_path / "pool.onnx")
    x = np.full((1, 3, 8, 9), 60000, np.float16)
    found = reference.run(graph, {"x": x})["y"]
    assert found.dtype == np.float16 and (found == 60000).all()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "native", "cortex-m4"])
def test_compiled(target: str, tmp_path: Path):
    if lacking := missing(target):
        pytest.skip(lacking)
    for kind, attributes, results in POOLS if target != "cortex-m4" else POOLS[:1]:
        onnx.save(model(kind, results, 2, "SAME_LOWER", (2, 3), **attributes), tmp_path / "pool.onnx")
        graph, _ = import_model(tmp_path / "pool.onnx")
        artifact = tvm_megcc.compile(tmp_path / "pool.onnx", target, dispatch="x[0]=1..2;x[2]=1..9;x[3]=1..9")
        with tvm_megcc.load(artifact, target) as session:
            for extents in EXTENTS:
                feeds = {"x": drawn((2, 3, *extents[:2]))}
                expected = reference.run(graph, feeds)
                for name, value in session.run(feeds).items():
                    np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantised_tflite(kind: str, dtype: str, tmp_path: Path):
    """Results of the bits that LiteRT has."""
    pytest.importorskip("ai_edge_litert")
    compared = 0
    for seed in range(12):
        draw = Draw(kind, seed)
        draw.dtype = dtype
        (tmp_path / "window.tflite").write_bytes(FILES[kind](draw))
        compared += as_litert(tmp_path / "window.tflite", draw.tensors["x"], dtype)
    assert compared >= 24


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_hybrid_tflite(kind: str, tmp_path: Path):
    pytest.importorskip("ai_edge_litert")
    compared = 0
    for seed in range(12):
        draw = Draw(kind, seed)
        (tmp_path / "window.tflite").write_bytes(FLOATS[kind](draw))
        compared += as_litert(tmp_path / "window.tflite", draw.tensors["x"], "float32")
    assert compared >= 24


def as_litert(path: Path, x, dtype: str) -> int:
    """Compares a file of images with open heights and widths with LiteRT, for several of them; returns how many."""
    channels, compared = (x.shape if isinstance(x, Quantized) else x)[3], 0
    graph = import_tflite(path, {"x": (2, "H", "W", channels)})
    for height, width in ((7, 6), (9, 5), (4, 8), (12, 12)):
        shape = (2, height, width, channels)
        limits = np.iinfo(dtype) if dtype != "float32" else None
        feeds = {"x": drawn(shape) if limits is None else
                 np.random.default_rng(shape).integers(limits.min, limits.max + 1, shape).astype(dtype)}
        found, expected = reference.run(graph, feeds)["y"], litert(path.read_bytes(), feeds)["y"]
        assert found.shape == expected.shape
        if limits is None:
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(np.abs(expected).max(), 1))
        else:
            np.testing.assert_array_equal(found, expected)
        compared += 1
    return compared


def test_padded_mean_of_one_kind(tmp_path: Path):
    """A window that is as large as its stride has pads only where extents are no multiples of it."""
    pytest.importorskip("ai_edge_litert")
    x = Quantized((1, 4, 4, 2), 0.5, 3, "int8")
    fields = {"Padding": 0, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}
    data = written({"x": x, "y": x}, [("AVERAGE_POOL_2D", "Pool2DOptions", fields, ["x"], ["y"])], ["x"], ["y"])
    (tmp_path / "mean.tflite").write_bytes(data)
    assert as_litert(tmp_path / "mean.tflite", x, "int8") == 4
