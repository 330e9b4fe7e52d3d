# SPDX-License-Identifier: Apache-2.0
"""Extents that are Any, and graph dispatch over them: same results as TVM's build of the module as it was."""

from __future__ import annotations

import itertools
import typing

import numpy as np
import pytest

from .relay_or_skip import WITHOUT

pytest.importorskip("tvm", reason=WITHOUT)
pytest.importorskip("tvm.relay", reason=WITHOUT)

import tvm_megcc
from tvm_megcc.dispatch import Dispatch, log_dispatcher, uniform_dispatcher
from tvm_megcc.frontends.relay.expressions import kind_of, post_order
from tvm_megcc.frontends.relay.regions import buckets_of
from tvm_megcc.ir.shapes import Bucket

from . import modules
from .modules import TARGET, assert_same, conv_relu, flat, machine_of, megcc, module, random_inputs, relay, weights

CELLS = {"x0": {0: [(1, 2), (2, 5)], 2: [(4, 9), (9, 20)]}}
SHAPE = {"x0": (typing.Any, 3, None, 8)}
BORDERS = list(itertools.product((1, 2, 4), (4, 8, 9, 19)))


def network():
    """Images of any number and height; what is pooled is half as high."""
    def build(x):
        y = conv_relu(x)
        return relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), relay.nn.max_pool2d(y, (2, 2), (2, 2))
    return module(build, (None, 3, None, 8))


@pytest.fixture(scope="module")
def expected():
    """By TVM alone: from an input to results."""
    machine = modules.vm.VirtualMachine(relay.vm.compile(network(), target=modules.LLVM), modules.tvm.cpu())
    return lambda x: flat(machine.run(x))


@pytest.fixture(scope="module")
def partitioned():
    return tvm_megcc.partition_for_megcc(Dispatch("main", SHAPE, CELLS)(network()), target=TARGET)


@pytest.fixture(scope="module")
def machine(partitioned):
    return machine_of(partitioned)


def image(n: int, h: int) -> np.ndarray:
    return random_inputs(network(), {"x0_0": n, "x0_2": h}, seed=n * h)[0]


def clones(mod) -> list[str]:
    return sorted(var.name_hint for var in mod.functions
                  if var.name_hint.startswith("main_") and "_outside_" not in var.name_hint)


def ifs_of(function) -> list:
    return [part for part in post_order(function.body) if kind_of(part) == "If"]


def test_a_batch_that_changes(expected):
    """One region for any shape, without dispatch: memory is taken as it is needed."""
    partitioned = megcc.partition_for_megcc(network(), target=TARGET)
    machine = machine_of(partitioned)
    assert not megcc.report(partitioned).theirs
    for n, h in (1, 8), (3, 5), (2, 30), (3, 5):
        assert_same(flat(machine.run(image(n, h))), expected(image(n, h)))


def test_clones():
    """One a cell, extents of one value known."""
    mod = Dispatch("main", SHAPE, CELLS)(network())
    assert clones(mod) == ["main_x0_0_1_1_x0_2_4_8", "main_x0_0_1_1_x0_2_9_19", "main_x0_0_2_4_x0_2_4_8",
                           "main_x0_0_2_4_x0_2_9_19"]
    first = mod["main_x0_0_1_1_x0_2_4_8"].params[0].checked_type
    assert int(first.shape[0]) == 1 and kind_of(first.shape[2]) == "Any"
    # x0_0 <= 1, <= 4; each with x0_2 <= 8, <= 3, <= 19; the calls that fail are in Ifs of their own
    assert len(ifs_of(mod["main"])) == 2 + 2 * 3 + 5
    assert str(mod["main"].ret_type) == str(network()["main"].ret_type)


def test_clones_that_differ_in_bounds_share_a_region(partitioned):
    """A model with a bucket each, whose weights and kernels are there once."""
    regions = [function for function in partitioned.functions.values() if megcc.is_ours(function)]
    found = sorted((buckets_of(function) for function in regions), key=str)
    assert found == sorted([
        (Bucket((("x0_2", 4, 8),)), Bucket((("x0_2", 9, 19),))),
        (Bucket((("x0_0", 2, 4), ("x0_2", 4, 8))), Bucket((("x0_0", 2, 4), ("x0_2", 9, 19))))], key=str)
    report = megcc.report(partitioned)
    assert not report.theirs and report.share == 1.0


@pytest.mark.parametrize(("n", "h"), BORDERS)
def test_at_the_borders_of_buckets(machine, expected, n, h):
    assert_same(flat(machine.run(image(n, h))), expected(image(n, h)))


@pytest.mark.parametrize(("n", "h", "text"), [
    (5, 4, r"main: input 'x0' has an extent on axis 0 that no bucket holds; it may be 1 to 4"),
    (1, 20, r"main: input 'x0' has an extent on axis 2 that no bucket holds; it may be 4 to 19"),
    (3, 3, r"main: input 'x0' has an extent on axis 2 that no bucket holds; it may be 4 to 19"),
])
def test_a_shape_in_no_bucket(machine, expected, n, h, text):
    with pytest.raises(ValueError, match=text):
        machine.run(image(n, h))
    assert_same(flat(machine.run(image(1, 4))), expected(image(1, 4)))


def test_dispatch_without_partition(expected):
    """TVM compiles the module by itself, but for the message of a shape in no bucket."""
    mod = Dispatch("main", {"x0": (1, 3, None, 8)}, uniform_dispatcher(8, 4, 20))(network())
    machine = machine_of(mod, "llvm")
    assert_same(flat(machine.run(image(1, 13))), expected(image(1, 13)))
    with pytest.raises(ValueError, match="it may be 4 to 19"):
        machine.run(image(1, 20))


def test_ranges_without_end(expected):
    mod = Dispatch("main", {"x0": (2, 3, None, 8)}, log_dispatcher(4, 4))(network())
    assert len(clones(mod)) == 9
    machine = machine_of(megcc.partition_for_megcc(mod, target=TARGET))
    for h in (4, 15, 16, 200):
        assert_same(flat(machine.run(image(2, h))), expected(image(2, h)))


def test_what_tvm_runs_between_regions():
    """An extent behind TVM's operator is one that no bucket knows."""
    def build(x):
        y = relay.topk(relay.nn.relu(relay.nn.dense(x, weights(6, 8))), 6, ret_type="values")
        return relay.nn.dense(y, weights(4, 6))
    mod = module(build, (None, 8))
    partitioned = megcc.partition_for_megcc(Dispatch("main", {"x0": (None, 8)}, {"x0": {0: [(1, 5), (5, 9)]}})(mod),
                                            target=TARGET)
    machine = machine_of(partitioned)
    plain = modules.vm.VirtualMachine(relay.vm.compile(mod, target=modules.LLVM), modules.tvm.cpu())
    for n in (1, 4, 8):
        x = random_inputs(mod, {"x0_0": n})
        assert_same(flat(machine.run(*x)), flat(plain.run(*x)))


@pytest.mark.parametrize(("arguments", "text"), [
    (("entry", SHAPE, CELLS), "there is no function 'entry'; the module has main"),
    (("main", {"y": (1, 3)}, CELLS), "main has no input 'y'; it has x0"),
    (("main", {"x0": (1, 3)}, CELLS), "input_shape has 2 axes for input 'x0' of main, which has 4"),
    (("main", {"x0": (1, 3, None, None)}, CELLS), "axis 3 of input 'x0' of main is 8, so it cannot be open"),
    (("main", {"x0": (1, 4, None, 8)}, CELLS), "axis 1 of input 'x0' of main is 3, input_shape says 4"),
    (("main", {"x0": (1, 3, None, 8)}, CELLS), "axis x0_0 of main is known"),
    (("main", SHAPE, {"x0": {7: [(1, 2)]}}), "axis 7 of input 'x0', which has 4 axes"),
    (("main", SHAPE, {"x0": {0: [(2, 2)]}}), "is no range of sizes"),
])
def test_what_cannot_be_dispatched(arguments, text):
    with pytest.raises(tvm_megcc.MegccError, match=text):
        Dispatch(*arguments)(network())


def test_a_module_of_open_extents_by_itself(expected, tmp_path):
    """`tvm_megcc.compile` with ranges of shapes, and with one."""
    artifact = tvm_megcc.compile(network(), "c", name="net", dispatch="x0[0]=1..2;x0[2]=4..8,9..19")
    artifact.save(tmp_path / "net")
    session = tvm_megcc.load(tmp_path / "net", "c")
    wanted = expected(image(2, 9))
    assert_same(list(session.run({"x0": image(2, 9)}).values()), wanted)
    fixed = tvm_megcc.compile(network(), "c", name="net", input_shapes={"x0": (2, 3, 9, 8)})
    assert [entry["shape"] for entry in fixed.manifest["inputs"]] == [[2, 3, 9, 8]]
