# SPDX-License-Identifier: Apache-2.0
"""Quantised networks on integers: what the pass makes of them means the same, and no product is left in float."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import assert_golden
from tests.qdq import Quantised, random_network
from tvm_megcc.context import Context
from tvm_megcc.errors import ShapeError
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import X, arg, call
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ir.verify import verify
from tvm_megcc.ops.base import operator
from tvm_megcc.passes import before_layouts, integers
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


def test_golden():
    before = residual_block()
    after = integers.lower_quantised(before, CONTEXT)
    verify(after)
    assert_golden("lower_quantised", graph_text(before) + "\n" + graph_text(before_layouts(before, CONTEXT)))


def test_parameters_that_are_not_known_stay():
    """A scale that is an input, and one of 0: nothing is known to be exact then."""
    b = Quantised(0, "int8")
    x = b.real(b.input("x", 1, 3, 4, 4, dtype="int8"), b.input("s"), b.scalar("z", 0, "int8"))
    graph = b.graph(b.op("relu", x))
    assert [op.kind for op in integers.lower_quantised(graph, CONTEXT).ops] == ["dequantize_linear", "relu"]
    b = Quantised(0, "int8")
    x = b.real(b.input("x", 4, dtype="int8"), b.scalar("s", 0, "float32"), b.scalar("z", 0, "int8"))
    graph = b.graph(b.op("relu", x))
    assert integers.lower_quantised(graph, CONTEXT).ops[0].kind == "dequantize_linear"


@pytest.mark.parametrize(("expr", "operands", "why"), [
    (X + call("real", arg(1)), ("int8", "int8"), "add of reals where integers are wanted|integers where reals"),
    (call("sqrt", X), ("int32",), "there is no sqrt of integers"),
    (call("nearest", X), ("int8",), "nearest of integers where reals are wanted"),
    (X + 0.5, ("uint8",), "0.5 is no int32"),
    (X + 1, ("int64",), "elements are int64"),
])
def test_lanes_that_do_not_fit(expr, operands, why):
    with pytest.raises(ShapeError, match=why):
        operator("elementwise").infer(Attrs(expr=expr, dtype="int8"), *(TensorType(d, (3,)) for d in operands))


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
