# SPDX-License-Identifier: Apache-2.0
"""Each pass on a graph made for it: the text of the result, and that the result computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import Builder, assert_golden
from tvm_megcc.codegen.plan import plan_kernels, plan_memory
from tvm_megcc.compiler import compile_graph, run_passes
from tvm_megcc.errors import InternalError, ModelError
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import absorb, elementwise, epilogue, layout
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

ARM64 = TARGETS["arm64"]


def batch_norm(b: Builder, x: str) -> str:
    channels = b.types[x].shape[1]
    scaled = b.op("mul", x, b.const(f"{x}.s", 1, channels, 1, 1))
    return b.op("add", scaled, b.const(f"{x}.t", 1, channels, 1, 1))


def conv_bn_relu():
    b = Builder()
    return b.graph(b.op("relu", batch_norm(b, b.conv(b.input("x", 1, 4, 6, 6), 8))))


def padded_conv():
    b = Builder()
    x = b.op("pad", b.input("x", 1, 4, 6, 6), mode="constant", before=(0, 0, 0, 1), after=(0, 0, 2, 1), value=0.0)
    return b.graph(b.conv(x, 8, stride=2))


def silu_residual():
    b = Builder()
    x = b.input("x", 1, 16, 6, 6)
    y = b.conv(x, 16)
    y = b.op("mul", y, b.op("sigmoid", y))
    return b.graph(b.op("add", b.conv(y, 16, kernel=1), y))


def shared_value():
    """The convolution's result is an output too: nothing may be fused into it."""
    b = Builder()
    y = b.conv(b.input("x", 1, 4, 6, 6), 8)
    return b.graph(y, b.op("relu", y))


def scalar_chain():
    b = Builder()
    x = b.input("x", 2, 3, 5)
    y = b.op("mul", b.op("add", x, b.const("three", value=np.float32(3))), b.const("half", 1, value=np.float32([0.5])))
    return b.graph(b.op("mul", y, x))


def two_branches():
    b = Builder()
    x = b.conv(b.input("x", 1, 3, 8, 8), 16)
    y = b.op("concat", b.conv(x, 16), b.conv(x, 32, kernel=1), axis=1)
    return b.graph(b.op("reshape", b.conv(y, 8, kernel=1), shape=(1, -1)))


CASES = {
    "absorb_scales": (absorb.absorb_scales, conv_bn_relu),
    "absorb_pads": (absorb.absorb_pads, padded_conv),
    "fuse_elementwise": (elementwise.fuse_elementwise, scalar_chain),
    "fuse_silu": (elementwise.fuse_elementwise, silu_residual),
    "fuse_epilogues": (lambda g, t: epilogue.fuse_epilogues(elementwise.fuse_elementwise(g, t), t), silu_residual),
    "fuse_nothing_into_outputs": (
        lambda g, t: epilogue.fuse_epilogues(elementwise.fuse_elementwise(g, t), t), shared_value),
    "choose_layouts": (layout.choose_layouts, two_branches),
}


@pytest.mark.parametrize("name", CASES)
def test_pass(name: str):
    transform, make = CASES[name]
    before = make()
    after = transform(before, ARM64)
    verify(after)
    assert_golden(name, graph_text(before) + "\n" + graph_text(after))
    generator = np.random.default_rng(1)
    inputs = {n: generator.standard_normal(before.types[n].shape).astype(np.float32) for n in before.inputs}
    expected, actual = run(before, inputs), run(after, inputs)
    for output in before.outputs:
        np.testing.assert_allclose(actual[output], expected[output], rtol=1e-5, atol=1e-5)


def test_concat_is_computed_in_place():
    graph = run_passes(two_branches(), ARM64)
    plan = plan_kernels(graph, ARM64)
    assert not any(step.choice.op.kind == "concat" for step in plan.steps)
    planned = plan_memory(plan)
    concat = next(op for op in graph.ops if op.kind == "concat")
    first, second = (planned.offsets[name] for name in concat.inputs)
    assert second - first == 16 * 8 * 8 * 4


def test_an_input_is_not_overwritten_by_an_output():
    b = Builder()
    graph = run_passes(b.graph(b.op("relu", b.input("x", 4, 5))), ARM64)
    planned = plan_memory(plan_kernels(graph, ARM64))
    assert planned.offsets["x"] != planned.offsets[graph.outputs[0]]


def test_a_view_of_an_input_as_output_is_copied():
    b = Builder()
    graph = run_passes(b.graph(b.op("reshape", b.input("x", 4, 5), shape=(20,))), ARM64)
    assert [s.choice.op.kind for s in plan_kernels(graph, ARM64).steps] == ["copy"]


def test_verifier_names_what_is_wrong():
    graph = conv_bn_relu()
    broken = graph.with_(ops=graph.ops[1:])
    with pytest.raises(InternalError, match="before it is defined"):
        verify(broken)


def test_an_output_that_is_an_input_is_refused():
    b = Builder()
    x = b.input("x", 4)
    graph = b.graph(b.op("relu", x), x)
    with pytest.raises(ModelError, match="output 'x' is an input"):
        compile_graph(graph, (ARM64,))
