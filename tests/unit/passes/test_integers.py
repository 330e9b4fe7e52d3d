# SPDX-License-Identifier: Apache-2.0
"""Quantised networks on integers: what the pass makes of them means the same, and no product is left in float."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.graphs import assert_golden
from tests.onnx_models import fed, model, node
from tests.qdq import Quantised, random_network
from tvm_megcc.context import Context
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.fixed_point import multiplier
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import Const, X, arg, call
from tvm_megcc.ir.graph import Attrs, Graph, Op
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ir.verify import verify
from tvm_megcc.ops.base import operator
from tvm_megcc.ops.quantized import lookup_table
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.quantization import lower_quantized
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])


def drawn(graph) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    limits = {name: np.iinfo(graph.types[name].dtype) for name in graph.inputs}
    return {name: generator.integers(at.min, at.max + 1, graph.types[name].shape).astype(at.dtype)
            for name, at in limits.items()}


@pytest.mark.parametrize("seed", range(40))
def test_random_networks(seed):
    """Within one of the last place of the float meaning, and nearly always equal to it."""
    before = random_network(seed)
    after = before_layouts(before, CONTEXT)
    verify(after)
    assert not {op.kind for op in after.ops} & {"conv2d", "matmul", "dequantize_linear", "quantize_linear"}
    inputs = drawn(before)
    for name, expected in run(before, inputs).items():
        actual = run(after, inputs)[name]
        assert actual.dtype == expected.dtype
        steps = np.abs(actual.astype(np.int64) - expected)
        assert steps.max() <= 1 and steps.sum() <= 1 + expected.size // 100, steps


def residual_block():
    b = Quantised(3, "int8")
    scale, zero = b.parameters()
    x = b.real(b.input("x", 1, 4, 6, 6, dtype="int8"), scale, zero)
    y = b.quantised(b.op("relu", b.convolution(x, 4, 3, 1, False)))
    return b.graph(b.quantised(b.op("relu", b.op("add", b.quantised(b.convolution(y, 4, 3, 1, False)), x))))


def channels_last(b: Quantised, x: str, channels: int, clip: tuple[float, float] | None = None) -> str:
    """A convolution of [N, H, W, C] as TVM's TFLite importer and layout conversion write it: transposes around it, the
    bias as a sum, and a clip of the quantised result."""
    turned = b.op("transpose", x, perm=(0, 3, 1, 2))
    w = b.weights((channels, b.types[turned].shape[1], 3, 3), 0)
    y = b.op("transpose", b.op("conv2d", turned, w, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1),
             perm=(0, 2, 3, 1))
    scale, zero = b.parameters()
    y = b.op("quantize_linear", b.op("add", y, b.bias(x, w, channels)), scale, zero, axis=0, block=0, dtype=b.dtype)
    return b.real(y if clip is None else b.op("clip", y, lo=clip[0], hi=clip[1]), scale, zero)


@pytest.mark.parametrize("clip", [(-128, 127), (-20, float("inf")), (-20, 45), (5, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_convolutions_between_transposes(clip, seed):
    """Bias, activation, residual sum and quantisation are in the convolutions, and the network is transposed at its
    ends only. The results are those of the same network without transposes and with clips of floats."""
    b = Quantised(seed, "int8")
    scale, zero = b.parameters()
    x = b.real(b.input("x", 1, 5, 6, 4, dtype="int8"), scale, zero)
    first = channels_last(b, x, 8, clip)
    second = channels_last(b, channels_last(b, first, 7, clip), 8)
    before = b.graph(b.quantised(b.op("relu", b.op("add", first, second))))
    before = before.with_(outputs=(b.source(before.outputs[0]).inputs[0],))
    after = before_layouts(before, CONTEXT)
    verify(after)
    found = sorted(op.kind for op in after.ops)
    assert found == ["conv2d_integer"] * 3 + ["transpose"] * 2, graph_text(after)
    inputs = drawn(before)
    (wanted,), (got,) = (list(run(graph, inputs).values()) for graph in (before, after))
    steps = np.abs(got.astype(int) - wanted)
    assert steps.max() <= 1 and steps.sum() <= 1 + wanted.size // 100, steps


@pytest.mark.parametrize("shape", [(6, 6), (1, 5, 6, 6), (6,), (), (1, 1, 1, 1, 6), (5, 1, 1)])
def test_constants_beside_transposes(shape):
    """Their axes are in the order of the convolution's."""
    b = Quantised(1, "int8")
    scale, zero = b.parameters()
    turned = b.op("transpose", b.real(b.input("x", 1, 5, 6, 4, dtype="int8"), scale, zero), perm=(0, 3, 1, 2))
    y = b.op("conv2d", turned, b.weights((6, 4, 3, 3), 0), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=1)
    factors = b.const("f", value=np.random.default_rng(0).uniform(0.5, 2, shape).astype(np.float32))
    before = b.graph(b.op("mul", b.op("transpose", y, perm=(0, 2, 3, 1)), factors))
    after = before_layouts(before, CONTEXT)
    inputs = drawn(before)
    (wanted,), (got,) = (list(run(graph, inputs).values()) for graph in (before, after))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_norms_of_several_axes_are_one_operator():
    """As one axis that is as long; mean and inverse deviation have ONNX's shapes."""
    ones = np.linspace(0.5, 1.5, 15, dtype=np.float32).reshape(3, 5)
    nodes = [node("DequantizeLinear", "x s z", "real"), node("LayerNormalization", "real w w", "y m i", axis=1),
             node("QuantizeLinear", "y s z", "q")]
    constants = {"w": ones, "s": np.float32(0.03), "z": np.int8(7)}
    proto = model(nodes, {"x": ("int8", [4, 3, 5])}, {"q": ("int8", None), "m": None, "i": None}, constants,
                  opset=19)
    inputs = {"x": np.random.default_rng(0).integers(-128, 128, (4, 3, 5)).astype(np.int8)}
    expected = ReferenceEvaluator(proto).run(["q", "m", "i"], inputs)
    before = import_onnx(proto)
    for name, wanted in zip(("q", "m", "i"), expected, strict=True):
        np.testing.assert_allclose(run(before, inputs)[name], wanted, atol=1e-6 if name != "q" else 0)
    alone = before_layouts(import_onnx(proto, output_names=["q"]), CONTEXT)
    assert {op.kind for op in alone.ops} == {"reshape", "layer_norm_quantised"}
    assert np.abs(run(alone, inputs)["q"].astype(int) - expected[0]).max() <= 1


def test_golden():
    before = residual_block()
    after = lower_quantized.lower_quantised(before, CONTEXT)
    verify(after)
    assert_golden("lower_quantised", graph_text(before) + "\n" + graph_text(before_layouts(before, CONTEXT)))


def test_parameters_that_are_not_known_stay():
    """A scale that is an input, and one of 0: nothing is known to be exact then."""
    b = Quantised(0, "int8")
    x = b.real(b.input("x", 1, 3, 4, 4, dtype="int8"), b.input("s"), b.scalar("z", 0, "int8"))
    graph = b.graph(b.op("relu", x))
    assert [op.kind for op in lower_quantized.lower_quantised(graph, CONTEXT).ops] == ["dequantize_linear", "relu"]
    b = Quantised(0, "int8")
    x = b.real(b.input("x", 4, dtype="int8"), b.scalar("s", 0, "float32"), b.scalar("z", 0, "int8"))
    graph = b.graph(b.op("relu", x))
    assert lower_quantized.lower_quantised(graph, CONTEXT).ops[0].kind == "dequantize_linear"


@pytest.mark.parametrize(("expr", "operands", "why"), [
    (X + call("real", arg(1)), ("int8", "int8"), "add of floats where integers are wanted|integers where floats"),
    (call("sqrt", X), ("int32",), "there is no sqrt of integers"),
    (call("nearest", X), ("int8",), "nearest of integers where floats are wanted"),
    (X + 0.5, ("uint8",), "0.5 is no int32"),
    (X + 1, ("int64",), "elements are int64"),
])
def test_lanes_that_do_not_fit(expr, operands, why):
    with pytest.raises(ShapeError, match=why):
        operator("elementwise").infer(Attrs(expr=expr, dtype="int8"), *(TensorType(d, (3,)) for d in operands))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_functions_of_bytes_are_tables(dtype):
    """Equal to the float meaning on all 256 numbers."""
    for kind in ("sigmoid", "tanh", "exp", "gelu", "hard_swish", "silu", "relu", "elu", "sqrt"):
        b = Quantised(1, dtype)
        scale, zero = b.parameters()
        x = b.real(b.input("x", 2, 128, dtype=dtype), scale, zero)
        attrs = {"elu": {"alpha": 1.0}, "gelu": {"approximate": "none"}}.get(kind, {})
        y = b.op(kind, x, **attrs)
        before = b.graph(b.source(b.quantised(b.op("div", y, b.scalar("d", 1.7, "float32")))).inputs[0])
        after = before_layouts(before, CONTEXT)
        assert [op.kind for op in after.ops] == ["lookup"], kind
        fed = {"x": lookup_table.all_values(dtype).reshape(2, 128)}
        np.testing.assert_array_equal(*(next(iter(run(graph, fed).values())) for graph in (before, after)), kind)


def test_a_table_of_integers_and_constants():
    """What has constants only is of integers where integers are wanted."""
    expr = call("rescale_fixed", X * 2**20, 2**30, -3) - call("rescale_fixed", Const(52) * 2**20, 2**30, -2)
    fed = [lookup_table.all_values("int8")]
    exact, table = (lanes.evaluate(expr, fed, "int32", precise) for precise in (False, True))
    np.testing.assert_array_equal(exact, table)
    assert len(set(exact.tolist())) == 256


def test_a_table_is_not_part_of_a_product():
    """What a convolution is quantised to is looked up, not computed again in its epilogue; a clip is."""
    for kind, kinds in (("sigmoid", ["conv2d_integer", "lookup"]), ("relu", ["conv2d_integer"])):
        b = Quantised(3, "int8")
        x = b.real(b.input("x", 1, 4, 6, 6, dtype="int8"), *b.parameters())
        y = b.source(b.quantised(b.op(kind, b.quantised(b.convolution(x, 4, 3, 1, False)))))
        assert [op.kind for op in before_layouts(b.graph(y.inputs[0]), CONTEXT).ops] == kinds


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_what_a_result_is_saturated_to_stays_in_chains(dtype):
    """An operator ends in the limits of its element type, also where its result is stored nowhere."""
    types = {name: TensorType("int32" if name == "y" else dtype, (1, 1, 1, 256)) for name in "xay"}
    ops = (Op("elementwise", Attrs(expr=X * 5 - 100, dtype=dtype), ("x",), ("a",)),
           Op("elementwise", Attrs(expr=X * 3 + 1, dtype="int32"), ("a",), ("y",)))
    before = Graph("chain", ("x",), ("y",), ops, types, {})
    after = before_layouts(before, CONTEXT)
    assert len(after.ops) == 1
    fed = {"x": np.linspace(np.iinfo(dtype).min, np.iinfo(dtype).max, 256).astype(dtype).reshape(1, 1, 1, 256)}
    np.testing.assert_array_equal(run(after, fed)["y"], run(before, fed)["y"])


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_along_any_axis(axis):
    b = Quantised(2, "int8")
    pairs = [(b.scalar("s", scale, "float32"), b.scalar("z", zero, "int8"))
             for scale, zero in ((0.03, 3), (0.004, -128))]
    x = b.real(b.input("x", 2, 5, 3, 4, dtype="int8"), *pairs[0])
    before = b.graph(b.op("quantize_linear", b.op("softmax", x, axis=axis), *pairs[1], axis=0, block=0, dtype="int8"))
    after = before_layouts(before, CONTEXT)
    kinds = [op.kind for op in after.ops]
    assert "softmax_quantised" in kinds and set(kinds) <= {"softmax_quantised", "transpose", "reshape"}
    found, wanted = (next(iter(run(graph, drawn(before)).values())).astype(int) for graph in (after, before))
    assert np.abs(found - wanted).max() <= 1 and len(np.unique(wanted)) > 9


def test_layer_normalisation_between_integers():
    b = Quantised(4, "uint8")
    pairs = [(b.scalar("s", scale, "float32"), b.scalar("z", zero, "uint8")) for scale, zero in ((0.03, 7), (0.02, 99))]
    x = b.real(b.input("x", 2, 5, 24, dtype="uint8"), *pairs[0])
    centred = b.op("sub", x, b.op("reduce_mean", x, axes=(2,), keepdims=True))
    variance = b.op("reduce_mean", b.op("mul", centred, centred), axes=(2,), keepdims=True)
    y = b.op("div", centred, b.op("sqrt", b.op("add", variance, b.scalar("e", 1e-5, "float32"))))
    y = b.op("add", b.op("mul", y, b.const("w", 24)), b.const("c", 24))
    before = b.graph(b.op("quantize_linear", y, *pairs[1], axis=0, block=0, dtype="uint8"))
    after = before_layouts(before, CONTEXT)
    assert [op.kind for op in after.ops] == ["layer_norm_quantised"]
    found, wanted = (next(iter(run(graph, drawn(before)).values())).astype(int) for graph in (after, before))
    assert np.abs(found - wanted).max() <= 1 and len(np.unique(wanted)) > 9


def multiply_by_quantized_multiplier(x: int, multiplier: int, shift: int) -> int:
    """The definition of gemmlowp and TFLite over whole numbers."""
    def doubling_high(a: int, b: int) -> int:
        product = a * b + ((1 << 30) if a * b >= 0 else 1 - (1 << 30))
        return int(product / abs(product) if product else 1) * (abs(product) >> 31)

    left, right = max(shift, 0), max(-shift, 0)
    high = doubling_high(x << left, multiplier)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def test_rescaling_is_that_of_tflite():
    generator = np.random.default_rng(0)
    x = generator.integers(-2**20, 2**20, 4000)
    multiplier, shift = generator.integers(2**30, 2**31, x.size), generator.integers(-31, 11, x.size)
    expected = [multiply_by_quantized_multiplier(*map(int, row)) for row in zip(x, multiplier, shift, strict=True)]
    expr = call("rescale_fixed", X, arg(1), arg(2))
    actual = lanes.evaluate(expr, [a.astype(np.int32) for a in (x, multiplier, shift)], "int32")
    np.testing.assert_array_equal(actual, expected)


def of_onnx(nodes, inputs, constants, outputs=("y",), opset=17):
    graph = import_onnx(model(nodes, inputs, outputs, constants, opset))
    return graph, before_layouts(graph, CONTEXT)


def integers_of(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def test_qlinear_conv():
    """600 products a sum, which float32 does not hold; as ONNX Runtime computes it."""
    x, w = integers_of("uint8", 1, 600, 3, 4), integers_of("int8", 5, 600, 1, 1, seed=1)
    bias, scale = integers_of("int16", 5).astype(np.int32), np.array([0.001, 0.002, 0.0005, 0.003, 0.001], np.float32)
    constants = {"xs": np.float32(0.02), "xz": np.uint8(131), "w": w, "ws": scale, "wz": np.zeros(5, np.int8),
                 "ys": np.float32(0.4), "yz": np.int8(-7), "b": bias}
    _, after = of_onnx([node("QLinearConv", "x xs xz w ws wz ys yz b", "y")], fed({"x": x}), constants)
    assert [op.kind for op in after.ops] == ["conv2d_integer"]
    sums = np.einsum("nihw,oi->nohw", x.astype(np.int64) - 131, w[:, :, 0, 0].astype(np.int64))
    factor = (np.float32(0.02) * scale / np.float32(0.4)).reshape(1, 5, 1, 1)
    sums = (sums + bias.reshape(1, 5, 1, 1)).astype(np.float32)
    expected = np.clip(np.rint(sums * factor) - 7, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(run(after, {"x": x})["y"], expected)


def test_zero_point_of_the_run():
    """A dynamically quantised product: the zero point is an input."""
    a, b = integers_of("uint8", 2, 3, 70), integers_of("uint8", 70, 9, seed=1)
    _, after = of_onnx([node("MatMulInteger", "a b z bz", "y")], fed({"a": a, "z": np.uint8(0)}),
                       {"b": b, "bz": np.uint8(128)})
    assert [op.kind for op in after.ops] == ["matmul_integer"]
    for zero in (0, 255, 117):
        expected = (a.astype(np.int64) - zero) @ (b.astype(np.int64) - 128)
        np.testing.assert_array_equal(run(after, {"a": a, "z": np.array(zero, np.uint8)})["y"], expected)


def test_conv_integer_over_one_axis():
    x, w = integers_of("int8", 2, 3, 9), integers_of("int8", 4, 3, 3, seed=1)
    _, after = of_onnx([node("ConvInteger", "x w xz", "y", pads=[1, 1])], fed({"x": x}), {"w": w, "xz": np.int8(-5)})
    assert "conv2d_integer" in {op.kind for op in after.ops}
    padded = np.pad(x.astype(np.int64) + 5, ((0, 0), (0, 0), (1, 1)))
    expected = sum(np.einsum("niw,oi->now", padded[:, :, k:k + 9], w[:, :, k].astype(np.int64)) for k in range(3))
    np.testing.assert_array_equal(run(after, {"x": x})["y"], expected)


def test_conv_integer_with_a_zero_point_of_the_run():
    """Dynamic quantisation: 400 products a sum, padded with a zero point that is an input."""
    x, w = integers_of("uint8", 1, 100, 3, 4), integers_of("int8", 5, 100, 2, 2, seed=1)
    conv = node("ConvInteger", "x w z", "y", pads=[0, 1, 1, 0])
    _, after = of_onnx([conv], fed({"x": x, "z": np.uint8(0)}), {"w": w})
    assert [op.kind for op in after.ops] == ["elementwise", "conv2d_integer"]
    for zero in (0, 255, 117):
        padded = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (0, 1), (1, 0)))
        expected = sum(np.einsum("nihw,oi->nohw", padded[:, :, i:i + 3, j:j + 4], w[:, :, i, j].astype(np.int64))
                       for i in range(2) for j in range(2))
        actual = run(after, {"x": x, "z": np.array(zero, np.uint8)})["y"]
        np.testing.assert_array_equal(actual, expected)


def test_weights_that_are_quantised_or_turned_in_the_model():
    """What a converter leaves: weights are constants of int8 once the pass has seen them, with a scale each channel."""
    x, w = integers_of("int8", 2, 6), integers_of("int8", 5, 6, seed=1)
    scale = np.linspace(0.01, 0.03, 5, dtype=np.float32)
    constants = {"w": w, "ws": scale, "wz": np.zeros(5, np.int8), "s": np.float32(0.5), "z": np.int8(3)}
    turned = [node("DequantizeLinear", "x s z", "xr"), node("DequantizeLinear", "w ws wz", "wr", axis=0),
              node("Transpose", "wr", "wt", perm=[1, 0]), node("MatMul", "xr wt", "y")]
    _, after = of_onnx(turned, fed({"x": x}), constants)
    assert [op.kind for op in after.ops] == ["matmul_integer"]
    expected = (x.astype(np.float32) - 3) * np.float32(0.5) @ (w * scale[:, None]).T
    np.testing.assert_allclose(run(after, {"x": x})["y"], expected, 1e-5, 1e-5)
    again = [node("DequantizeLinear", "w s z", "wr"), node("QuantizeLinear", "wr ws0 z", "wq"),
             node("QLinearMatMul", "x s z wq ws0 z s z", "y")]
    before, after = of_onnx(again, fed({"x": x.repeat(5, 1)[:, :5]}), {**constants, "ws0": np.float32(2.0)})
    assert [op.kind for op in after.ops] == ["matmul_integer"]
    np.testing.assert_array_equal(*(run(graph, {"x": x.repeat(5, 1)[:, :5]})["y"] for graph in (before, after)))


@pytest.mark.parametrize(("block", "scales", "fits"), [
    (16, (2, 8), True), (17, (2, 8), True), (31, (2, 8), True), (32, (1, 8), True), (2**40, (1, 8), True),
    (-1, (2, 8), False), (0, (2, 8), False), (1, (2, 8), False), (15, (2, 8), False), (33, (2, 8), False),
    (2**31, (2, 8), False), (2**40, (2, 8), False), (16, (2, 7), False), (16, (), False), (16, (2,), False),
    (16, (2, 8, 1), False), (16, (0, 8), False)])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_blocks_that_do_not_fit(block, scales, fits, dtype):
    """Whatever a file says of blocks is refused or right; uint8 here is of 4 bits, which is another importer."""
    q = integers_of(dtype, 32, 8) // (16 if dtype == "uint8" else 1)
    s = np.linspace(0.1, 0.9, int(np.prod(scales)), dtype=np.float32).reshape(scales)
    nodes = [node("DequantizeLinear", "q s", "d", axis=0, block_size=block), node("MatMul", "x d", "y")]
    x = np.ones((3, 32), np.float32)
    try:
        _, after = of_onnx(nodes, fed({"x": x}), {"q": q, "s": s}, opset=21)
    except ModelError:
        assert not fits or (dtype == "int8" and 32 % block)
        return
    assert fits and all(op.attrs.get("block", 0) <= 32 for op in after.ops)
    expected = x @ (q * np.repeat(s, min(block, 32), 0)[:32].astype(np.float64))
    np.testing.assert_allclose(run(after, {"x": x})["y"], expected, 1e-5, 1e-4)  # sums of terms of about 100


def test_numbers_of_a_file_that_are_none():
    """Negative extents whose product fits, and scales whose product or quotient overflows."""
    x, b = np.ones((3, 32), np.float32), np.zeros((8, 2, 8), np.uint8)
    for k, n, block in ((-32, -8, 16), (32, 8, 0), (0, 8, 16), (32, 0, 16)):
        op = node("MatMulNBits", "x b s", "y", domain="com.microsoft", K=k, N=n, bits=4, block_size=block)
        with pytest.raises(ModelError):
            of_onnx([op], fed({"x": x}), {"b": b, "s": np.ones(16, np.float32)})
    for factor in (float("inf"), float("nan"), -1.0):
        with pytest.raises(ShapeError, match="its scales give the factor"):
            multiplier(factor)


def test_a_bias_of_the_run():
    """A bias that is an input is not lost."""
    x, w = integers_of("int8", 1, 3, 4, 4), integers_of("int8", 2, 3, 1, 1, seed=1)
    nodes = [node("DequantizeLinear", "x s", "xr"), node("DequantizeLinear", "w s", "wr"),
             node("Conv", "xr wr b", "y")]
    inputs = {"x": x, "b": np.array([100, -200], np.float32)}
    before, after = of_onnx(nodes, fed(inputs), {"w": w, "s": np.float32(0.5)})
    np.testing.assert_allclose(*(run(graph, inputs)["y"] for graph in (before, after)), 1e-6)


@pytest.mark.parametrize("shape", [(5, 1, 1), (1, 5, 1, 1)])
@pytest.mark.parametrize("by_channel", [False, True])
def test_a_bias_that_is_added_is_part_of_the_sums(shape, by_channel):
    """TVM's importer of ONNX writes a bias as reshape and add. As a real number it would give other halves."""
    x, w = integers_of("int8", 1, 3, 4, 4), integers_of("int8", 5, 3, 1, 1, seed=1)
    bias = np.array([1000, -2000, 300, 7, 0], np.int32)
    scale = np.linspace(0.01, 0.03, 5, dtype=np.float32) if by_channel else np.float32(0.02)
    constants = {"w": w, "s": np.float32(0.5), "ws": scale, "bs": np.float32(0.5) * scale, "bias": bias,
                 "shape": np.array(shape), "ys": np.float32(0.4), "z": np.int8(-3)}
    nodes = [node("DequantizeLinear", "x s", "xr"), node("DequantizeLinear", "w ws", "wr", axis=0),
             node("Conv", "xr wr", "product"), node("DequantizeLinear", "bias bs", "br", axis=0),
             node("Reshape", "br shape", "added"), node("Add", "added product", "sum"),
             node("QuantizeLinear", "sum ys z", "y")]
    before, after = of_onnx(nodes, fed({"x": x}), constants)
    (op,) = after.ops
    np.testing.assert_array_equal(after.constants[op.inputs[2]], bias)
    np.testing.assert_array_equal(*(run(graph, {"x": x})["y"] for graph in (before, after)))


def test_an_output_that_is_a_constant_stays_one():
    """What a quantised network gives whatever it is given: numbers as they are, converted, and moved."""
    constants = {"c": np.int32([1, 2]), "q": np.int8([3, -4]), "s": np.float32(0.5), "z": np.int8(1)}
    nodes = [node("QuantizeLinear", "x s z", "y"), node("Identity", "c", "number"),
             node("DequantizeLinear", "q s z", "real"), node("Abs", "real", "positive"),
             node("QuantizeLinear", "positive s z", "again")]
    outputs = ["y", "number", "real", "positive", "again"]
    proto = model(nodes, {"x": ("float32", [2])}, outputs, constants, 17)
    found = run(before_layouts(import_onnx(proto), CONTEXT), {"x": np.float32([1, 2])})
    for name, wanted in zip(outputs, ([3, 5], [1, 2], [1, -2.5], [1, 2.5], [3, 6]), strict=True):
        np.testing.assert_array_equal(found[name], wanted)
    tvm_megcc.compile(proto, "c")


def test_places_in_a_constant_are_counted_by_the_run():
    """Which extent that is a pass cannot say any more."""
    nodes = [node("DequantizeLinear", "q s z", "real"), node("NonZero", "real", "places"), node("Add", "x n", "y")]
    constants = {"q": np.int8([3, 1, -4]), "s": np.float32(0.5), "z": np.int8(1), "n": np.float32(1)}
    proto = model(nodes, {"x": ("float32", [2])}, {"places": ("int64", None), "y": None}, constants, 17)
    (places, _) = run(before_layouts(import_onnx(proto), CONTEXT), {"x": np.float32([1, 2])}).values()
    np.testing.assert_array_equal(places, [[0, 2]])
    tvm_megcc.compile(proto, "c")


@pytest.mark.parametrize("kind, names", [("ConvInteger", "x w z"), ("MatMulInteger", "x w z"),
                                         ("QLinearConv", "x s z w s i s i")])
@pytest.mark.parametrize("zero", [np.array([True]), np.float32(0.5), np.int64(2**40)])
def test_zero_points_that_are_no_bytes(kind, names, zero):
    constants = {"w": np.ones((1, 1, 4, 4), np.int8), "z": zero, "s": np.float32(1), "i": np.int8(0)}
    with pytest.raises(ModelError, match=rf"{kind} 'y': its zero point, operand 2, is {zero.dtype}"):
        import_onnx(model([node(kind, names, "y")], {"x": ("int8", [1, 1, 4, 4])}, ["y"], constants, 17))
