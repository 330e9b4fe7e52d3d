# SPDX-License-Identifier: Apache-2.0
"""Channels that are one number everywhere go, with their filters, where nothing is changed by that."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import Builder
from tests.qdq import Quantised
from tests.unit.passes.test_integers import drawn
from tvm_megcc.context import Context
from tvm_megcc.ir.expr import X, arg, call, clip
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.quantization.dead_channels import drop_dead_channels
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])


def conv(b: Builder, x: str, dead, bias: float, channels: int = 8, kernel: int = 1, depthwise: bool = False,
         pad: int | None = None) -> str:
    """A convolution with filters of zeros, whose bias is given."""
    inputs = b.types[x].shape[1]
    name = f"c{len(b.ops)}"
    w = b.const(f"{name}.w", channels, 1 if depthwise else inputs, kernel, kernel)
    values = b.generator.standard_normal(channels).astype(np.float32)
    if depthwise:  # keeps the sign, and zeros
        b.constants[w], values = np.abs(b.constants[w]), np.zeros_like(values)
    values[list(dead)] = bias
    b.constants[w][list(dead)] = 0
    pad = kernel // 2 if pad is None else pad
    return b.op("conv2d", x, w, b.const(f"{name}.b", value=values), name=name, strides=(1, 1), pads=(pad,) * 4,
                dilations=(1, 1), groups=channels if depthwise else 1)


def channels_of(graph) -> list[int]:
    """Of the results of all convolutions, in their order."""
    return [graph.types[op.outputs[0]].shape[1] for op in graph.ops if op.kind.startswith("conv2d")]


#: Bias of the dead filters, kernel and padding of the depthwise convolution behind, kernel of the last one -> channels.
ROWS = [(-1.0, 3, 1, 3, [5, 5, 4]),  # 0 after relu, as the padding
        (0.7, 3, 1, 1, [8, 8, 4]),  # another number, which the padding cuts off
        (0.7, 3, 0, 1, [5, 5, 4]),  # no padding: the last bias takes it
        (0.7, 1, 0, 3, [8, 8, 4])]  # padding further behind


@pytest.mark.parametrize("row", ROWS)
def test_floats(row):
    bias, kernel, pad, last, wanted = row
    b = Builder(3)
    x = b.op("relu", conv(b, b.input("x", 2, 3, 7, 6), (0, 3, 7), bias))
    x = b.op("relu", conv(b, x, (), 0, kernel=kernel, pad=pad, depthwise=True))
    before = b.graph(conv(b, b.op("max_pool", x, kernel=(2, 2), strides=(1, 1), pads=(0, 0, 1, 1), dilations=(1, 1),
                                  ceil=False), (), 0, 4, last))
    after = drop_dead_channels(before, CONTEXT)
    verify(after)
    assert channels_of(after) == wanted
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 3, 7, 6)).astype(np.float32)}
    np.testing.assert_allclose(*(next(iter(run(graph, feeds).values())) for graph in (before, after)), 1e-5, 1e-5)


def test_a_reader_without_a_bias():
    """It has one afterwards, of as many numbers as its result has channels."""
    b = Builder(4)
    x = conv(b, b.input("x", 1, 3, 5, 5), (0, 3, 7), 0.5)
    before = b.graph(b.op("conv2d", x, b.const("w", 4, 8, 3, 3), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1),
                          groups=1))
    after = drop_dead_channels(before, CONTEXT)
    verify(after)
    assert channels_of(after) == [5, 4]
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)}
    np.testing.assert_allclose(*(next(iter(run(graph, feeds).values())) for graph in (before, after)), 1e-5, 1e-5)


def test_sums_of_two_branches():
    """A channel goes from both branches, or from neither; from none that is an output."""
    b = Builder(1)
    x = b.input("x", 1, 3, 5, 5)
    one, other = conv(b, x, (0, 1, 2), 0.5), conv(b, x, (1, 2, 5), 0.25)
    scaled = b.op("mul", b.op("add", one, other), b.const("s", 1, 8, 1, 1))
    last = conv(b, scaled, (0,), 0, 4)
    for outputs, wanted in (((last,), [6, 6, 4]), ((last, one), [8, 8, 4])):
        before = b.graph(*outputs)
        after = drop_dead_channels(before, CONTEXT)
        verify(after)
        assert channels_of(after) == wanted
        feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)}
        for name, expected in run(before, feeds).items():
            np.testing.assert_allclose(run(after, feeds)[name], expected, 1e-5, 1e-5)


def test_all_dead():
    b = Builder(1)
    before = b.graph(conv(b, conv(b, b.input("x", 1, 3, 5, 5), range(8), 0.5), (), 0, 4))
    after = drop_dead_channels(before, CONTEXT)
    assert channels_of(after) == [1, 4]
    feeds = {"x": np.ones((1, 3, 5, 5), np.float32)}
    np.testing.assert_allclose(*(next(iter(run(graph, feeds).values())) for graph in (before, after)), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers(dtype):
    """Bit for bit; a result of 0 is the padding of the next."""
    for seed in range(6):
        b = Quantised(seed, dtype)
        x = b.real(b.input("x", 1, 4, 6, 6, dtype=dtype), *b.parameters())
        for depthwise in (False, True, False, False):
            y = b.convolution(x, 12, 3, 1, depthwise)
            if not depthwise:
                w, bias = (b.source(name).inputs[0] for name in (*b.ops[-1].inputs[1:], "")[:2]) \
                    if len(b.ops[-1].inputs) > 2 else (b.source(b.ops[-1].inputs[1]).inputs[0], "")
                b.constants[w][:5] = 0
                if bias:
                    b.constants[bias][:5] = -np.arange(5)
            x = b.quantised(b.op("relu", y))
        before = b.graph(b.source(x).inputs[0])
        inputs = drawn(before)
        pruned, whole = before_layouts(before, CONTEXT), run(before, inputs)
        verify(pruned)
        assert min(channels_of(pruned)) < 12
        for name, expected in whole.items():
            steps = np.abs(run(pruned, inputs)[name].astype(int) - expected)
            assert steps.max() <= 1 and steps.sum() <= 1 + expected.size // 100


def test_tables_between():
    """A table gives one number for a channel that is one number."""
    b = Builder(2)
    window = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "groups": 1, "w_zero": 0}
    w = b.const("w", value=b.generator.integers(-127, 128, (9, 4, 1, 1)).astype(np.int8))
    b.constants[w][2:8] = 0
    bias = b.const("bias", value=b.generator.integers(-3000, 3000, 9).astype(np.int32))
    x = b.op("conv2d_integer", b.input("x", 2, 4, 5, 6, dtype="int8"), w, bias, x_zero=-7, **window)
    x = b.op("elementwise", x, expr=clip(call("rescale_down", X, 1518500250, -6) - 9, -128, 127), dtype="int8")
    x = b.op("lookup", x, b.const("table", value=b.generator.integers(-128, 128, 256).astype(np.int8)))
    last = b.const("last", value=b.generator.integers(-127, 128, (5, 9, 1, 1)).astype(np.int8))
    before = b.graph(b.op("conv2d_integer", x, last, x_zero=3, **window))
    after = drop_dead_channels(before, CONTEXT)
    verify(after)
    assert channels_of(after) == [3, 5]
    feeds = {"x": np.random.default_rng(0).integers(-128, 128, (2, 4, 5, 6)).astype(np.int8)}
    np.testing.assert_array_equal(*(next(iter(run(graph, feeds).values())) for graph in (before, after)))


@pytest.mark.parametrize("trans_b", [0, 1])
def test_pools_and_products_behind(trans_b):
    """Means of a channel that is one number are that number, and a product with a matrix takes it into its bias."""
    b = Builder(2)
    w = b.const("w", value=b.generator.integers(-127, 128, (9, 4, 1, 1)).astype(np.int8))
    b.constants[w][2:8] = 0
    bias = b.const("bias", value=b.generator.integers(-3000, 3000, 9).astype(np.int32))
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    x = b.op("conv2d_integer", b.input("x", 2, 4, 5, 6, dtype="int8"), w, bias, groups=1, x_zero=-7, w_zero=0, **window)
    x = b.op("elementwise", x, expr=clip(call("rescale_down", X, 1518500250, -6) - 9, -128, 127), dtype="int8")
    x = b.op("sum_pool_integer", x, kernel=(5, 6), ceil=False, x_zero=0, **window)
    x = b.op("elementwise", x, expr=clip(call("rescale_once", X, 1145324612, -5), -128, 127), dtype="int8")
    matrix = b.const("m", value=b.generator.integers(-127, 128, (3, 9) if trans_b else (9, 3)).astype(np.int8))
    before = b.graph(b.op("matmul_integer", b.op("reshape", x, shape=(2, 9)), matrix, a_zero=-9, b_zero=4, trans_a=0,
                          trans_b=trans_b))
    after = drop_dead_channels(before, CONTEXT)
    verify(after)
    assert channels_of(after) == [3]
    feeds = {"x": np.random.default_rng(0).integers(-128, 128, (2, 4, 5, 6)).astype(np.int8)}
    np.testing.assert_array_equal(*(next(iter(run(graph, feeds).values())) for graph in (before, after)))


@pytest.mark.parametrize("rescale", ["rescale_down", "rescale_fixed", "rescale_once"])
def test_biases_of_filters_of_zeros(rescale):
    """Those of up to 2^30 become small ones with the same result; others stay, and what reads a factor twice, too."""
    b = Builder(2)
    w = b.const("w", value=b.generator.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8))
    b.constants[w][1:5] = 0
    b.constants[w][5, :2] = 0  # but not the rest
    biases = np.array([3000, 2**30 + 64, -2**30, 900, 2**29 - 1, -2**30], np.int32)
    factors = np.array([1518500250, 1320764593, 2147483647, 1518500250, 1300000001, 1518500250]).astype(np.int32)
    x = b.op("conv2d_integer", b.input("x", 2, 4, 5, 6, dtype="int8"), w, b.const("bias", value=biases), groups=1,
             x_zero=-7, w_zero=0, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1))
    m = b.const("m", value=factors.reshape(6, 1, 1))
    s = b.const("s", value=np.array([-6, -27, -30, -8, -20, -25], np.int32).reshape(6, 1, 1))
    rescaled = call(rescale, X, arg(1), arg(2))
    twice = b.op("elementwise", x, m, s, expr=clip(rescaled + arg(2), -128, 127), dtype="int8")
    x = b.op("elementwise", x, m, s, expr=clip(rescaled - 9, -128, 127), dtype="int8")
    feeds = {"x": np.random.default_rng(0).integers(-128, 128, (2, 4, 5, 6)).astype(np.int8)}
    for output, wanted in ((x, [3000, 8 * 5, 8 * -1, 900, 8 * 310, -2**30]), (twice, biases.tolist())):
        before = b.graph(output)
        after = before_layouts(before, Context(TARGETS["cortex-m4"]))
        verify(after)
        assert [after.constants[op.inputs[2]].tolist() for op in after.ops if op.kind == "conv2d_integer"] == [wanted]
        np.testing.assert_array_equal(*(next(iter(run(graph, feeds).values())) for graph in (before, after)))
