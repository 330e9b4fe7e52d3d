# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits, as ONNX spells them: packed in the graph, and the same reals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.onnx_models import fed, model, node, value
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Context
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS, parse_targets

CONTEXT = Context(TARGETS["x86-64-v3"])


def lowered(proto: onnx.ModelProto, inputs):
    after = before_layouts(import_onnx(proto), CONTEXT)
    return [op.kind for op in after.ops], next(iter(run(after, inputs).values()))


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 64), (4, 128), (4, 256), (8, 16), (8, 128)])
def test_matmul_nbits(bits, block):
    onnxruntime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(block)
    k, n = 300, 37
    blocks = -(-k // block)
    inputs = {"a": random.normal(size=(2, 3, k)).astype(np.float32)}
    constants = {"b": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
                 "s": random.uniform(0.01, 0.1, n * blocks).astype(np.float32),
                 "z": random.integers(0, 256, n * (-(-blocks * bits // 8))).astype(np.uint8),
                 "c": random.normal(size=n).astype(np.float32)}
    for names in ("a b s", "a b s z", "a b s z  c"):
        used = {name: constants[name] for name in names.split() if name != "a"}
        nbits = node("MatMulNBits", names, "y", domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
        proto = model([nbits], fed(inputs), {"y": [2, 3, n]}, used)
        (expected,) = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, inputs)
        kinds, actual = lowered(proto, inputs)
        assert set(kinds) <= {"matmul_nbits", "elementwise"}
        np.testing.assert_allclose(actual, expected, 1e-4, 1e-4)


@pytest.mark.parametrize(("asked", "level", "kinds"), [
    ("model", 4, ["quantize_blocks", "matmul_nbits_int8", "matmul_nbits_int8"]), ("model", 0, ["matmul_nbits"] * 2),
    ("int8", 0, ["quantize_blocks", "matmul_nbits_int8", "matmul_nbits_int8"]), ("float32", 4, ["matmul_nbits"] * 2)])
def test_activations(asked, level, kinds):
    """The option, or the model's accuracy_level, says whether they are int8; two products share what is quantised."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 96)).astype(np.float32)
    constants = {name: random.integers(0, 256, (40, 3, 16)).astype(np.uint8) for name in ("b", "c")}
    constants["s"] = random.uniform(0.01, 0.1, 120).astype(np.float32)
    products = [node("MatMulNBits", f"a {name} s", f"y{name}", domain="com.microsoft", K=96, N=40, block_size=32,
                     bits=4, accuracy_level=level) for name in ("b", "c")]
    proto = model([*products, node("Add", "yb yc", "y")], fed({"a": x}), {"y": [3, 40]}, constants)
    after = before_layouts(import_onnx(proto), replace(CONTEXT, activations=asked))
    assert [op.kind for op in after.ops] == kinds
    (exact,) = run(before_layouts(import_onnx(proto), replace(CONTEXT, activations="float32")), {"a": x}).values()
    (found,) = run(after, {"a": x}).values()
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def test_blocks_that_fit_no_activations_keep_floats():
    constants = {"b": np.zeros((4, 2, 20), np.uint8), "s": np.ones(8, np.float32)}
    product = node("MatMulNBits", "a b s", "y", domain="com.microsoft", K=80, N=4, bits=4, block_size=40)
    proto = model([product], fed({"a": np.zeros((1, 80), np.float32)}), {"y": [1, 4]}, constants)
    after = before_layouts(import_onnx(proto), replace(CONTEXT, activations="int8"))
    assert [op.kind for op in after.ops] == ["matmul_nbits"]


def weights(dtype: int, shape: tuple[int, int], axis: int, block: int):
    """A DequantizeLinear of constants of 4 bits with its tensors, and the reals that it gives."""
    random = np.random.default_rng(block)
    low = -8 if dtype == onnx.TensorProto.INT4 else 0
    numbers = random.integers(low, low + 16, shape)
    blocks = tuple(-(-extent // block) if i == axis else extent for i, extent in enumerate(shape)) if block \
        else (shape[axis],)
    scale, zero = random.uniform(0.01, 0.1, blocks).astype(np.float32), random.integers(low, low + 16, blocks)
    tensors = [helper.make_tensor("w", dtype, shape, numbers.reshape(-1)),
               helper.make_tensor("z", dtype, blocks, zero.reshape(-1)), onnx.numpy_helper.from_array(scale, "s")]
    if block:
        scale, zero = (np.repeat(array, block, axis).take(range(shape[axis]), axis) for array in (scale, zero))
    else:
        scale, zero = (np.expand_dims(array, 1 - axis) for array in (scale, zero))
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    return node("DequantizeLinear", "w s z", "wr", **attributes), tensors, ((numbers - zero) * scale).astype(np.float32)


@pytest.mark.parametrize("dtype", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
@pytest.mark.parametrize(("shape", "axis", "block", "then"), [
    ((96, 20), 0, 32, "MatMul"), ((20, 96), 1, 16, "Gemm"), ((20, 96), 1, 32, "Transpose"), ((96, 20), 1, 0, "MatMul"),
    ((33, 96), 1, 32, "Gather"), ((96, 20), 1, 10, "MatMul")])
def test_dequantised_weights(dtype, shape, axis, block, then):
    """The last row has its blocks along the wrong axis: its weights are reals."""
    dequantize, tensors, w = weights(dtype, shape, axis, block)
    x = np.random.default_rng(0).normal(size=(5, 96)).astype(np.float32)
    wanted = ["matmul_nbits"]
    match then:
        case "MatMul": nodes, expected = [node("MatMul", "x wr", "y")], x @ w
        case "Gemm": nodes, expected = [node("Gemm", "x wr", "y", transB=1)], x @ w.T
        case "Transpose":
            nodes = [node("Transpose", "wr", "wt", perm=[1, 0]), node("MatMul", "x wt", "y")]
            expected = x @ w.T
        case _:
            x = np.array([[3, 0, 32], [1, 1, -2]])
            nodes, expected = [node("Gather", "wr x", "y")], w[x]
            wanted = ["gather", "gather", "gather", "dequantize_int4"]
    proto = model([dequantize, *nodes], fed({"x": x}), {"y": list(expected.shape)}, opset=21)
    proto.graph.initializer.extend(tensors)
    kinds, actual = lowered(proto, {"x": x})
    assert kinds == (["matmul"] if block == 10 else wanted)
    np.testing.assert_allclose(actual, expected, 1e-4, 1e-4)


def test_bytes_of_the_container():
    """4 bits a weight, and 5 bytes a block."""
    dequantize, tensors, w = weights(onnx.TensorProto.INT4, (512, 256), 0, 32)
    x = np.zeros((1, 512), np.float32)
    proto = model([dequantize, node("MatMul", "x wr", "y")], fed({"x": x}), {"y": [1, 256]}, opset=21)
    proto.graph.initializer.extend(tensors)
    artifact = compile_graph(import_onnx(proto), parse_targets("x86-64-v3"))
    assert len(artifact.container) < 1.05 * (w.size / 2 + w.size / 32 * 5) + 2000


@pytest.mark.parametrize(("bits", "k", "order"), [(4, 96, "permuted"), (8, 96, "permuted"), (2, 64, "permuted"),
                                                  (4, 75, "permuted"), (4, 96, "drawn"), (4, 96, "sorted")])
@pytest.mark.parametrize("zero", [True, False])
def test_columns_in_another_order(bits, k, order, zero):
    """g_idx, as GPTQ with act-order writes it. ONNX Runtime 1.32 takes no zero points then."""
    random, n, block = np.random.default_rng(k + bits), 24, 32
    blocks = -(-k // block)
    block_of = np.arange(k) // block
    if order != "sorted":
        block_of = random.permutation(block_of) if order == "permuted" else random.integers(0, blocks, k)
    a = random.normal(size=(2, k)).astype(np.float32)
    b = random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    constants = {"b": b, "s": random.uniform(0.01, 0.1, (n, blocks)).astype(np.float32),
                 "g": block_of.astype(np.int32), "c": random.normal(size=n).astype(np.float32)}
    points = np.full((n, blocks), 1 << bits - 1, np.float32)
    if zero:
        points = random.integers(0, 1 << bits, (n, blocks)).astype(np.float32)
        constants["z"] = points
    nbits = node("MatMulNBits", "a", "y", domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    nbits.input[:] = ["a", "b", "s", "z" if zero else "", "g", "c"]
    proto = model([nbits], fed({"a": a}), {"y": [2, n]}, constants)
    kinds, actual = lowered(proto, {"a": a})
    if not zero and bits == 4:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(actual, session.run(None, {"a": a})[0], 1e-5, 1e-5)
    numbers = np.stack([b >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1).reshape(n, -1)[:, :k]
    weights = (numbers - points[:, block_of].astype(np.float64)) * constants["s"][:, block_of]
    np.testing.assert_allclose(actual, a @ weights.T + constants["c"], 1e-5, 1e-5)
    assert ("matmul_nbits" in kinds) == (order != "drawn") and ("gather" in kinds) == (order == "permuted")


def test_what_is_not_supported():
    x = np.zeros((1, 32), np.float32)
    for bits, block_of, why in ((3, None, "weights of 3 bits"), (4, [1] * 32, "one of 1 blocks"),
                                (4, [-1] * 32, "one of 1 blocks"), (4, [0] * 31, "each of 32 columns")):
        constants = {"b": np.zeros((4, 1, 4 * bits), np.uint8), "s": np.ones(4, np.float32)}
        nbits = node("MatMulNBits", "a b s", "y", domain="com.microsoft", K=32, N=4, block_size=32, bits=bits)
        if block_of is not None:
            constants["g"] = np.array(block_of, np.int32)
            nbits.input.extend(["", "g"])
        with pytest.raises(ModelError, match=why):
            import_onnx(model([nbits], fed({"a": x}), {"y": [1, 4]}, constants))


def test_an_output_of_four_bits_has_numbers_of_four_bits():
    made = model([node("CastLike", "x like", "y")], {"x": [3]}, [value("y", [3], onnx.TensorProto.INT4)])
    made.graph.initializer.append(onnx.helper.make_tensor("like", onnx.TensorProto.INT4, [1], [1]))
    graph = import_onnx(made)
    assert graph.types["y"].dtype == "int4"
    (y,) = run(graph, {"x": np.array([-8, 7, 9], np.float32)}).values()
    assert y.dtype == np.dtype("int4") and y.astype(np.int8).tolist() == [-8, 7, -7]
