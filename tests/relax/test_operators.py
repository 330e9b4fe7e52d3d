# SPDX-License-Identifier: Apache-2.0
"""Relax operators that the networks of the other tests have not, each against TVM's own build of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax, te
from tvm.relax import op

import tvm_megcc
from tvm_megcc.frontends.tvm_versions import RelaxTensor, type_of
from tvm_megcc.ops.base import OPERATORS

from .modules import RELEASE, assert_same, f32, megcc, module, number, random_inputs, reference, run, weights

INDICES = relax.const(np.array([[1, 0, 2], [3, 3, 1]]), "int64")
ROWS = relax.const(np.array([2, 0]), "int64")
TWICE = relax.const(np.array([[2], [2]]), "int64")
ONE = relax.const(1)
SCALES = relax.const(np.linspace(0.01, 0.06, 6).astype(np.float32))
ZERO = relax.const(np.array(3, np.int8))

#: Expressions of x [4, 6] and of y [4, 6], of hand-written kernels only.
HAND_WRITTEN = {
    "topk": lambda x, y: op.topk(x, 3, axis=1, dtype="int64"),
    "topk values": lambda x, y: op.topk(x, 2, axis=0, ret_type="values", largest=False),
    "topk indices": lambda x, y: op.topk(x, 0, ret_type="indices"),
    "sort": lambda x, y: op.sort(x, axis=0),
    "sort down": lambda x, y: op.sort(x, axis=-1, descending=True),
    "argsort": lambda x, y: op.argsort(x, axis=1),
    "argsort down": lambda x, y: op.argsort(x, axis=0, descending=True, dtype="int64"),
    "scatter_elements": lambda x, y: op.scatter_elements(x, INDICES, op.strided_slice(y, [0, 1], [0, 0], [2, 3]), 0),
    "scatter_elements add": lambda x, y: op.scatter_elements(
        x, INDICES, op.strided_slice(y, [0, 1], [0, 0], [2, 3]), 1, "add"),
    "scatter_nd": lambda x, y: op.scatter_nd(x, relax.const(np.array([[2], [0]]), "int64"), op.take(y, ROWS, 0)),
    "scatter_nd max": lambda x, y: op.scatter_nd(x, TWICE, op.take(y, ROWS, 0), "max"),
    "gather_elements": lambda x, y: op.gather_elements(x, op.argsort(y, 1, dtype="int64"), 1),
    "gather_nd": lambda x, y: op.gather_nd(x, relax.const(np.array([[1, 5], [0, 2]]), "int64")),
    "index_tensor": lambda x, y: op.index_tensor(x, [ROWS]),
    "one_hot": lambda x, y: op.one_hot(op.argmax(x, 1), number(2.5), number(-1.0), 6),
    "one_hot in front": lambda x, y: op.one_hot(op.argmax(x, 1), number(1), number(0), 5, axis=0),
    "dequantize, a zero point for all channels": lambda x, y: op.dequantize(
        op.quantize(x, SCALES, ZERO, 1, "int8"), SCALES, ZERO, 1),
    "tril": lambda x, y: op.tril(x, 1),
    "triu": lambda x, y: op.triu(x, -1),
    "repeat": lambda x, y: op.repeat(x, 3, 1),
    "repeat all": lambda x, y: op.repeat(x, 2),
    "full_like": lambda x, y: op.add(op.full_like(x, relax.const(np.float32(3))), y),
    "zeros_like": lambda x, y: op.minimum(op.zeros_like(x), y),
    "ones": lambda x, y: op.subtract(op.ones((4, 6), "float32"), y),
    "size": lambda x, y: op.size(x),
    "trunc": lambda x, y: op.trunc(op.multiply(x, relax.const(np.float32(3)))),
    "isfinite": lambda x, y: op.isfinite(op.divide(x, op.nn.relu(y))),
    "floor_divide": lambda x, y: op.floor_divide(x, op.add(op.abs(y), relax.const(np.float32(0.5)))),
    "log_add_exp": lambda x, y: op.log_add_exp(x, y),
    "outer": lambda x, y: op.outer(op.mean(x, [0]), op.mean(y, [1])),
    "cumprod": lambda x, y: op.cumprod(x, 1),
    "cumprod of all": lambda x, y: op.cumprod(op.add(op.multiply(x, relax.const(np.float32(0.1))),
                                                     relax.const(np.float32(1)))),
    "einsum": lambda x, y: op.einsum((x, y), "ij,kj->ik"),
}

#: Expressions that are made of TVM's loops, beside what hand-written kernels compute of their operands.
MADE_OF_LOOPS = {
    "atan2": lambda x, y: op.atan2(x, y),
    "bucketize": lambda x, y: op.bucketize(x, relax.const(np.linspace(-1, 1, 7, dtype="float32"))),
    "floor_divide of integers": lambda x, y: op.floor_divide(op.argsort(x, 1), op.add(op.argsort(y, 1), ONE)),
    "index_tensor of two": lambda x, y: op.index_tensor(x, [ROWS, ROWS]),
    "index_put": lambda x, y: op.index_put(x, (ROWS, ROWS), op.strided_slice(op.mean(y, [1]), [0], [0], [2]), True),
    "layout_transform": lambda x, y: op.layout_transform(x, lambda i, j: (j // 2, i, j % 2)),
    "meshgrid": lambda x, y: op.meshgrid([op.mean(x, [0]), op.mean(y, [1])], "ij"),
    "nll_loss": lambda x, y: op.nn.nll_loss(x, op.argmax(y, 1)),
    "softplus": lambda x, y: op.nn.softplus(x, 2.0, 10.0),
    "take around": lambda x, y: op.take(x, op.argmax(y, 1), 0, mode="wrap"),
    "hamming_window": lambda x, y: op.multiply(x, op.hamming_window(6, True, 0.54, 0.46, "float32")),
}
#: The first release that has loops for an operator on floats.
LOOPS_SINCE = {"bucketize": (0, 26)}


def build_of(expressions: dict):
    def build(emit, *operands):
        results = []
        for make in expressions.values():
            value = emit(make(*operands))
            fields = getattr(type_of(value), "fields", None)
            results += [value] if fields is None else [
                emit(relax.TupleGetItem(value, index)) for index in range(len(fields))]
        return results
    return build


@pytest.mark.slow
@pytest.mark.parametrize("target", ["megcc-c", "megcc-native"])
def test_hand_written(target: str):
    mod = module(build_of(HAND_WRITTEN), f32(4, 6), f32(4, 6))
    partitioned = megcc.partition_for_megcc(mod, target=target)
    report = megcc.report(partitioned)
    assert not report.theirs and not report.tir, str(report)
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(partitioned, target=target, relax_pipeline="megcc"), inputs),
                run(reference(mod), inputs))


@pytest.mark.slow
def test_made_of_loops():
    built = {name: build for name, build in MADE_OF_LOOPS.items() if RELEASE >= LOOPS_SINCE.get(name, ())}
    mod = module(build_of(built), f32(4, 6), f32(4, 6))
    partitioned = megcc.partition_for_megcc(mod, target="megcc-c", tir=True)
    report = megcc.report(partitioned)
    assert not report.theirs, str(report)
    names = {"atan2", "bucketize", "floor_divide", "index_tensor", "index_put", "layout_transform", "meshgrid",
             "nn.nll_loss", "nn.softplus", "take"}
    assert set(report.tir) == {f"relax.{name}" for name in names if RELEASE >= LOOPS_SINCE.get(name, ())}
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(partitioned, target="megcc-c", relax_pipeline="megcc"), inputs),
                run(reference(mod), inputs))


@pytest.mark.parametrize("mask", ["BottomRight", *(pytest.param(mask, marks=pytest.mark.slow)
                                                  for mask in (None, "TopLeft"))])
def test_attention(mask):
    """By the kernels of products and softmax, not as loops."""
    def build(emit, q, k, v, bias):
        return emit(op.nn.attention(q, k, v, bias, causal_mask=mask)), emit(op.nn.attention(q, k, v, scale=0.3))

    mod = module(build, f32(2, 5, 3, 8), f32(2, 7, 3, 8), f32(2, 7, 3, 4), f32(2, 3, 5, 7))
    partitioned = megcc.partition_for_megcc(mod, target="megcc-c")
    report = megcc.report(partitioned)
    assert not report.theirs and not report.tir and report.our_macs == 2 * 2 * 3 * 5 * 7 * (8 + 4), str(report)
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(partitioned, target="megcc-c", relax_pipeline="megcc"), inputs),
                run(reference(mod), inputs))


def test_report_tells_loops_apart():
    """An operator that stays, and why; one that could be taken; the share of what is made of loops."""
    def build(emit, x, w):
        y = emit(op.nn.conv2d(x, w, padding=1))
        y = emit(op.nn.avg_pool2d(y, 3, 2, padding=1, ceil_mode=True, count_include_pad=True))
        return emit(op.median(emit(op.reshape(y, (-1,))), [0]))

    mod = module(build, f32(1, 3, 8, 8), f32(4, 3, 3, 3))
    made, stays = (megcc.report(megcc.partition_for_megcc(mod, target="megcc-c", tir=tir)) for tir in (True, False))
    assert made.tir == {"relax.nn.avg_pool2d": 1} and made.tir_macs == 0 and made.our_macs == 4 * 3 * 9 * 64
    assert "made of TVM's loops: 1 x relax.nn.avg_pool2d; 0.0% of our MACs" in str(made)
    (reason,) = made.reasons["relax.median"]
    assert "tvm.contrib.sort.argsort" in reason
    (reason,) = stays.reasons["relax.nn.avg_pool2d"]
    assert stays.tir == {} and "tir=True would take it" in reason


def test_index_outside_is_an_error():
    """Of loops, too; the next call works."""
    def build(emit, x, index):
        return emit(op.index_tensor(x, [index, index]))

    mod = module(build, f32(4, 6), RelaxTensor((3,), "int64"))
    partitioned = megcc.partition_for_megcc(mod, target="megcc-c", tir=True)
    assert not megcc.report(partitioned).theirs
    executable = tvm.compile(partitioned, target="megcc-c", relax_pipeline="megcc")
    x = random_inputs(mod)[0]
    for index in (4, 2**40, -2**63):
        with pytest.raises(RuntimeError, match="kernel"):
            run(executable, [x, np.array([0, index, 1])])
    (result,) = run(executable, [x, np.array([3, 0, 1])])
    np.testing.assert_array_equal(result, x[[3, 0, 1], [3, 0, 1]])


def test_symbolic_extents_of_loops():
    """A region with hand-written kernels and loops between them, for every batch."""
    n = tvm.tirx.Var("n", "int64")

    def doubled(x):
        return te.compute(x.shape, lambda i, j: x[x.shape[0] - 1 - i, j] * 2.0)

    builder = relax.BlockBuilder()
    x = relax.Var("x0", f32(n, 6))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(doubled, builder.emit(op.nn.relu(x)))
            y = builder.emit(op.nn.softplus(builder.emit(op.matmul(y, weights(6, 5))), 2.0, 10.0))
            output = builder.emit_output(builder.emit(op.cumprod(builder.emit(op.tanh(y)), 1)))
        builder.emit_func_output(output)
    mod = builder.get()
    partitioned = megcc.partition_for_megcc(mod, target="megcc-c", tir=True)
    report = megcc.report(partitioned)
    assert report.tir == {"relax.call_tir doubled": 1, "relax.nn.softplus": 1} and len(report.regions) == 1, str(report)
    ours, theirs = tvm.compile(partitioned, target="megcc-c", relax_pipeline="megcc"), reference(mod)
    for batch in (1, 5, 3):
        inputs = random_inputs(mod, symbols={"n": batch})
        assert_same(run(ours, inputs), run(theirs, inputs))


def test_names_in_declarations_are_operators_of_relax():
    known = {str(name) for name in tvm.ir.Op.list_op_names()}
    declared = {name for declaration in OPERATORS.values() for name in declaration.relax}
    assert len(declared) > 50 and not declared - known - ({"relax.reverse_sequence"} if RELEASE < (0, 26) else set())


@pytest.mark.parametrize("operator", [op.argmax, op.argmin, op.round], ids=["argmax", "argmin", "round"])
def test_nan_and_halves_as_tvm_has_them(operator):
    array = np.array([[1, np.nan, 0, 3, -2.5], [np.nan, 1.5, 2.5, np.nan, 1], [3, 2.5, 1, 0.5, -0.5], [np.nan] * 5],
                     np.float32)
    options = () if operator is op.round else (1,)
    mod = module(lambda emit, x: emit(operator(x, *options)), f32(*array.shape))
    partitioned = tvm_megcc.partition_for_megcc(mod)
    assert megcc.report(partitioned).regions
    np.testing.assert_array_equal(run(tvm_megcc.build(partitioned), [array])[0], run(reference(mod), [array])[0])
