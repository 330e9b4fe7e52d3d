# SPDX-License-Identifier: Apache-2.0
"""Operators in the ONNX front end whose attributes and operands need a check or a conversion."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.onnx_models import fed, model, node, refusal
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference


def test_broadcasting_before_operator_set_7():
    """The second operand's axes begin at attribute `axis` of the first."""
    x, b = np.ones((2, 3, 4), np.float32), np.arange(3, dtype=np.float32)
    graph = import_onnx(model([node("Add", "x b", "y", broadcast=1, axis=1)], {"x": [2, 3, 4]},
                              ["y"], {"b": b}, opset=6))
    assert (reference.run(graph, {"x": x})["y"] == x + b[:, None]).all()


def test_bounds_beyond_what_reals_hold():
    """An int64 is clipped at 2^53 + 1, which float64 cannot represent."""
    bound, x = 2**53 + 1, np.array([2**53, 2**53 + 1, 2**53 + 2, -5])
    graph = import_onnx(model([node("Clip", "x lo hi", "y")], {"x": ("int64", [4])},
                              ["y"], {"lo": np.array(0), "hi": np.array(bound)}))
    assert reference.run(graph, {"x": x})["y"].tolist() == [2**53, bound, bound, 0]

#: Operator (and variant) -> (indices, error text, attributes, further operands).
OUT_OF_BOUNDS = {
    "GatherND": ([[0, 4]], "indices 4 to 4 into an axis of 4", {}, {}),
    "GatherND.batch": ([[0], [2], [-5]], "indices -5 to 2 into an axis of 4", {"batch_dims": 1}, {}),
    "GatherElements": ([[0, 3, 0, 0]], "indices 0 to 3 into an axis of 3", {}, {}),
    "ScatterND": ([[3]], "indices 3 to 3 into an axis of 3", {}, {"u": np.ones((1, 4), np.float32)}),
    "ScatterElements": ([[-4, 0]], "indices -4 to 0 into an axis of 3", {}, {"u": np.ones((1, 2), np.float32)}),
    "ReverseSequence": ([1, 2, 3, 4], "its operand length has values from 1 to 4; valid are 0 to 3",
                        {"time_axis": 0, "batch_axis": 1}, {}),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_constant_indices_off_their_axis_are_found_before_a_run(name: str, known: bool):
    indices, message, attributes, updates = OUT_OF_BOUNDS[name]
    x = {"x": np.ones((3, 4), np.float32)}
    constants = {**(x if known else {}), "i": np.array(indices), **updates}
    source = model([node(name.split(".")[0], " ".join(["x", "i", *updates]), "y", **attributes)],
                   {} if known else fed(x), ["y"], constants, opset=16)
    with pytest.raises(ModelError, match=message):
        import_onnx(source)


@pytest.mark.parametrize(("op_type", "operands", "attributes", "dtype"), [
    ("QuantizeLinear", {"x": [4]}, {"output_dtype": TensorProto.INT16}, "int16"),
    ("QuantizeLinear", {"x": [4]}, {}, "uint8"),
    ("DequantizeLinear", {"x": [4]}, {"output_dtype": TensorProto.FLOAT16}, "float16"),
])
def test_quantisation_has_the_type_that_is_asked_for(op_type, operands, attributes, dtype):
    given = TensorProto.INT8 if op_type == "DequantizeLinear" else TensorProto.FLOAT
    graph = import_onnx(model([node(op_type, "x s", "y", **attributes)], {"x": (given, [4])}, ["y"],
                              {"s": np.float32(0.5)}, opset=23))
    assert graph.types["y"].dtype == dtype
    blocks = import_onnx(model([node(op_type, "x s", "y", **attributes, axis=0, block_size=2)],
                               {"x": (given, [4])}, ["y"], {"s": np.float32([0.5, 2])}, opset=23))
    assert blocks.types["y"].dtype == dtype


def test_a_precision_of_64_bits_is_refused():
    source = model([node("QuantizeLinear", "x s", "y", precision=TensorProto.DOUBLE)], {"x": [4]},
                   ["y"], {"s": np.float32(0.5)}, opset=23)
    assert "divides in float64" in str(refusal(source))


def test_a_signal_needs_no_axis_of_one():
    frames = {"step": np.int64(4), "length": np.int64(8)}
    x = np.random.default_rng(0).standard_normal((2, 20)).astype(np.float32)
    results = [reference.run(import_onnx(model([node("STFT", "x step w length", "y")], {"x": shape}, ["y"],
                                               {**frames, "w": np.hanning(8).astype(np.float32)})),
                             {"x": x.reshape(shape)})["y"] for shape in ([2, 20], [2, 20, 1])]
    assert results[0].shape == (2, 4, 5, 2)
    np.testing.assert_array_equal(*results)
    other = model([node("STFT", "x step w length", "y")], {"x": [20]}, ["y"],
                  {**frames, "w": np.ones(8, np.float32)})
    assert "requires a signal [batch][N] or [batch][N][1 or 2]" in str(refusal(other))


@pytest.mark.parametrize("length", [12, 256])
def test_frames_of_signals_of_any_length(length: int):
    """The number of frames follows from the length. Frames of 12 use a matrix product, frames of 256 an FFT."""
    window = np.hanning(length).astype(np.float32)
    source = model([node("STFT", "x step w length", "y")], {"x": ["batch", "n"]}, ["y"],
                   {"step": np.int64(5), "w": window, "length": np.int64(length)}, opset=17)
    graph = import_onnx(source)
    for n in (length, length + 4, length + 33):
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        frames = np.stack([x[:, start:start + length] for start in range(0, n - length + 1, 5)], 1)
        expected = np.fft.rfft(frames * window)
        (result,) = reference.run(graph, {"x": x}).values()
        np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected, atol=1e-4)
    with pytest.raises(ModelError, match="of at least one frame"):
        import_onnx(source, input_shapes={"x": (1, length - 1)})


@pytest.mark.parametrize("wanted", [None, [1, 1, 4, 3]])
def test_unpooled_elements_of_padded_windows(wanted):
    """An axis has (extent - 1) * stride + kernel elements without both pads; zeros follow up to `output_shape`."""
    x, where = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), np.array([0, 2, 6, 8]).reshape(1, 1, 2, 2)
    shape = {} if wanted is None else {"s": np.array(wanted)}
    graph = import_onnx(model([node("MaxUnpool", " ".join(["x", "i", *shape]), "y", kernel_shape=[2, 2], strides=[2, 2],
                                    pads=[0, 1, 1, 0])], fed({"x": x, "i": where}), ["y"], shape))
    y = reference.run(graph, {"x": x, "i": where})["y"]
    assert y.shape == tuple(wanted or (1, 1, 3, 3))
    assert y[0, 0].tolist() == [[1, 0, 2], [0, 0, 0], [3, 0, 4], *[[0, 0, 0]] * (wanted is not None)]


@pytest.mark.parametrize("rotated", [6, 4])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_rotary_positions_in_float64(rotated, domain):
    """Pairs of the first elements of a head are rotated, of all with angles for all; the rest stays."""
    x, pairs = np.random.default_rng(1).normal(size=(1, 2, 3, 6)), rotated // 2
    angles = np.random.default_rng(2).uniform(-3, 3, (3, pairs))
    operands = {"c": np.cos(angles), "s": np.sin(angles), "p": np.arange(3)[None]}
    graph = import_onnx(model([node("RotaryEmbedding", "x p c s" if domain else "x c s p", "y", domain=domain,
                                    rotary_embedding_dim=rotated, **({"num_heads": 2} if domain else {}))],
                              fed({"x": x}), ["y"], operands, opset=23))
    first, second, rest = np.split(x, [pairs, 2 * pairs], 3)
    turned = (first + 1j * second) * np.exp(1j * angles)
    np.testing.assert_allclose(reference.run(graph, {"x": x})["y"],
                               np.concatenate([turned.real, turned.imag, rest], 3), atol=1e-12)
