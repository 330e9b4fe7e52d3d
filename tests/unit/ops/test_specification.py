# SPDX-License-Identifier: Apache-2.0
"""Sentences of the specification of ONNX that the references do not hold to, or that we once did not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.onnx_models import fed, model, node
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

X = np.array([[[1, 5], [7, 2]], [[3, 3], [0, -1]]], np.float32)


def result(operator: onnx.NodeProto, feeds: dict[str, np.ndarray], constants: dict | None = None,
           opset: int = 17) -> np.ndarray:
    graph = import_onnx(model([operator], fed(feeds), ["y"], constants, opset))
    with np.errstate(all="ignore"):
        return reference.run(graph, feeds)["y"]


def test_hardmax_before_operator_set_13_takes_the_axes_behind_as_one():
    wanted = np.array([[[0, 0], [1, 0]], [[1, 0], [0, 0]]])
    np.testing.assert_array_equal(result(node("Hardmax", "x", "y"), {"x": X}, opset=12), wanted)
    wanted = np.array([[[0, 1], [1, 0]], [[1, 0], [1, 0]]])
    np.testing.assert_array_equal(result(node("Hardmax", "x", "y"), {"x": X}, opset=13), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16", "int64"])
def test_shrink_of_integers_compares_with_real_numbers_and_cuts_off(dtype: str):
    x = np.array([0, 1, 2, 9], dtype)
    shrink = node("Shrink", "x", "y", lambd=1.5, bias=0.5)
    np.testing.assert_array_equal(result(shrink, {"x": x}), np.array([0, 0, 1, 8], dtype))
    shrink = node("Shrink", "x", "y", lambd=-0.5, bias=1.0)
    np.testing.assert_array_equal(result(shrink, {"x": x}), np.array([1, 0, 1, 8], dtype))


def test_an_infinity_of_neither_sign_is_never_found():
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    found = result(node("IsInf", "x", "y", detect_positive=0, detect_negative=0), {"x": x})
    np.testing.assert_array_equal(found, np.zeros(4, bool))


@pytest.mark.parametrize("dtypes", [("float32", "float16", "float64"), ("float16", "float32", "float32"),
                                    ("float64", "float32", "float16")])
@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization_of_statistics_of_another_type(dtypes: tuple[str, str, str], training: int):
    x_dtype, scale_dtype, mean_dtype = dtypes
    feeds = {"x": X.astype(x_dtype), "s": np.array([2, 0.5], scale_dtype), "b": np.array([1, -1], scale_dtype),
             "m": np.array([1, 2], mean_dtype), "v": np.array([4, 0.25], mean_dtype)}
    outputs = "y mean var" if training else "y"
    operator = node("BatchNormalization", "x s b m v", outputs, epsilon=0.0, training_mode=training)
    found = result(operator, feeds, opset=15)
    mean, variance = (X.mean((0, 2)), X.var((0, 2))) if training else (feeds["m"], feeds["v"])
    wide = (X.swapaxes(1, 2) - mean) / np.sqrt(variance.astype(np.float64)) * feeds["s"] + feeds["b"]
    assert found.dtype == x_dtype
    np.testing.assert_allclose(found, wide.swapaxes(1, 2), rtol=1e-3 if x_dtype == "float16" else 1e-5)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 23, reason="operators of opset 23, which this onnx does not have")
def test_the_result_of_rms_normalization_has_the_type_of_its_scale():
    scale = np.array([1, 2], np.float32)
    found = result(node("RMSNormalization", "x s", "y"), {"x": X.astype(np.float64)}, {"s": scale}, opset=23)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-5) * scale, rtol=1e-6)


@pytest.mark.parametrize("constant", [True, False])
def test_center_crop_pad_takes_a_shape_of_int32(constant: bool):
    x, shape = np.arange(10, dtype=np.float32).reshape(2, 5), np.array([4, 3], np.int32)
    operator = node("CenterCropPad", "x s", "y")
    if not constant:
        operator = node("CenterCropPad", "x s", "y", axes=[-1])
        shape = shape[1:]
    found = result(operator, {"x": x}, {"s": shape}, opset=18)
    wanted = np.pad(x[:, 1:4], ((1, 1), (0, 0))) if constant else x[:, 1:4]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint64"])
@pytest.mark.parametrize("constant", [(), ("b",), ("b", "c")])
def test_factors_of_gemm_have_the_type_of_its_operands(dtype: str, constant: tuple[str, ...]):
    arrays = {"a": np.array([[1, 2]], dtype), "b": np.array([[3], [4]], dtype), "c": np.array([[5]], dtype)}
    alpha, beta = (0.5, 3.0) if dtype.startswith("float") else (2.0, 3.0)
    feeds = {name: array for name, array in arrays.items() if name not in constant}
    found = result(node("Gemm", "a b c", "y", alpha=alpha, beta=beta), feeds, {name: arrays[name] for name in constant})
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [[alpha * 11 + beta * 5]])


def test_a_gemm_of_integers_with_a_real_factor_is_refused():
    arrays = {"a": np.array([[1, 2]], np.int32), "b": np.array([[3], [4]], np.int32)}
    with pytest.raises(ModelError, match=r"multiplies int32 by 0.5; factors of integers are whole numbers"):
        result(node("Gemm", "a b", "y", alpha=0.5), {"a": arrays["a"]}, {"b": arrays["b"]})


@pytest.mark.parametrize(("kind", "name", "default"), [
    ("LeakyRelu", "alpha", 0.01), ("HardSigmoid", "alpha", 0.2), ("Selu", "gamma", 1.0507010221481323)])
def test_a_default_is_the_float32_that_a_file_would_hold(kind: str, name: str, default: float):
    x = {"x": np.array([-1.7, -0.3, 0.4, 2.6])}
    absent, stated = result(node(kind, "x", "y"), x), result(node(kind, "x", "y", **{name: default}), x)
    np.testing.assert_array_equal(absent, stated)


@pytest.mark.parametrize("kind", ["ScatterElements", "ScatterND"])
def test_texts_are_scattered_but_not_reduced(kind: str):
    strings = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [2]) for name in "xu"]
    constants = {"i": np.zeros((2,) if kind == "ScatterElements" else (2, 1), np.int64)}
    import_onnx(model([node(kind, "x i u", "y")], strings, ["y"], constants, 18))
    with pytest.raises(ModelError, match="adds, multiplies or orders strings"):
        import_onnx(model([node(kind, "x i u", "y", reduction="max")], strings, ["y"], constants, 18))


def test_a_pad_that_reflects_does_not_read_its_value():
    feeds, constants = {"x": X, "v": np.float32(9)}, {"p": np.array([0, 0, 1, 0, 0, 0])}
    found = result(node("Pad", "x p v", "y", mode="reflect"), feeds, constants)
    np.testing.assert_array_equal(found, np.pad(X, ((0, 0), (0, 0), (1, 0)), mode="reflect"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_of_a_slice_that_only_the_run_knows(axis: int):
    feeds, constants = {"x": X, "a": np.array([axis])}, {"s": np.array([-1]), "e": np.array([99])}
    found = result(node("Slice", "x s e a", "y"), feeds, constants)
    np.testing.assert_array_equal(found, np.take(X, [1], axis))


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(1, 3, 2, 3), (2, 1, 1, 4), (1, 1, 2, 1, 3)])
@pytest.mark.parametrize("constant", [True, False])
def test_an_affine_grid_of_one_image_and_of_lines_of_one_pixel(size: tuple[int, ...], align: int, constant: bool):
    axes, spatial = len(size) - 2, size[2:]
    theta = np.random.default_rng(1).normal(size=(size[0], axes, axes + 1)).astype(np.float32)
    lines = [np.linspace(-1, 1, extent) if align else (np.arange(extent) * 2 + 1) / extent - 1 for extent in spatial]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(spatial)], -1)
    wanted = np.einsum("...k,nik->n...i", places, theta)
    constants = {"s": np.array(size), **({"t": theta} if constant else {})}
    found = result(node("AffineGrid", "t s", "y", align_corners=align), {} if constant else {"t": theta}, constants, 20)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_an_affine_grid_of_open_extents():
    theta = np.array([[[1, 2, 3], [4, 5, 6]]], np.float32)
    nodes = [node("Shape", "x", "s"), node("AffineGrid", "t s", "y")]
    inputs = {"x": [1, 1, "h", "w"], "t": [1, 2, 3]}
    graph = import_onnx(model(nodes, inputs, ["y"], opset=20))
    found = reference.run(graph, {"x": np.zeros((1, 1, 2, 3), np.float32), "t": theta})["y"]
    known = import_onnx(model(nodes, {"x": [1, 1, 2, 3], "t": [1, 2, 3]}, ["y"], opset=20))
    wanted = reference.run(known, {"x": np.zeros((1, 1, 2, 3), np.float32), "t": theta})["y"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize(("equation", "shape"), [("ii->i", (3, 3)), ("iji->ij", (3, 2, 3)), ("iii->i", (3, 3, 3))])
def test_a_diagonal_ignores_infinities_beside_it(equation: str, shape: tuple[int, ...]):
    x = np.full(shape, np.inf, np.float32)
    index = np.arange(3)
    if equation == "iji->ij":
        x[index, :, index] = [[1, 2], [3, 4], [5, 6]]
    else:
        x[(index,) * len(shape)] = [1, 2, 3]
    found = result(node("Einsum", "x", "y", equation=equation), {"x": x})
    np.testing.assert_array_equal(found, np.einsum(equation, x))


def test_lp_normalization_of_bfloat16():
    x = np.array([[3, 4], [0, 0]], ml_dtypes.bfloat16)
    found = result(node("LpNormalization", "x", "y"), {"x": x}, opset=22)
    np.testing.assert_allclose(found.astype(np.float32), [[0.6, 0.8], [0, 0]], rtol=1e-2)
