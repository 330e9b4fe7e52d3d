# SPDX-License-Identifier: Apache-2.0
"""Rescaled sums by way of fused reals: the same for every sum that can occur."""

import numpy as np
import pytest

from tests.graphs import Builder
from tvm_megcc.context import Context
from tvm_megcc.frontends.fixed_point import multiplier
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import X, arg, call, clip, functions_of, maximum
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.quantization.rescale_real import _Requantized, _search_float_parameters
from tvm_megcc.passes.quantization.step_functions import Steps, search_rounding
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

AVX2 = Context(TARGETS["x86-64-v3"])
WINDOW = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


def network(expr, factors, bias=True, depth=3, dtype="int8", residual=False):
    """A 1x1 convolution whose sums are rescaled: operands 1 and 2 are multipliers and shifts of its channels."""
    b, channels = Builder(3), len(factors)
    w = b.const("w", value=b.generator.integers(-127, 128, (channels, depth, 1, 1)).astype(np.int8))
    more = [b.const("b", value=b.generator.integers(-5000, 5000, channels).astype(np.int32))] if bias else []
    x = b.input("x", 1, depth, 5, 7, dtype="int8")
    y = b.op("conv2d_integer", x, w, *more, groups=1, x_zero=-7, w_zero=0, **WINDOW)
    numbers = np.array([multiplier(float(factor)) for factor in factors], np.int32)
    operands = [b.const(name, value=numbers[:, index].reshape(-1, 1, 1)) for index, name in enumerate(("m", "s"))]
    if residual:
        operands.append(b.input("r", 1, channels, 5, 7, dtype="int8"))
    return b.graph(b.op("elementwise", y, *operands, expr=expr, dtype=dtype))


def rescaled(fn="rescale_fixed"):
    """"apart": as fully connected layers of TFLite have it."""
    if fn == "apart":
        up, down = (call("rescale_once", maximum(each, 0), arg(1), arg(2)) for each in (X, 0 - X))
        return up - down
    return call(fn, X, arg(1), arg(2))


def with_reals(graph, context=AVX2):
    """The convolution as the compiler has it, and its graph."""
    after = before_layouts(graph, context)
    verify(after)
    (op,) = (op for op in after.ops if op.kind == "conv2d_integer")
    return after, op


def every_sum(graph, op, bias: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """For each channel all sums that it can have, some more than once, and the operands."""
    w = graph.constants[op.inputs[1]].astype(np.int64)
    terms = np.sort(np.stack([w * (127 + 7), w * (-128 + 7)]), axis=0)
    least, most = (each.reshape(len(w), -1).sum(axis=1, keepdims=True) for each in terms)
    added = graph.constants[bias].reshape(-1, 1) if bias else 0
    sums = (np.clip(np.arange(least.min(), most.max() + 1)[None], least, most) + added).astype(np.int32)
    return sums, [graph.constants[name].reshape(-1, 1) for name in op.epilogue_inputs]


LIMITS = [(-128, 127, -128), (0, 255, 0), (-128, 127, 3), (-60, 127, -60), (-128, 90, -101), (-3, 127, 20)]


@pytest.mark.parametrize("fn", ["rescale_fixed", "rescale_once", "apart"])
@pytest.mark.parametrize(("low", "high", "zero"), LIMITS)
def test_every_sum_is_rescaled_alike(fn, low, high, zero):
    dtype = "uint8" if high > 127 else "int8"
    # What goes away from zero on both sides has a function of its own.
    expected = "nearest_odd" if fn == "apart" or (fn == "rescale_fixed" and low < zero) else "nearest_fused"
    factors = 2.0**np.random.default_rng(high - zero).uniform(-10, -5, 4)
    if expected == "nearest_fused" or fn == "apart":
        factors[3] = 2.0**-8  # Halves. The first of two roundings has them go up, also from below zero.
    for bias in (True, False):
        graph = network(clip(rescaled(fn) + zero, low, high), factors, bias, dtype=dtype)
        after, op = with_reals(graph)
        rescaling = {"nearest_odd", "nearest_fused", "rescale_fixed", "rescale_down", "rescale_once"}
        assert functions_of(op.epilogue) & rescaling == {expected}
        before = next(each for each in graph.ops if each.kind == "conv2d_integer")
        sums, _ = every_sum(graph, before, before.inputs[2] if bias else "")
        moved, operands = every_sum(after, op, op.inputs[2] if len(op.own_inputs) > 2 else "")
        wanted = lanes.evaluate(graph.ops[-1].attrs.expr, [
            sums, *(graph.constants[name].reshape(-1, 1) for name in graph.ops[-1].inputs[1:])], dtype)
        found = lanes.evaluate(op.epilogue, [moved, *operands], dtype)
        np.testing.assert_array_equal(found, wanted)
        assert len(np.unique(wanted)) > 20


def test_within_the_sum_of_a_residual():
    expr = call("nearest", call("real", clip(rescaled() + 5, -128, 127)) * 0.7 + call("real", arg(3)) * 0.31)
    graph = network(expr, [0.001, 0.004, 0.02], residual=True)
    after, op = with_reals(graph)
    assert "nearest_odd" in functions_of(op.epilogue) and len(op.epilogue_inputs) == 4
    generator = np.random.default_rng(0)
    feeds = {name: generator.integers(-128, 128, graph.types[name].shape).astype(np.int8) for name in graph.inputs}
    np.testing.assert_array_equal(*(next(iter(run(each, feeds).values())) for each in (graph, after)))


@pytest.mark.parametrize("stack", [(), (3,), (2, 3)])
@pytest.mark.parametrize("turned", [0, 1])
def test_products_with_several_matrices(stack, turned):
    b = Builder(3)
    w = b.const("w", value=b.generator.integers(-127, 128, (*stack, *((4, 6) if turned else (6, 4)))).astype(np.int8))
    x = b.input("x", *stack, 5, 6, dtype="int8")
    y = b.op("matmul_integer", x, w, trans_a=0, trans_b=turned, a_zero=-7, b_zero=3)
    numbers = np.array([multiplier(factor) for factor in (0.004, 0.002, 0.007, 0.003)], np.int32)
    operands = [b.const(name, value=numbers[:, index]) for index, name in enumerate(("m", "s"))]
    graph = b.graph(b.op("elementwise", y, *operands, expr=clip(rescaled(), -100, 127), dtype="int8"))
    after = before_layouts(graph, AVX2)
    assert any(op.epilogue is not None and "nearest_odd" in functions_of(op.epilogue) for op in after.ops)
    feeds = {"x": b.generator.integers(-128, 128, graph.types["x"].shape).astype(np.int8)}
    np.testing.assert_array_equal(*(next(iter(run(each, feeds).values())) for each in (graph, after)))


@pytest.mark.parametrize("bias", [True, False])
def test_one_factor_for_all_channels_stays_one(bias):
    graph = network(clip(rescaled(), 0, 127), [0.003] * 5, bias)
    after, op = with_reals(graph)
    assert [after.types[name].size for name in op.epilogue_inputs] == [1, 1]
    feeds = {"x": np.random.default_rng(0).integers(-128, 128, (1, 3, 5, 7)).astype(np.int8)}
    np.testing.assert_array_equal(*(next(iter(run(each, feeds).values())) for each in (graph, after)))


def test_channels_that_are_never_more_than_zero_by_such_a_factor():
    """The reader makes a multiplier of 0 of what is less than 2^-32."""
    _, op = with_reals(network(clip(rescaled(), 0, 127), [2.0**-40, 0.003, 2.0**-32]))
    assert "nearest_fused" in functions_of(op.epilogue)


@pytest.mark.parametrize("why", ["target", "wide", "wraps", "to the left", "halves", "operands"])
def test_what_stays(why):
    expr, factors, depth, context, dtype = clip(rescaled() + 3, -128, 127), [0.004, 0.002], 3, AVX2, "int8"
    if why == "target":
        context = Context(TARGETS["x86-64"])
    elif why == "wide":
        expr, dtype = rescaled(), "int16"
    elif why == "wraps":
        depth = 400_000
    elif why == "to the left":
        factors = [0.004, 1.5]
    elif why == "halves":
        factors = [0.004, 2.0**-8]
    else:
        expr = clip(call("rescale_fixed", X + 1, arg(1), arg(2)), -128, 127)
    _, op = with_reals(network(expr, factors, depth=depth, dtype=dtype), context)
    assert not functions_of(op.epilogue) & {"nearest_odd", "nearest_fused"}


def test_steps():
    """A function that stands for another only where it has the same steps, between the least and the greatest."""
    levels, ends = np.arange(-3, 6)[None], (np.array([[-40]]), np.array([[43]]))
    steps = Steps.of(lambda x: x // 10, levels, levels * 10.0 + 2, *ends)
    assert steps.are_of(lambda x: x // 10) and steps.reached[0, 0] == -30 and np.isinf(steps.reached[0, -1])
    assert not steps.are_of(lambda x: (x + 1) // 10) and not steps.are_of(lambda x: (x - 1) // 10)
    assert Steps.of(lambda x: x // 10, levels, levels * 10.0 + 30, *ends) is None  # a guess that is too far off
    # Nothing is near a hundredth that has steps as wide as a tenth.
    assert search_rounding(steps, np.array([[0.1]], np.float32))
    assert not search_rounding(steps, np.array([[0.01]], np.float32))


def test_what_is_added_to_sums_does_not_wrap():
    """Biases take up the moves, and int32 has to have room for both."""
    inside = _Requantized(rescaled(), rescaled(), 0, -128, 127)
    numbers = [np.array([number]) for number in multiplier(0.0041)]
    found = _search_float_parameters(inside, *numbers, np.array([-2**30]), np.array([2**30]))
    assert found is not None and found.operands[0][0]
    for least, most in ((-2**31, 0), (0, 2**31 - 1)):
        assert _search_float_parameters(inside, *numbers, np.array([least]), np.array([most])) is None
