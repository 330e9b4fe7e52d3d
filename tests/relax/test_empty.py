# SPDX-License-Identifier: Apache-2.0
"""Symbolic extents are 0 or more: regions whose inputs have no elements."""

from __future__ import annotations

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

from tvm.relax import op  # noqa: E402
from tvm.script import relax as R  # noqa: E402

from tvm_megcc.dispatch import Dispatch  # noqa: E402
from tvm_megcc.frontends.tvm_versions import RelaxTensor, value_of  # noqa: E402

from .modules import f32, megcc, module, run, weights  # noqa: E402

#: Shape with n in it, the network, and what it gives where n is 0: TVM's own code reads beyond the tensor there, so it
#: is no judge. Both calls of a region are made, since a call keeps the shapes of the one before.
NETWORKS = {
    "perceptron": (("n", 4), lambda emit, x: emit(op.nn.relu(emit(op.matmul(x, weights(4, 3))))), np.zeros((0, 3))),
    "convolution": (("n", 3, 5, 5), lambda emit, x: emit(op.nn.conv2d(x, weights(4, 3, 3, 3), padding=1)),
                    np.zeros((0, 4, 5, 5))),
    "softmax": (("n", 4), lambda emit, x: emit(op.nn.softmax(x)), np.zeros((0, 4))),
    "norm": (("n", 4), lambda emit, x: emit(op.nn.layer_norm(x, weights(4), weights(4), axes=[-1])), np.zeros((0, 4))),
    "slice": (("n", 4), lambda emit, x: emit(op.strided_slice(x, [1], [1], [3])), np.zeros((0, 2))),
    "resize": (("n", 2, 3, 4), lambda emit, x: emit(op.image.resize2d(x, (4, 4))), np.zeros((0, 2, 4, 4))),
    "a row behind none": (("n", 4), lambda emit, x: emit(op.concat([emit(op.nn.relu(x)), weights(1, 4)], 0)),
                          value_of(weights(1, 4)).numpy()),
    "pad": (("n", 4), lambda emit, x: emit(op.nn.pad(x, [1, 1, 0, 0])), np.zeros((2, 4))),
    "sum": (("n", 4), lambda emit, x: emit(op.sum(x, [0])), np.zeros(4)),
    "largest": (("n", 4), lambda emit, x: emit(op.max(x, [0])), np.full(4, -np.inf)),
    "mean": (("n", 4), lambda emit, x: emit(op.mean(x, [0])), np.full(4, np.nan)),
    "products of nothing": ((3, "n"), lambda emit, x: emit(op.matmul(x, emit(op.permute_dims(x)))), np.zeros((3, 3))),
    "attention": (("n", 4), lambda emit, x: emit(op.matmul(emit(op.nn.softmax(emit(op.matmul(
        x, emit(op.permute_dims(x)))))), x)), np.zeros((0, 4))),
}


def built(shape, build):
    n = tvm.tirx.Var("n", "int64")
    mod = module(build, RelaxTensor([n if extent == "n" else extent for extent in shape], "float32"))
    return megcc.build(mod, "megcc-c")


@pytest.mark.parametrize("name", NETWORKS)
def test_no_elements(name):
    shape, build, expected = NETWORKS[name]
    executable = built(shape, build)
    for n in (3, 0, 2, 0):
        x = np.random.default_rng(n).standard_normal([n if extent == "n" else extent for extent in shape])
        (got,) = run(executable, [x.astype(np.float32)])
        if n == 0:
            np.testing.assert_array_equal(got, expected.astype(np.float32))


@pytest.mark.parametrize(("build", "told"), [
    (lambda emit, x: emit(op.nn.max_pool2d(x, (2, 2), (2, 2))), "a window of 2 .* does not fit an extent of n"),
    (lambda emit, x: emit(op.argmax(x, 2)), "axis 2 of .* is empty"),
], ids=["window", "argmax"])
def test_what_needs_elements_says_so(build, told):
    executable = built((1, 2, "n", 4), build)
    with pytest.raises(RuntimeError, match=told):
        run(executable, [np.zeros((1, 2, 0, 4), np.float32)])
    assert run(executable, [np.zeros((1, 2, 4, 4), np.float32)])


@pytest.mark.parametrize(("build", "expected"), [
    (lambda emit, x: emit(op.nn.relu(x)), np.zeros((0, 4))), (lambda emit, x: emit(op.sum(x, [0])), np.zeros(4)),
    (lambda emit, x: emit(op.concat([emit(op.nn.relu(x)), weights(1, 4)], 0)), value_of(weights(1, 4)).numpy()),
], ids=["none", "sum", "a row behind none"])
def test_known_extents_of_0(build, expected):
    mod = module(build, f32(0, 4))
    assert megcc.report(megcc.partition_for_megcc(mod)).regions
    (got,) = run(megcc.build(mod, "megcc-c"), [np.zeros((0, 4), np.float32)])
    np.testing.assert_array_equal(got, expected.astype(np.float32))


@tvm.script.ir_module
class Scan:
    """A scan as Relax writes it: the rows of its results are collected in a tensor that may begin empty."""

    @R.function
    def again(i: R.Tensor((), "int32"), x: R.Tensor((1, 4), "float32"), rows: R.Tensor(("n", 4), "float32")) \
            -> R.Tensor(dtype="float32", ndim=2):
        cls = Scan
        more = R.less(i, R.const(3, "int32"))
        if more:
            j = R.add(i, R.const(1, "int32"))
            y = R.tanh(R.add(x, x))
            kept = R.concat((rows, y), axis=0)
            z: R.Tensor(dtype="float32", ndim=2) = cls.again(j, y, kept)
        else:
            z: R.Tensor(dtype="float32", ndim=2) = R.multiply(rows, rows)
        return z

    @R.function
    def main(i: R.Tensor((), "int32"), x: R.Tensor((1, 4), "float32"), rows: R.Tensor(("n", 4), "float32")) \
            -> R.Tensor(dtype="float32", ndim=2):
        cls = Scan
        z: R.Tensor(dtype="float32", ndim=2) = cls.again(i, x, rows)
        return z


def test_a_scan_that_begins_empty():
    partitioned = megcc.partition_for_megcc(Scan, target="megcc-c")
    assert not megcc.report(partitioned).theirs, str(megcc.report(partitioned))
    executable = megcc.build(partitioned, "megcc-c")
    for first, rows in ((0, 0), (0, 2), (3, 0)):
        generator = np.random.default_rng(rows)
        x, kept = (generator.standard_normal(shape).astype(np.float32) for shape in ((1, 4), (rows, 4)))
        (got,) = run(executable, [np.asarray(first, np.int32), x, kept])
        for _ in range(first, 3):
            x = np.tanh(x + x)
            kept = np.concatenate([kept, x])
        np.testing.assert_allclose(got, kept * kept, rtol=1e-5)


def test_a_bucket_of_nothing():
    """Graph dispatch has a bucket for 0 where one is given, and tells what no bucket holds where none is."""
    shape, build, expected = NETWORKS["perceptron"]
    n = tvm.tirx.Var("n", "int64")
    mod = module(build, RelaxTensor([n, *shape[1:]], "float32"))
    nothing, some = np.zeros((0, 4), np.float32), np.ones((3, 4), np.float32)
    executable = megcc.build(Dispatch("main", {"x0": (None, 4)}, {"x0": {0: [(0, 1), (1, 8)]}})(mod), "megcc-c")
    np.testing.assert_array_equal(run(executable, [nothing])[0], expected)
    assert run(executable, [some])[0].shape == (3, 3)
    executable = megcc.build(Dispatch("main", {"x0": (None, 4)}, {"x0": {0: [(1, 8)]}})(mod), "megcc-c")
    with pytest.raises(ValueError, match=r"input 0 has shape \(0, 4\).* extents are n 1 to 7"):
        run(executable, [nothing])
