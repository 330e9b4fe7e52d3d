# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's own domain, as its optimiser writes them, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.onnx_models import fed, model, node
from tvm_megcc.context import Context
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.base import DECOMPOSITIONS
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])
RANDOM = np.random.default_rng(0)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers():
    """Draws the same numbers in each test, whichever tests ran before it in the process."""
    RANDOM.bit_generator.state = START


def f(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def i(high, *shape, dtype=np.int32):
    return RANDOM.integers(0, high, shape).astype(dtype)


def b(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def case(kind, operands, results=1, constant="", domain="com.microsoft", **attributes):
    """operands: arrays or None; those whose index is in `constant` are weights."""
    return kind, operands, results, [int(index) for index in constant.split()], domain, attributes


def expected(proto, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def compared(row, tolerance=2e-5, first=False):
    """first: only the first result is."""
    kind, operands, results, constant, domain, attributes = row
    names = [f"x{index}" if operand is not None else "" for index, operand in enumerate(operands)]
    arrays = {name: np.asarray(operand) for name, operand in zip(names, operands, strict=True) if name}
    constants = {f"x{index}": arrays[f"x{index}"] for index in constant}
    inputs = {name: array for name, array in arrays.items() if name not in constants}
    outputs = results.split() if isinstance(results, str) else [f"y{index}" for index in range(results)]
    wanted = [name for name in outputs if name != "_"]
    made = node(kind, " ".join(names), " ".join(outputs), domain=domain, **attributes)
    made.output[:] = ["" if name == "_" else name for name in outputs]
    proto = model([made], fed(inputs), wanted, constants)
    for output in proto.graph.output:
        output.ClearField("type")
    if not any(entry.domain == "com.microsoft" for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    reference = expected(proto, inputs)
    actual = run(before_layouts(import_onnx(proto), CONTEXT), inputs)
    for name, wanted_array in list(zip(wanted, reference, strict=True))[:1 if first else None]:
        assert actual[name].dtype == wanted_array.dtype and actual[name].shape == wanted_array.shape, name
        scale = np.abs(wanted_array).max(initial=1e-3)
        np.testing.assert_allclose(actual[name], wanted_array, rtol=0, atol=tolerance * scale, err_msg=f"{kind} {name}")


def check(rows, tolerance=2e-5):
    for row in rows:
        compared(row, tolerance)


ONE = np.float32(0.02)


def test_activations_and_products():
    check([
        case("Gelu", [f(3, 37)]), case("BiasGelu", [f(3, 5, 7), f(7)], constant="1"), case("FastGelu", [f(3, 7)]),
        case("FastGelu", [f(2, 3, 7), f(7)], constant="1"), case("QuickGelu", [f(3, 7)]),
        case("QuickGelu", [f(3, 7)], alpha=1.0),
        case("FusedMatMul", [f(3, 5, 7), f(3, 7, 9)], alpha=0.125),
        case("FusedMatMul", [f(3, 7, 5), f(3, 9, 7)], alpha=0.5, transA=1, transB=1),
        case("FusedMatMul", [f(5, 2, 3, 7), f(2, 3, 7, 4)], transBatchA=1),
        case("FusedMatMul", [f(7, 2, 3, 5), f(9, 2, 3, 7)], transBatchA=1, transA=1, transBatchB=1, transB=1),
        case("FusedMatMul", [f(7), f(7, 5)], transA=1), case("TransposeMatMul", [f(4, 7, 3), f(7, 5)], transA=1),
        case("FusedGemm", [f(3, 7), f(5, 7), f(5)], transB=1, alpha=0.5, beta=2.0, activation="LeakyRelu",
             activation_alpha=0.3),
        case("FusedGemm", [f(3, 7), f(7, 5), f(3, 5)], activation="Relu"),
        case("FusedGemm", [f(3, 7), f(7, 5)], activation="HardSigmoid", activation_alpha=0.3, activation_beta=0.4),
        case("MatMulIntegerToFloat", [b("uint8", 3, 5, 16), b("int8", 16, 9), ONE, f(9)**2, np.uint8(100),
                                      np.zeros(9, np.int8), f(9)], constant="1 3 5 6"),
        case("MatMulIntegerToFloat", [b("uint8", 3, 16), b("uint8", 16, 9), f(1)**2, f(1)**2, np.uint8(100),
                                      np.array([77], np.uint8)], constant="1 3 5"),
        case("MatMulIntegerToFloat", [b("int8", 3, 16), b("int8", 16, 9), f(1)**2, f(1)**2], constant="1 3"),
        case("MatMulIntegerToFloat", [b("uint8", 3, 5, 16), b("uint8", 16, 9), ONE, f(9)**2, np.uint8(100),
                                      b("uint8", 9), f(9)], constant="1 3 5 6"),
        case("DynamicQuantizeMatMul", [f(3, 5, 16), b("int8", 16, 9), f(9)**2, np.zeros(9, np.int8), f(9)],
             constant="1 2 3 4"),
        case("DynamicQuantizeMatMul", [f(3, 16), b("uint8", 16, 9), f(1)**2, np.uint8(128)], constant="1 2 3"),
    ])


def test_windows():
    same, x, w = [1, 1, 1, 1], f(1, 3, 9, 8), f(4, 3, 3, 3)
    two = {"group": 2, "strides": [2, 1]}
    scales = [ONE, np.uint8(3), b("int8", 4, 3, 3, 3), f(4)**2 + 0.01, np.zeros(4, np.int8), np.float32(0.5),
              np.uint8(7), i(1000, 4)]
    check([
        case("FusedConv", [x, w, f(4)], constant="1 2", activation="Relu", pads=same),
        case("FusedConv", [x, w, f(4), f(1, 4, 9, 8)], constant="1 2", activation="LeakyRelu",
             activation_params=[0.1], pads=same),
        case("FusedConv", [x, w, None, f(1, 4, 9, 8)], constant="1", pads=same),
        case("FusedConv", [f(1, 4, 9, 8), f(4, 2, 3, 3)], constant="1", activation="Clip",
             activation_params=[-0.5, 0.5], **two),
        case("FusedConv", [f(1, 4, 9, 8), f(4, 2, 3, 3)], constant="1", activation="HardSigmoid",
             activation_params=[0.2, 0.5], **two),
        case("NhwcMaxPool", [b("uint8", 1, 9, 8, 3)], kernel_shape=[3, 3], strides=[2, 2], pads=same),
        case("ConvTransposeWithDynamicPads", [f(1, 3, 5, 4), f(3, 2, 3, 3), np.array([1, 0, 1, 1]), f(2)],
             constant="1 2 3", strides=[2, 2]),
        *(case("ConvTransposeWithDynamicPads", [f(1, 3, 5, 4), f(3, 2, 3, 3), np.array([1, 0, 1, 2]), f(2)],
               constant=constant, strides=[2, 2], output_padding=[1, 0]) for constant in ("1 3", "1 2 3")),
        case("QLinearConv", [b("uint8", 1, 9, 8, 3), *scales], constant="1 2 3 4 5 6 7 8", channels_last=1, pads=same),
    ])


def test_normalisations_and_others():
    x, n = f(2, 5, 8), f(8)
    check([
        case("SkipLayerNormalization", [x, f(2, 5, 8), n, f(8), f(8)], "y _ _ s", epsilon=1e-5),
        case("SkipLayerNormalization", [x, f(5, 8), n, f(8)]), case("SkipLayerNormalization", [x, f(1, 5, 8), n]),
        case("SimplifiedLayerNormalization", [x, n], domain=""),
        case("SimplifiedLayerNormalization", [x, f(5, 8)], 2, domain="", axis=1, epsilon=1e-3),
        case("LayerNormalization", [x, n, f(8)], domain="", epsilon=1e-3),
        case("SkipSimplifiedLayerNormalization", [x, f(2, 5, 8), n, f(8)], "y _ _ s"),
        case("SkipSimplifiedLayerNormalization", [x, f(2, 5, 8), n], epsilon=1e-3),
        *(case(kind, [x / 500, f(2, 5, 8) / 500, n]) for kind in (  # epsilon is left out, and matters
            "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")),
        case("SimplifiedLayerNormalization", [x / 500, n], domain=""),
        case("EmbedLayerNormalization", [i(9, 2, 5), i(2, 2, 5), f(9, 8), f(6, 8), f(2, 8), n, f(8), i(2, 2, 5)], 3,
             constant="2 3 4 5 6"),
        case("EmbedLayerNormalization", [i(9, 2, 5), None, f(9, 8), f(6, 8), None, n, f(8), None, i(6, 2, 5)], 2,
             epsilon=1e-3),
        case("EmbedLayerNormalization", [i(9, 2, 5), None, f(9, 8), f(6, 8), None, n, f(8), None, i(6, 1, 5)], 2),
        *(case("GridSample", [f(1, 2, 5, 6), f(1, 3, 9, 2)], mode=mode, padding_mode=padding, align_corners=corners)
          for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection")
          for corners in (0, 1) if (mode, padding) != ("bicubic", "border")),
        case("Inverse", [f(2, 3, 4, 4)]), case("Inverse", [f(5, 5).astype(np.float64)]),
        case("Trilu", [f(4, 5)], upper=0), case("ExpandDims", [f(4, 5), np.int32(-1)], constant="1"),
        case("Pad", [f(4, 5), np.array([1, 0, 2, 1]), np.float32(2)], constant="1 2"),
        case("GatherND", [f(4, 5), i(4, 2, 3, 1, dtype=np.int64)]),
        case("QuantizeLinear", [f(4, 5), np.float32(0.05), np.uint8(9)]),
        case("QuantizeLinear", [f(4, 5), np.float32(0.0005), np.uint16(9)]),
        case("DequantizeLinear", [b("int8", 4, 5), f(5)**2, b("int8", 5)], constant="1 2", axis=1),
        case("DequantizeLinear", [b("int16", 4, 5), np.float32(1)]),
    ])


def test_batches_of_weights():
    """As many as the lines of each: one zero point that the run finds, a sum of columns for each."""
    weights = b("int8", 2, 5, 4)
    check([case("DynamicQuantizeMatMul", [f(2, lines, 5), weights, np.float32(0.03)], constant="1 2")
           for lines in (2, 3)])


@pytest.mark.parametrize("depth", [64, 70])
def test_blocks_with_real_zero_points(depth):
    blocks = -(-depth // 32)
    points = (7.5 + 4 * f(3 * blocks)).astype(np.float32)
    check([case("MatMulNBits", [f(2, 4, depth), b("uint8", 3, blocks, 16), f(3 * blocks)**2, each], constant="1 2 3",
                K=depth, N=3, bits=4, block_size=32) for each in (points, np.rint(points), points * 9)], 2e-4)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("depth, block", [(64, 16), (70, 32), (48, 64)])
def test_blocks_of_two_bits(depth, block, level):
    """Beside the float product of the weights: what ONNX Runtime takes of 2 bits depends on its version."""
    blocks = -(-depth // block)
    numbers, zeros, scales = i(4, 5, blocks * block), i(4, 5, blocks), f(5, blocks)**2
    kept = np.pad(zeros, [(0, 0), (0, -blocks % 4)])
    stored, points = ((each[:, ::4] | each[:, 1::4] << 2 | each[:, 2::4] << 4 | each[:, 3::4] << 6).astype(np.uint8)
                      for each in (numbers, kept))
    x = f(2, 3, depth)
    for given in (None, points.ravel(), zeros.astype(np.float32)):
        values = {"b": stored.reshape(5, blocks, -1), "s": scales, **({} if given is None else {"z": given})}
        made = node("MatMulNBits", " ".join(["x", *values]), "y", domain="com.microsoft", K=depth, N=5, bits=2,
                    block_size=block, accuracy_level=level)
        graph = import_onnx(model([made], fed({"x": x}), ["y"], values))
        found = run(before_layouts(graph, CONTEXT), {"x": x})["y"]
        zero = 2 if given is None else np.repeat(zeros, block, 1)
        weights = ((numbers - zero) * np.repeat(scales, block, 1))[:, :depth]
        most = (0.05 if level else 1e-5) * 8 * np.abs(weights).max()
        np.testing.assert_allclose(found, x @ weights.T, rtol=0, atol=most)


@pytest.mark.parametrize("of_type", [0, 1])
def test_weights_of_bitsandbytes(of_type):
    def product(rows, depth, block, *batch, **attributes):
        sizes = {"N": rows, "K": depth, "block_size": block, "quant_type": of_type, **attributes}
        return case("MatMulBnb4", [f(*batch, depth), b("uint8", -(-rows * depth // 2)),
                                   f(-(-rows * depth // block))**2], constant="1 2", **sizes)
    check([product(3, 64, 16, 2, 4), product(5, 40, 32, 3), product(3, 21, 16, 2), product(7, 16, 128),
           product(16, 32, 16, 5, transB=1, training_mode=1)], 2e-4)


def test_weights_of_bitsandbytes_that_are_not_transposed():
    """ONNX Runtime 1.32 transposes them all the same, and reads what is not there."""
    codes = i(16, 6 * 20, dtype=np.uint8)
    values = {"x0": f(2, 6), "x1": codes[::2] << 4 | codes[1::2], "x2": f(8)**2}
    made = node("MatMulBnb4", "x0 x1 x2", "y", domain="com.microsoft", N=6, K=20, block_size=16, quant_type=0, transB=0)
    x = values.pop("x0")
    twelfths = np.array([0, 1 / 16, 8, 12, 4, 6, 2, 3, 0, -1 / 16, -8, -12, -4, -6, -2, -3])
    weights = (twelfths[codes] / 12 * np.repeat(values["x2"], 16)[:120]).reshape(6, 20)
    found = run(before_layouts(import_onnx(model([made], fed({"x0": x}), ["y"], values)), CONTEXT), {"x0": x})
    np.testing.assert_allclose(found["y"], x @ weights, rtol=1e-5, atol=1e-5)


def test_weights_of_bitsandbytes_that_are_none():
    sizes = {"N": 3, "K": 64, "block_size": 16, "quant_type": 1}
    weights, largest = b("uint8", 96), f(12)
    for wrong in ({"quant_type": 2}, {"block_size": 24}, {"block_size": 8}, {"K": 66}, {"N": 4}):
        values = {"x0": f(2, wrong.get("K", 64)), "x1": weights, "x2": largest}
        made = node("MatMulBnb4", "x0 x1 x2", "y", domain="com.microsoft", **sizes | wrong)
        with pytest.raises(ModelError, match="MatMulBnb4"):
            import_onnx(model([made], fed({"x0": values.pop("x0")}), ["y"], values))


def test_distances():
    check([case("CDist", [f(5, 7), f(3, 7)], metric=metric) for metric in ("euclidean", "sqeuclidean")]
          + [case("CDist", [f(1, 4).astype(np.float64), f(9, 4).astype(np.float64)], constant="1", metric="euclidean")])


def test_operators_on_trial():
    x = f(2, 3, 5, 6)
    for kind, attributes, wanted in (
            ("Affine", {"alpha": 2.5, "beta": -0.5}, 2.5 * x - 0.5), ("Affine", {}, x),
            ("Scale", {"scale": 0.25}, x / 4),
            ("ScaledTanh", {"alpha": 1.5, "beta": 0.5}, 1.5 * np.tanh(x / 2)),
            ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}, 2 * np.log1p(np.exp(x / 2))),
            ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}, 2 * x + np.arange(1, 4)[:, None, None]),
            ("Crop", {"border": [1, 2, 3, 0]}, x[:, :, 2:, 1:3]), ("Crop", {"border": [0, 0, 0, 0]}, x),
            ("Crop", {"border": [1, 2, 9, 9], "scale": [2, 4]}, x[:, :, 2:4, 1:5])):
        made = model([node(kind, "x", "y", **attributes)], fed({"x": x}), ["y"])
        for made.opset_import[0].version in (1, 17):
            found = run(before_layouts(import_onnx(made), CONTEXT), {"x": x})["y"]
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=kind)
    for border in ([4, 0, 3, 0], [0, 0, 0, 6], [-1, 0, 0, 0], [1, 2]):
        with pytest.raises(ModelError, match="Crop"):
            import_onnx(model([node("Crop", "x", "y", border=border)], fed({"x": x}), ["y"]))


def test_rows_of_blocks():
    rows = i(9, 2, 3, dtype=np.int64)
    for bits, length, block in ((4, 64, 16), (8, 64, 16), (4, 40, 16), (8, 40, 16), (4, 32, 128)):
        blocks = -(-length // block)
        data, scales = b("uint8", 9, length * bits // 8), f(9, blocks)**2
        check([case("GatherBlockQuantized", [data, rows, scales, *zeros], constant="0 2 3" if zeros else "0 2",
                    bits=bits, block_size=block, quantize_axis=1)
               for zeros in ((), (b("uint8", 9, -(-blocks * bits // 8)),))])


def test_attention():
    x, w, bias, of = f(2, 5, 12), f(12, 72), f(72), {"constant": "1 2", "num_heads": 4}
    short, past, low = f(2, 3, 12), f(2, 2, 4, 6, 6), {"mask_filter_value": -3.0}
    q = [b("uint8", 2, 5, 12), b("int8", 12, 72), bias, ONE, ONE / 2]
    of_q = {"constant": "1 2 4 7", "num_heads": 4}
    check([
        case("Attention", [x, w, bias], **of), case("Attention", [x, w, bias, i(2, 2, 5)], **of),
        case("Attention", [x, w, bias, i(2, 2, 5, 5)], **of, **low),
        case("Attention", [x, w, bias, i(2, 2, 5)], unidirectional=1, **of, **low),
        case("Attention", [x, w, bias, np.array([3, 5], np.int32)], **of, **low),
        case("Attention", [x, w, bias, np.array([3, 5, 1, 0], np.int32)], **of, **low),
        case("Attention", [x, w, bias, np.ones((2, 1), np.int32)], **of, **low),
        case("Attention", [x, f(12, 64), f(64)], qkv_hidden_sizes=[24, 24, 16], scale=0.3, **of),
        case("Attention", [short, w, bias, None, past], 2, unidirectional=1, **of),
        case("Attention", [short, w, bias, i(2, 2, 9), past], 2, unidirectional=1, **of, **low),
        case("Attention", [short, w, bias, None, None, f(1, 4, 3, 3)], **of),
        case("Attention", [short, w, bias, None, None, f(2, 1, 3, 3)], **of),
        case("QAttention", [*q, i(2, 2, 5), np.uint8(120), np.int8(0)], **of_q),
        case("QAttention", [q[0], b("uint8", 12, 72), bias, ONE, f(72)**2 * 0.01, None, np.uint8(120),
                            b("uint8", 72)], unidirectional=1, **of_q),
        case("QAttention", [*q, None, np.uint8(120), np.int8(0), f(2, 2, 4, 3, 6)], 2, unidirectional=1, **of_q),
    ])
    q, k, v, past, of = f(2, 5, 12), f(2, 7, 12), f(2, 7, 16), f(2, 4, 3, 3), {"num_heads": 4}
    check([
        case("MultiHeadAttention", [q, k, v], **of), case("MultiHeadAttention", [q, k, v, f(40)], constant="3", **of),
        case("MultiHeadAttention", [q, k, v, None, i(2, 2, 7)], **of, **low),
        case("MultiHeadAttention", [q, k, v, None, np.array([4, 7], np.int32)], **of, **low),
        case("MultiHeadAttention", [q, k, v, None, i(2, 2, 5, 7)], **of, **low),
        case("MultiHeadAttention", [q, k, v, None, None, f(1, 4, 5, 7)], scale=0.5, **of),
        case("MultiHeadAttention", [q, q, q, None, None, None, past, past], 3, unidirectional=1, **of),
        case("MultiHeadAttention", [q, q, q, f(36), i(2, 2, 8), None, past, past], 3, unidirectional=1, **of, **low),
        case("MultiHeadAttention", [q, f(2, 4, 7, 3), f(2, 4, 7, 3)], **of),
        case("MultiHeadAttention", [q, q, q], unidirectional=1, **of),
    ])


def test_rotary_embedding():
    places, angles = i(9, 2, 5, dtype=np.int64), (f(9, 3), f(9, 3))
    check([
        case("RotaryEmbedding", [f(2, 5, 24), places, *angles]),
        case("RotaryEmbedding", [f(2, 5, 24), places, *angles], interleaved=1),
        case("RotaryEmbedding", [f(2, 4, 5, 6), np.array([2]), *angles]),
        case("RotaryEmbedding", [f(2, 5, 32), places, *angles], num_heads=4, rotary_embedding_dim=6),
        case("RotaryEmbedding", [f(2, 4, 5, 8), places, *angles], num_heads=4, rotary_embedding_dim=6, interleaved=1),
        case("RotaryEmbedding", [f(2, 5, 24), places, *angles], scale=2.0),
    ])


def test_group_query_attention():
    turns, of = (f(20, 8), f(20, 8)), {"num_heads": 4, "kv_num_heads": 2}

    def row(batch, length, room, last, total, *more, packed=False, groups=2, **attributes):
        q = [f(batch, length, 128), None, None] if packed else \
            [f(batch, length, 64), *(f(batch, length, 16 * groups) for _ in range(2))]
        past = [f(batch, groups, room, 16) if room else None for _ in range(2)]
        return case("GroupQueryAttention", [*q, *past, np.array(last, np.int32), np.int32(total), *more], 3,
                    constant="6", **{**of, "kv_num_heads": groups}, **attributes)

    check([
        row(1, 5, 0, [4], 5), row(2, 5, 0, [4, 4], 5), row(1, 1, 6, [6], 7), row(1, 1, 6, [6], 7, packed=True),
        row(1, 3, 6, [8], 9, *turns, do_rotary=1, softcap=5.0, scale=0.7),
        row(1, 3, 6, [8], 9, *turns, do_rotary=1, rotary_interleaved=1, local_window_size=2),
        row(1, 5, 0, [4], 5, *turns, do_rotary=1, smooth_softmax=1),
        row(2, 5, 0, [4, 4], 5, None, None, None, f(2, 4, 5, 5), f(4)),
        row(1, 5, 0, [4], 5, causal=0),
        row(1, 1, 6, [6], 7, *turns, i(9, 1, 1, dtype=np.int64), groups=4, do_rotary=1),
    ])
    # A constant index of the last key says that the past is full. Results of float16 are computed in float32.
    for made in (row(1, 1, 6, [6], 7, packed=True), row(1, 3, 6, [8], 9, *turns, do_rotary=1, local_window_size=2)):
        kind, operands, results, _, domain, attributes = made
        half = [each.astype(np.float16) if each is not None and each.dtype == np.float32 else each for each in operands]
        compared((kind, operands, results, [5, 6], domain, attributes))
        compared((kind, half, results, [5, 6], domain, attributes), 2e-3)
        compared((kind, half, results, [6], domain, attributes), 2e-3)
    # Where the past has room for more, keys behind the last are nobody's: only the result is compared.
    for batch, length, last in ((1, 1, [6]), (1, 3, [6]), (2, 1, [6, 3])):
        compared(row(batch, length, 9, last, 7), first=True)


def model_of(kind, names, inputs, results="y", constants=None, **attributes):
    made = node(kind, names, results, domain="com.microsoft", **attributes)
    return model([made], fed(inputs), results.split(), constants)


def computed(proto, inputs):
    return run(before_layouts(import_onnx(proto), CONTEXT), inputs)["y"]


def test_what_onnxruntime_has_on_other_devices():
    """Kernels that ONNX Runtime has on GPUs only, against their meaning."""
    q, k, v = f(2, 5, 4, 6), f(2, 5, 4, 6), f(2, 5, 4, 6)
    flat = {name: array.reshape(2, 5, 24) for name, array in (("q", q), ("k", k), ("v", v))}
    expected_ = computed(model_of("MultiHeadAttention", "q k v", flat, num_heads=4), flat)
    for operands in ({"q": np.stack([q, k, v], 3)}, {"q": flat["q"], "k": np.stack([k, v], 3)}):
        proto = model_of("MultiHeadAttention", " ".join(operands), operands, num_heads=4)
        np.testing.assert_array_equal(computed(proto, operands), expected_)
    x, weights, mask, past = f(2, 3, 12), {"w": f(12, 72), "b": f(72)}, i(2, 2, 1, 16, 16), f(2, 2, 4, 6, 6)
    wide, narrow = ({"x": x, "m": m, "p": past} for m in (mask, mask[:, 0, 6:9, :9]))
    a, c = (computed(model_of("Attention", "x w b m p", inputs, "y z", weights, num_heads=4), inputs)
            for inputs in (wide, narrow))
    np.testing.assert_array_equal(a, c)
    image, w, bias, z = f(1, 9, 8, 3), f(4, 3, 3, 3), f(4), f(1, 9, 8, 4)
    inputs = {"x": image, "z": z}
    conv = computed(model_of("NhwcFusedConv", "x w b z", inputs, constants={"w": w, "b": bias}, activation="Relu",
                             pads=[1, 1, 1, 1]), inputs)
    first = {"x": image.transpose(0, 3, 1, 2)}
    plain = computed(model([node("Conv", "x w b", "y", pads=[1, 1, 1, 1])], fed(first), ["y"], {"w": w, "b": bias}),
                     first)
    np.testing.assert_array_equal(conv, np.maximum(plain.transpose(0, 2, 3, 1) + z, 0))
    narrow = {"x": image}
    for group in (1, 3):
        w = f(6, 3, 2, 3 // group)
        last = computed(model_of("NhwcConv", "x w", narrow, constants={"w": w}, group=group), narrow)
        plain = computed(model([node("Conv", "x w", "y", group=group)], fed(first), ["y"],
                               {"w": np.ascontiguousarray(w.transpose(0, 3, 1, 2))}), first)
        np.testing.assert_array_equal(last, plain.transpose(0, 2, 3, 1))
    signal = {"x": f(3, 2, 10)}
    lines = np.fft.rfft(signal["x"])
    spectrum = np.stack([lines.real, lines.imag], -1).astype(np.float32)
    attributes = {"normalized": 0, "onesided": 1, "signal_ndim": 1}
    np.testing.assert_allclose(computed(model_of("Rfft", "x", signal, **attributes), signal), spectrum, atol=1e-5)
    np.testing.assert_allclose(computed(model_of("Irfft", "x", {"x": spectrum}, **attributes), {"x": spectrum}),
                               signal["x"], atol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(last):
    x, skip, gamma, beta, bias = f(2, 8, 3, 5), f(2, 8), f(8), f(8), f(8)
    total = x + (skip + bias)[:, :, None, None]
    groups = total.reshape(2, 4, -1).astype(np.float64)
    groups = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-3)
    wanted = groups.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    wanted = wanted / (1 + np.exp(-wanted))
    order = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    inputs = {"x": np.ascontiguousarray(x.transpose(order)), "s": skip}
    proto = model_of("SkipGroupNorm", "x g b s a", inputs, constants={"g": gamma, "b": beta, "a": bias}, groups=4,
                     activation=1, channels_last=last, epsilon=1e-3)
    np.testing.assert_allclose(computed(proto, inputs), wanted.transpose(order), atol=1e-5)


def test_refused():
    x = {"x": f(2, 3, 12)}
    for attributes, why in (({"num_heads": 5}, "do not make 5 heads"), ({"num_heads": 4, "do_rotary": 1}, "do_rotary")):
        with pytest.raises(Exception, match=why):
            import_onnx(model_of("Attention", "x w b", x, constants={"w": f(12, 72), "b": f(72)}, **attributes))
    with pytest.raises(Exception, match="activation Cube"):
        import_onnx(model_of("FusedConv", "x w", {"x": f(1, 3, 5, 5)}, constants={"w": f(2, 3, 3, 3)},
                             activation="Cube"))


@pytest.mark.parametrize("kind", [kind for kind in DECOMPOSITIONS if kind.startswith("com.microsoft::")])
def test_without_operands(kind):
    """ONNX has no definition that says how many there are."""
    for operands, attributes in (("", {}), ("x", {}), ("x", {"strides": [1.5], "num_heads": 1.5, "axis": "a"})):
        made = helper.make_node(kind.split("::")[1], operands.split(), ["y"], domain="com.microsoft", **attributes)
        for names in ([*made.input], [*made.input, "", "x"], ["", *made.input]):
            made.input[:] = names
            proto = model([made], {"x": [2, 3]}, ["y"])
            proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
            try:
                import_onnx(proto)
            except ModelError as error:
                assert made.op_type in str(error)


def test_rows_of_keys_of_a_length_that_a_run_tells():
    """With the longest length as an input, the declared shape of the keys says how many rows they have."""
    made = model([node("GroupQueryAttention", "q k v pk pv last total", "y keys values", domain="com.microsoft",
                       num_heads=2, kv_num_heads=1)],
                 {"q": [1, 1, 8], "k": [1, 1, 4], "v": [1, 1, 4], "pk": [1, 1, 6, 4], "pv": [1, 1, 6, 4],
                  "last": ("int32", [1]), "total": ("int32", [])},
                 {"y": [1, 1, 8], "keys": [1, 1, 7, 4], "values": [1, 1, 7, 4]})
    graph = import_onnx(made)
    assert [graph.types[name].shape for name in graph.outputs] == [(1, 1, 8), (1, 1, 7, 4), (1, 1, 7, 4)]
