# SPDX-License-Identifier: Apache-2.0
"""Pads that follow from extents of the run: `auto_pad` with strides, and Pad in front of a convolution."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest

import tvm_megcc
from tests.onnx_models import model, node

GENERATOR = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def compare(proto, shapes, folder, reference=None, **dims) -> None:
    """With ONNX Runtime, in inputs of each shape. reference: shape -> the model that it runs, if that is another."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    artifact = tvm_megcc.compile(proto, "native", name="net", dims=dims)
    with tvm_megcc.load(artifact.save(folder / "net_megcc")) as session:
        for shape in shapes:
            theirs = runtime.InferenceSession((reference(shape) if reference else proto).SerializeToString(),
                                              providers=["CPUExecutionProvider"])
            feeds = {"x": weights(*shape)}
            for found, wanted in zip(session.run(None, feeds), theirs.run(None, feeds), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=str(shape))


def same_pads(extents, kernel: int, stride: int, dilation: int, upper: bool) -> list[int]:
    """Of the specification: output_shape[i] = ceil(input_shape[i] / strides[i]), "in case of odd number add the extra
    padding at the end for SAME_UPPER and at the beginning for SAME_LOWER"."""
    totals = [max((-(-extent // stride) - 1) * stride + (kernel - 1) * dilation + 1 - extent, 0) for extent in extents]
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return [*less, *more] if upper else [*more, *less]


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (1, 2, 1), (2, 3, 1), (5, 3, 1), (3, 2, 2)])
def test_windows_of_the_same_extent(auto: str, kernel: int, stride: int, dilation: int, tmp_path):
    """ONNX Runtime takes neither dilations nor windows narrower than their stride with `auto_pad`: it gets pads."""
    constants = {"w": weights(4, 3, kernel, kernel), "b": weights(4)}

    def network(shape, **pads):
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, **pads}
        return model([node("Conv", "x w b", "c", dilations=[dilation] * 2, **window), node("Relu", "c", "y"),
                      *([node("MaxPool", "x", "m", **window)] * (dilation == 1))],
                     {"x": shape}, {"y": None, "m": None} if dilation == 1 else {"y": None}, constants, opset=13)

    def reference(shape):
        return network(shape, pads=same_pads(shape[2:], kernel, stride, dilation, auto == "SAME_UPPER"))

    shapes = [(1, 3, height, width) for height, width in ((4, 9), (5, 8), (6, 7), (7, 5), (12, 12))]
    compare(network(["n", 3, "h", "w"], auto_pad=auto), shapes, tmp_path, reference, n="1..2", h="4..12", w="4..12")


def test_one_spatial_axis(tmp_path):
    proto = model([node("Conv", "x w", "c", auto_pad="SAME_UPPER", strides=[2]), node("Sigmoid", "c", "y")],
                  {"x": [1, 3, "s"]}, {"y": None}, {"w": weights(4, 3, 4)}, opset=13)
    compare(proto, [(1, 3, length) for length in (2, 3, 8, 17)], tmp_path, s="2..*")


def test_integers_have_their_zero_point_there(tmp_path):
    proto = model([node("ConvInteger", "x w z", "y", auto_pad="SAME_LOWER", strides=[2, 2])],
                  {"x": ("uint8", [1, 2, "h", 5])}, {"y": "int32"},
                  {"w": GENERATOR.integers(-128, 128, (3, 2, 3, 3)).astype(np.int8), "z": np.uint8(37)}, opset=13)
    artifact = tvm_megcc.compile(proto, "native", name="net", dims={"h": "3..9"})
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for height in (3, 6, 9):
            x = GENERATOR.integers(0, 256, (1, 2, height, 5)).astype(np.uint8)
            wanted = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})[0]
            np.testing.assert_array_equal(session.run({"x": x})["y"], wanted)


def test_a_residual_block(tmp_path):
    """Both sides have one extent, by two formulas."""
    proto = model([node("Conv", "x w", "a", auto_pad="SAME_UPPER", strides=[2, 2]),
                   node("Conv", "x v", "b", auto_pad="SAME_UPPER", strides=[2, 2]), node("Add", "a b", "y")],
                  {"x": [1, 3, "h", 8]}, {"y": None}, {"w": weights(4, 3, 3, 3), "v": weights(4, 3, 1, 1)}, opset=13)
    compare(proto, [(1, 3, height, 8) for height in (3, 4, 7, 16)], tmp_path, h="3..16")


def test_pads_to_a_multiple_before_a_convolution(tmp_path):
    """As many as make the height a multiple of 4."""
    proto = model([node("Shape", "x", "s"), node("Gather", "s two", "h"), node("Neg", "h", "n"),
                   node("Mod", "n four", "more"), node("Concat", "zeros more zero", "pads", axis=0),
                   node("Pad", "x pads", "p"), node("Conv", "p w", "c", strides=[4, 1]), node("Relu", "c", "y")],
                  {"x": [1, 3, "h", 5]}, {"y": None},
                  {"two": np.array([2]), "four": np.array([4]), "zeros": np.zeros(6, np.int64), "zero": np.array([0]),
                   "w": weights(4, 3, 4, 2)}, opset=13)
    compare(proto, [(1, 3, height, 5) for height in (1, 4, 6, 16)], tmp_path, h="1..16")
