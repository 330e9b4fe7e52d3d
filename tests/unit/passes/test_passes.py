# SPDX-License-Identifier: Apache-2.0
"""Each pass on a graph made for it: the text of the result, and that the result computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import Builder, assert_golden
from tvm_megcc import passes
from tvm_megcc.codegen.memory.planner import plan_memory
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import schedule
from tvm_megcc.passes.canonicalize import means, positions, split_elementwise, tied_embeddings, transposes
from tvm_megcc.passes.fusion import absorb, elementwise, epilogue
from tvm_megcc.passes.fusion import channel_shuffle as channels
from tvm_megcc.passes.fusion.attention.fuse import fuse_attention
from tvm_megcc.passes.fusion.attention.masks import mask_shape
from tvm_megcc.passes.layout import choose
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

ARM64 = Context(TARGETS["arm64"])


def batch_norm(b: Builder, x: str) -> str:
    channels = b.types[x].shape[1]
    scaled = b.op("mul", x, b.const(f"{x}.s", 1, channels, 1, 1))
    return b.op("add", scaled, b.const(f"{x}.t", 1, channels, 1, 1))


def conv_bn_relu():
    b = Builder()
    return b.graph(b.op("relu", batch_norm(b, b.conv(b.input("x", 1, 4, 6, 6), 8))))


def dense_bn_relu():
    """A fully connected layer as exporters write it, whose batch norm is over columns."""
    b = Builder()
    y = b.op("matmul", b.input("x", 2, 4), b.const("w", 8, 4), b.const("b", 8), trans_a=0, trans_b=1)
    y = b.op("div", b.op("mul", y, b.const("s", 8)), b.const("half", value=np.float32(0.5)))
    y = b.op("relu", b.op("sub", y, b.const("t", 8)))
    return b.graph(b.op("add", b.const("u", 1, 3), b.op("matmul", y, b.const("v", 8, 3), trans_a=0, trans_b=0)))


def conv_of_one_place():
    b = Builder()
    return b.graph(b.op("add", b.conv(b.input("x", 1, 4, 1, 1), 8, kernel=1), b.const("t", 1, 8, 1, 1)))


def dense_of_one_row():
    b = Builder()
    return b.graph(b.op("add", b.op("matmul", b.input("x", 1, 4), b.const("w", 4, 8), trans_a=0, trans_b=0),
                        b.const("t", 1, 8)))


def tied_weights():
    """Two products by one matrix: each takes its offset, but a copy of the matrix for a scale would be a second one."""
    b = Builder()
    x, w = b.input("x", 2, 8), b.const("w", 8, 8)
    y = b.op("add", b.op("matmul", x, w, trans_a=0, trans_b=0), b.const("t", 8))
    return b.graph(b.op("mul", b.op("matmul", y, w, trans_a=0, trans_b=0), b.const("s", 8)))


def embedding_and_head(dtype: str, trans_b: int):
    """A gather of an embedding's rows, and a product with the same matrix in float32, or with its transpose."""
    b = Builder()
    table = b.const("table", value=np.random.default_rng(3).standard_normal((8, 4)).astype(dtype))
    rows = b.op("gather", table, b.const("tokens", value=np.array([[7, -8]])), axis=0)
    x = rows if dtype == "float32" else b.op("cast", rows, dtype="float32")
    head = b.constants["table"].astype(np.float32)
    w = b.const("w", value=head if trans_b else np.ascontiguousarray(head.T))
    return b.graph(b.op("matmul", b.op("add", x, b.input("y", 4)), w, trans_a=0, trans_b=trans_b))


def embedding_and_another_head():
    graph = embedding_and_head("float32", 1)
    graph.constants["w"][3, 1] += 1
    return graph


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


def shuffled_units():
    """A grouped convolution, a shuffle, then two branches whose depthwise convolutions the permutation passes."""
    b = Builder()
    y = b.conv(b.input("x", 1, 8, 6, 6), 12, kernel=1, groups=2)
    y = b.op("transpose", b.op("reshape", y, shape=(1, 2, 6, 6, 6)), perm=(0, 2, 1, 3, 4))
    y = b.op("reshape", y, shape=(1, 12, 6, 6))
    first = b.op("prelu", b.conv(y, 12, groups=12), b.const("slope", 12, 1, 1))
    second = b.op("mul", b.conv(y, 12, kernel=5, groups=12), y)
    return b.graph(b.op("concat", b.conv(first, 4, kernel=1), b.conv(second, 4, kernel=1), axis=1))


def shuffle_before_groups():
    """The groups behind the shuffle mix the channels of those before it: it stays."""
    b = Builder()
    y = b.conv(b.input("x", 1, 8, 6, 6), 12, kernel=1, groups=2)
    y = b.op("transpose", b.op("reshape", y, shape=(1, 2, 6, 6, 6)), perm=(0, 2, 1, 3, 4))
    return b.graph(b.conv(b.op("reshape", y, shape=(1, 12, 6, 6)), 4, kernel=1, groups=2))


def map_of_branches():
    """What is computed of a concat, with a residual: each branch's convolution takes its half."""
    b = Builder()
    x = b.input("x", 1, 8, 6, 6)
    y = b.op("concat", b.conv(x, 3), b.conv(x, 5), axis=1)
    return b.graph(b.op("prelu", batch_norm(b, b.op("add", y, x)), b.const("slope", 8, 1, 1)))


def softmax_of_channels():
    b = Builder()
    y = b.op("transpose", b.input("x", 2, 3, 4, 5), perm=(0, 2, 3, 1))
    return b.graph(b.op("transpose", b.op("softmax", y, axis=3), perm=(0, 3, 1, 2)))


def flattened_softmax_of_channels():
    """As importers write softmax of old operator sets: over a matrix."""
    b = Builder()
    y = b.op("reshape", b.op("transpose", b.input("x", 2, 3, 4, 5), perm=(0, 2, 3, 1)), shape=(40, 3))
    y = b.op("reshape", b.op("softmax", y, axis=1), shape=(2, 4, 5, 3))
    return b.graph(b.op("transpose", y, perm=(0, 3, 1, 2)))


def softmax_of_rows():
    """The second transpose does not undo the first."""
    b = Builder()
    y = b.op("transpose", b.input("x", 2, 3, 4, 5), perm=(0, 2, 3, 1))
    return b.graph(b.op("transpose", b.op("softmax", y, axis=3), perm=(0, 2, 3, 1)))


def masked_attention():
    """As exporters write it: heads are a transpose, keys are turned over, a mask of the run is added."""
    b = Builder()
    q, k, v = (b.op("reshape", b.input(name, 2, 16, 96), shape=(2, 16, 3, 32)) for name in "qkv")
    q, v = (b.op("transpose", x, perm=(0, 2, 1, 3)) for x in (q, v))
    y = b.op("matmul", q, b.op("transpose", k, perm=(0, 2, 3, 1)), trans_a=0, trans_b=0)
    y = b.op("div", y, b.const("root", value=np.float32(4)))
    y = b.op("softmax", b.op("add", y, b.input("mask", 2, 1, 1, 16)), axis=3)
    y = b.op("transpose", b.op("matmul", y, v, trans_a=0, trans_b=0), perm=(0, 2, 1, 3))
    return b.graph(b.op("reshape", y, shape=(2, 16, 96)))


def causal_attention_of_one_tensor():
    """Queries, keys and values are parts of one tensor; a constant hides later keys."""
    b = Builder()
    x = b.op("transpose", b.input("x", 1, 16, 3, 2, 32), perm=(2, 0, 3, 1, 4))
    q, k, v = (b.op("gather", x, b.const(f"i{i}", value=np.array(i)), axis=0) for i in range(3))
    y = b.op("mul", b.op("matmul", q, k, trans_a=0, trans_b=1), b.const("scale", value=np.float32(0.25)))
    mask = np.where(np.tri(16, dtype=bool), 0, -np.inf).astype(np.float32)
    y = b.op("softmax", b.op("add", y, b.const("mask", value=mask)), axis=-1)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0))


def attention_in_groups():
    """Four heads of queries look at two of keys; what each may see is a condition."""
    b = Builder()
    k, v = b.input("k", 2, 2, 24, 16), b.input("v", 2, 2, 24, 16)
    q = b.op("reshape", b.input("q", 2, 4, 6, 16), shape=(2, 2, 12, 16))
    y = b.op("reshape", b.op("matmul", q, k, trans_a=0, trans_b=1), shape=(2, 4, 6, 24))
    allowed = b.op("greater", b.input("x", 2, 1, 6, 24), b.const("zero", value=np.float32(0)))
    y = b.op("where", allowed, y, b.const("no", value=np.float32(-1e38)))
    y = b.op("reshape", b.op("softmax", y, axis=3), shape=(2, 2, 12, 24))
    return b.graph(b.op("reshape", b.op("matmul", y, v, trans_a=0, trans_b=0), shape=(2, 4, 6, 16)))


def attention_whose_weights_are_read():
    b = Builder()
    q, k, v = (b.input(name, 1, 2, 16, 32) for name in "qkv")
    y = b.op("softmax", b.op("matmul", q, k, trans_a=0, trans_b=1), axis=3)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0), y)


def attention_whose_mask_is_scaled():
    """The number is a factor of the mask too."""
    b = Builder()
    q, k, v = (b.input(name, 1, 2, 16, 32) for name in "qkv")
    y = b.op("add", b.op("matmul", q, k, trans_a=0, trans_b=1), b.input("mask", 1, 1, 1, 16))
    y = b.op("softmax", b.op("mul", y, b.const("scale", value=np.float32(0.25))), axis=3)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0))


def attention_as_onnx_defines_it():
    """The function of the operator Attention: keys go through a reshape and back, and a choice that never is made."""
    b = Builder()
    q, k, v = (b.input(name, 1, 2, 16, 32) for name in "qkv")
    k = b.op("reshape", b.op("reshape", k, shape=(1, 2, 1, 16, 32)), shape=(1, 2, 16, 32))
    y = b.op("softmax", b.op("matmul", q, k, trans_a=0, trans_b=1), axis=3)
    y = b.op("where", b.const("none", value=np.zeros((1, 1, 16, 1), bool)), b.const("zero", value=np.float32(0)), y)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0))


def attention_with_lines_of_zeros():
    """As before, but the choice is made for one query."""
    b = Builder()
    q, k, v = (b.input(name, 1, 2, 16, 32) for name in "qkv")
    y = b.op("softmax", b.op("matmul", q, k, trans_a=0, trans_b=1), axis=3)
    first = np.arange(16).reshape(1, 1, 16, 1) == 0
    y = b.op("where", b.const("first", value=first), b.const("zero", value=np.float32(0)), y)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0))


def attention_of_queries_without_keys(other: bool = False):
    """As the function of Attention has it from operator set 23 on: zeros where the mask hides all keys; other: there is
    a second mask, which may hide those that are left."""
    b = Builder()
    q, k, v, mask = (b.input(name, 1, 2, 16, width) for name, width in (*((name, 32) for name in "qkv"), ("m", 16)))
    lowest, zero = b.const("lowest", value=np.float32(-np.inf)), b.const("zero", value=np.float32(0))
    y = b.op("add", b.op("matmul", q, k, trans_a=0, trans_b=1), mask)
    y = b.op("softmax", b.op("add", y, b.input("o", 1, 2, 16, 16)) if other else y, axis=3)
    hidden = b.op("equal", b.op("reduce_max", mask, axes=(3,), keepdims=True), lowest)
    return b.graph(b.op("matmul", b.op("where", hidden, zero, y), v, trans_a=0, trans_b=0))


def attention_guarded_from_nan(number: float = 0):
    """As PyTorch writes it with a mask: a softmax that is not a number, of nothing but -inf, becomes zeros."""
    b = Builder()
    q, k, v, mask = (b.input(name, 1, 2, 16, width) for name, width in (*((name, 32) for name in "qkv"), ("m", 16)))
    y = b.op("softmax", b.op("add", b.op("matmul", q, k, trans_a=0, trans_b=1), mask), axis=3)
    y = b.op("where", b.op("is_nan", y), b.const("number", value=np.float32(number)), y)
    return b.graph(b.op("matmul", y, v, trans_a=0, trans_b=0))


def attention_of_scaled_operands():
    """As PyTorch writes it: both operands get the root of the factor; values get a number that is not one of scores."""
    b = Builder()
    root = b.const("root", value=np.float32(0.5))
    q, k, v = (b.input(name, 1, 2, 16, 32) for name in "qkv")
    k = b.op("mul", b.op("transpose", k, perm=(0, 1, 3, 2)), root)
    y = b.op("softmax", b.op("matmul", b.op("mul", q, root), k, trans_a=0, trans_b=0), axis=3)
    return b.graph(b.op("matmul", y, b.op("mul", v, root), trans_a=0, trans_b=0))


def fused(graph, target):
    return epilogue.fuse_epilogues(elementwise.fuse_elementwise(graph, target), target)


def positions_of_two_layers():
    """Both layers make positions of constants with the same bytes, and rectify the input. One also counts from 1."""
    b, layers = Builder(), []
    x = b.input("x", 2, 4)
    for layer in range(2):
        one = b.const(f"{layer}.one", value=np.ones(1, np.float32))
        ones = b.op("expand", one, name=f"{layer}.ones", shape=(4,))
        counts = b.op("cumsum", ones, name=f"{layer}.positions", axis=0, exclusive=True, reverse=False)
        rectified = b.op("relu", x, name=f"{layer}.relu")
        layers.append(b.op("add", rectified, counts, name=f"{layer}.add"))
    counted = b.op("cumsum", "1.ones", name="counted", axis=0, exclusive=False, reverse=False)
    return b.graph(b.op("mul", *layers), b.op("add", x, counted))


CASES = {
    "absorb_scales": (absorb.absorb_scales, conv_bn_relu),
    "absorb_scales_of_products": (absorb.absorb_scales, dense_bn_relu),
    "absorb_offset_of_one_place": (absorb.absorb_scales, conv_of_one_place),
    "absorb_offset_of_one_row": (absorb.absorb_scales, dense_of_one_row),
    "keep_scales_of_shared_weights": (absorb.absorb_scales, tied_weights),
    "tie_embeddings": (tied_embeddings.tie_embeddings, lambda: embedding_and_head("float32", 1)),
    "tie_embeddings_of_float16": (tied_embeddings.tie_embeddings, lambda: embedding_and_head("float16", 0)),
    "keep_embeddings_that_differ": (tied_embeddings.tie_embeddings, embedding_and_another_head),
    "absorb_pads": (absorb.absorb_pads, padded_conv),
    "fuse_elementwise": (elementwise.fuse_elementwise, scalar_chain),
    "fuse_silu": (elementwise.fuse_elementwise, silu_residual),
    "fuse_epilogues": (lambda g, t: epilogue.fuse_epilogues(elementwise.fuse_elementwise(g, t), t), silu_residual),
    "fuse_nothing_into_outputs": (
        lambda g, t: epilogue.fuse_epilogues(elementwise.fuse_elementwise(g, t), t), shared_value),
    "absorb_shuffles": (lambda g, t: channels.absorb_shuffles(fused(g, t), t), shuffled_units),
    "keep_shuffle": (channels.absorb_shuffles, shuffle_before_groups),
    "split_elementwise": (lambda g, t: fused(split_elementwise.split_elementwise(g, t), t), map_of_branches),
    "absorb_transposes": (transposes.absorb_transposes, softmax_of_channels),
    "absorb_flattening": (transposes.absorb_transposes, flattened_softmax_of_channels),
    "keep_transposes": (transposes.absorb_transposes, softmax_of_rows),
    "fuse_attention": (fuse_attention, masked_attention),
    "fuse_attention_as_onnx_defines_it": (fuse_attention, attention_as_onnx_defines_it),
    "keep_attention_with_lines_of_zeros": (fuse_attention, attention_with_lines_of_zeros),
    "fuse_attention_of_queries_without_keys": (fuse_attention, attention_of_queries_without_keys),
    "keep_attention_of_two_masks": (fuse_attention, lambda: attention_of_queries_without_keys(True)),
    "fuse_attention_guarded_from_nan": (fuse_attention, attention_guarded_from_nan),
    "keep_attention_guarded_by_ones": (fuse_attention, lambda: attention_guarded_from_nan(1)),
    "fuse_attention_of_scaled_operands": (fuse_attention, attention_of_scaled_operands),
    "fuse_causal_attention": (fuse_attention, causal_attention_of_one_tensor),
    "fuse_attention_in_groups": (fuse_attention, attention_in_groups),
    "keep_attention_whose_weights_are_read": (fuse_attention, attention_whose_weights_are_read),
    "keep_attention_whose_mask_is_scaled": (fuse_attention, attention_whose_mask_is_scaled),
    "share_positions": (positions.share_positions, positions_of_two_layers),
    "choose_layouts": (lambda graph, context: choose.choose_layouts(graph, context).graph, two_branches),
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


@pytest.mark.parametrize("make", [conv_of_one_place, dense_of_one_row])
def test_a_result_that_is_nothing_but_channels_takes_its_offset(make):
    """A constant of the result's shape is one number for each channel there."""
    assert [op.kind for op in absorb.absorb_scales(make(), ARM64).ops] == [make().ops[0].kind]


@pytest.mark.parametrize("kind, number", [("mul", np.inf), ("div", 0), ("mul", 3e38)])
def test_factors_that_weights_cannot_take(kind, number):
    """An infinite weight times 0 is NaN, but the sum times infinity is not."""
    b = Builder()
    y = b.op("matmul", b.input("x", 1, 2), b.const("w", value=np.array([[0, 2], [3, 2]], np.float32)), trans_a=0,
             trans_b=0)
    before = b.graph(b.op(kind, y, b.const("factor", value=np.array([number], np.float32))))
    after = absorb.absorb_scales(before, ARM64)
    with np.errstate(all="ignore"):
        (expected,), (actual,) = (run(graph, {"x": np.array([[0.25, 0.125]], np.float32)}).values()
                                  for graph in (before, after))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("groups", "kinds", "left"), [
    (1, ("mul", "add"), []), (2, ("add",), []), (2, ("mul", "add"), ["mul", "add"])])
def test_transposed_convolutions_take_scales_and_offsets(groups, kinds, left):
    """Those in groups take offsets only: their weights have the channels of one group on an axis."""
    b = Builder()
    y = b.op("conv2d_transpose", b.input("x", 1, 4, 3, 5), b.const("w", 4, 6 // groups, 2, 3), strides=(2, 1),
             dilations=(1, 1), output_padding=(0, 0), pads=(0, 1, 1, 0), groups=groups)
    for kind in kinds:
        y = b.op(kind, y, b.const(kind, 1, 6, 1, 1))
    before = b.graph(y)
    after = absorb.absorb_scales(before, ARM64)
    assert [op.kind for op in after.ops] == ["conv2d_transpose", *left]
    x = {"x": np.random.default_rng(0).standard_normal((1, 4, 3, 5), np.float32)}
    (expected,), (actual,) = (run(graph, x).values() for graph in (before, after))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape,kind,attrs,form", [
    ((1, 9, 7), "global_avg_pool", {}, "reduce_mean"),
    ((1, 8, 5, 7), "reduce_mean", {"axes": (2, 3), "keepdims": True}, "global_avg_pool"),
    ((1, 8, 5, 7), "reduce_mean", {"axes": (2, 3), "keepdims": False}, "reduce_mean"),
    ((1, 8, 5, 7), "reduce_mean", {"axes": (1, 2), "keepdims": True}, "reduce_mean"),
    ((1, 2, 3, 5, 7), "global_avg_pool", {}, "global_avg_pool")])
def test_means_have_one_form(shape, kind, attrs, form):
    b = Builder()
    graph = b.graph(b.op(kind, b.input("x", *shape), **attrs))
    after = means.canonicalize_means(graph, ARM64)
    verify(after)
    assert [op.kind for op in after.ops] == [form] and after.types == graph.types
    x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (expected,), (actual,) = run(graph, x).values(), run(after, x).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rooted", [True, False])
def test_layer_normalisation_is_one_operator(rooted: bool):
    """Written with a quotient or with the inverse root; a mean that somebody else reads keeps it as it is."""
    for shared in (False, True):
        b = Builder()
        x = b.input("x", 2, 3, 20)
        mean = b.op("reduce_mean", x, axes=(2,), keepdims=True)
        centred = b.op("sub", x, mean)
        variance = b.op("reduce_mean", b.op("mul", centred, centred), axes=(2,), keepdims=True)
        under = b.op("add", variance, b.const("e", value=np.float32(1e-3)))
        y = b.op("div", centred, b.op("sqrt", under)) if rooted else b.op("mul", b.op("rsqrt", under), centred)
        y = b.op("add", b.op("mul", y, b.const("w", 1, 1, 20)), b.const("c", 20))
        graph = b.graph(y, *([b.op("relu", mean)] if shared else []))
        after = passes.before_layouts(graph, Context(TARGETS["x86-64-v3"]))
        assert ("layer_norm" in [op.kind for op in after.ops]) != shared
        assert shared or len(after.ops) == 1
        feed = {"x": np.random.default_rng(0).standard_normal((2, 3, 20)).astype(np.float32) + 3}
        for found, wanted in zip(run(after, feed).values(), run(graph, feed).values(), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("rooted", [True, False])
def test_rms_normalisation_is_one_operator(rooted: bool):
    """Written with a quotient or with the inverse root; a root that somebody else reads keeps it as it is."""
    for shared in (False, True):
        b = Builder()
        x = b.input("x", 2, 3, 20)
        mean = b.op("reduce_mean", b.op("mul", x, x), axes=(2,), keepdims=True)
        root = b.op("sqrt" if rooted else "rsqrt", b.op("add", mean, b.const("e", value=np.float32(1e-3))))
        y = b.op("div", x, root) if rooted else b.op("mul", root, x)
        y = b.op("add", b.op("mul", y, b.const("w", 1, 1, 20)), b.const("c", 20))
        graph = b.graph(y, *([b.op("relu", root)] if shared else []))
        after = passes.before_layouts(graph, Context(TARGETS["x86-64-v3"]))
        assert ([op.kind for op in after.ops] == ["rms_norm", "elementwise"]) != shared
        feed = {"x": np.random.default_rng(0).standard_normal((2, 3, 20)).astype(np.float32) + 3}
        for found, wanted in zip(run(after, feed).values(), run(graph, feed).values(), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_relayouts_at_the_peak_are_avoided(monkeypatch):
    """Plain input would suit the convolution behind the largest tensor, but a relayout would hold it twice."""
    b = Builder()
    graph = b.graph(b.conv(b.conv(b.input("x", 1, 8, 64, 64), 32, kernel=7), 1, kernel=4))

    def peak() -> int:
        return schedule.peak_bytes(choose.choose_layouts(graph, ARM64).graph)

    limit = 1.125 * schedule.peak_bytes(graph)
    assert peak() <= limit
    with monkeypatch.context() as patch:
        patch.setattr(choose, "_MEMORY", 100)
        assert peak() > limit
    with monkeypatch.context() as patch:
        patch.setattr(choose, "_SLOWER", 100)  # the time that the other kernel takes more is then too much
        assert peak() > limit


@pytest.mark.parametrize(("optimize", "kernel", "factor"), [("speed", "winograd", 4), ("size", "direct", 1)])
def test_weights_are_expanded_for_speed_only(optimize: str, kernel: str, factor: int):
    b = Builder()
    graph, cpu = b.graph(b.conv(b.input("x", 1, 64, 32, 32), 64)), Context(ARM64.target, optimize)
    plan = lower(graph, cpu).plan
    assert kernel in [step.bound.choice.kernel.name for step in plan.steps]
    assert max(weight.data.size for weight in plan.weights.values()) == factor * 64 * 64 * 9


def test_concat_is_computed_in_place():
    plan = lower(two_branches(), ARM64).plan
    assert not any(step.op.kind == "concat" for step in plan.steps)
    planned = plan_memory(plan)
    concat = next(op for op in plan.graph.ops if op.kind == "concat")
    first, second = (planned.offsets[name] for name in concat.inputs)
    assert second - first == 16 * 8 * 8 * 4


def test_an_input_is_not_overwritten_by_an_output():
    b = Builder()
    plan = lower(b.graph(b.op("relu", b.input("x", 4, 5))), ARM64).plan
    planned = plan_memory(plan)
    assert planned.offsets["x"] != planned.offsets[plan.graph.outputs[0]]


def test_a_view_of_an_input_as_output_is_copied():
    b = Builder()
    plan = lower(b.graph(b.op("reshape", b.input("x", 4, 5), shape=(20,))), ARM64).plan
    assert [step.op.kind for step in plan.steps] == ["copy"]


def test_verifier_names_what_is_wrong():
    graph = conv_bn_relu()
    broken = graph.with_(ops=graph.ops[1:])
    with pytest.raises(InternalError, match="before it is defined"):
        verify(broken)


@pytest.mark.parametrize("value", [-7, 0])
def test_pads_of_integers(value: int):
    """Around x there is its zero point; a pad of another value stays."""
    b = Builder()
    x = b.op("pad", b.input("x", 1, 2, 5, 6, dtype="int8"), mode="constant", before=(0, 0, 0, 1), after=(0, 0, 2, 1),
             value=value)
    weights = np.random.default_rng(0).integers(-128, 128, (3, 2, 3, 3)).astype(np.int8)
    graph = b.graph(b.op("conv2d_integer", x, b.const("w", value=weights), strides=(2, 2), pads=(1, 0, 0, 0),
                         dilations=(1, 1), groups=1, x_zero=-7, w_zero=0))
    made = absorb.absorb_pads(graph, Context(TARGETS["c"]))
    assert [op.kind for op in made.ops] == (["conv2d_integer"] if value == -7 else ["pad", "conv2d_integer"])
    feeds = {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, 5, 6)).astype(np.int8)}
    for name, wanted in run(graph, feeds).items():
        np.testing.assert_array_equal(run(made, feeds)[name], wanted)


@pytest.mark.parametrize(("shapes", "groups", "wanted"), [
    ([], 2, ()), ([(3, 5)], 1, (1, 1, 3, 5)), ([(3, 5)], 2, (1, 1, 3, 5)), ([(1, 4, 3, 5)], 1, (1, 4, 3, 5)),
    ([(1, 4, 3, 5)], 2, (1, 2, 6, 5)), ([(1, 4, 1, 5)], 2, None), ([(3, 1)], 1, None), ([(2, 5)], 1, None),
    ([(1, 4, 1, 5), (3, 1)], 1, None), ([(1, 1, 1, 5), (3, 1)], 1, (1, 1, 3, 5))])
def test_shapes_of_masks(shapes, groups, wanted):
    """With heads of queries in groups, a mask for each head is one for each row of the product."""
    assert mask_shape(shapes, (1, 4, 3, 5), (1, 2, 6, 5), groups) == wanted
