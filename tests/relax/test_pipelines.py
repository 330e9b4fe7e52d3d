# SPDX-License-Identifier: Apache-2.0
"""`tvm.compile` with a target of ours needs nothing else; every other way says what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax  # noqa: E402
from tvm.relax import op  # noqa: E402

from tvm_megcc import build_megcc_kernels, partition_for_megcc, tune_megcc_kernels  # noqa: E402
from tvm_megcc.dispatch import Dispatch  # noqa: E402
from tvm_megcc.errors import MegccError  # noqa: E402
from tvm_megcc.frontends.tvm_versions import RelaxTensor  # noqa: E402

from .modules import assert_same, f32, megcc, module, random_inputs, reference, run, weights  # noqa: E402

TARGET = "megcc-c"


@pytest.fixture(scope="module")
def network():
    """An operator that stays with TVM between two of ours."""
    def build(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(4, 3, 3, 3)))))
        return emit(op.matmul(emit(op.cumsum(y, axis=3, exclusive=False)), weights(6, 5)))
    return module(build, f32(1, 3, 8, 8))


@pytest.fixture(scope="module")
def expected(network):
    return run(reference(network), random_inputs(network))


def has_ours(executable) -> bool:
    """Whether a region of ours is in what TVM made; by the mark that linking looks for."""
    parts = executable.mod._collect_from_import_tree(lambda part: part.kind == "static_library")
    names = ("c", megcc.our_target().name)
    return any(part.implements_function(f"megcc.target.{name}") for part in parts for name in names)


WAYS = {
    "target": lambda mod: tvm.compile(mod, target=TARGET),
    "target as an object": lambda mod: tvm.compile(mod, target=tvm.target.Target(TARGET)),
    "pipeline of the target": lambda mod: tvm.compile(
        mod, target=TARGET, relax_pipeline=relax.get_default_pipeline(tvm.target.Target(TARGET))),
    "partitioned": lambda mod: tvm.compile(partition_for_megcc(mod, target=TARGET), target=TARGET),
    "partitioned, for a plain target": lambda mod: tvm.compile(partition_for_megcc(mod, target=TARGET), target="llvm"),
    "step by step": lambda mod: tvm.compile(relax.get_pipeline("megcc")(mod), target="llvm", relax_pipeline=None),
    "regions first": lambda mod: tvm.compile(build_megcc_kernels(partition_for_megcc(mod, target=TARGET)),
                                             target="llvm", relax_pipeline="default_build"),
    "RunCodegen by hand": lambda mod: tvm.compile(
        relax.transform.RunCodegen()(partition_for_megcc(mod, target=TARGET)), target="llvm"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way(network, expected, way):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable = WAYS[way](network)
    assert has_ours(executable)
    assert_same(run(executable, random_inputs(network)), expected)


def test_other_modules_go_through_the_pipeline_of_tvm(network, expected):
    executable = tvm.compile(network, target="llvm")
    assert not has_ours(executable)
    assert_same(run(executable, random_inputs(network)), expected)


def test_another_pipeline_says_which_one_to_use(network, expected):
    with pytest.warns(UserWarning, match="'default_build' leaves the whole module to TVM; .* give 'megcc'"):
        executable = tvm.compile(network, target=TARGET, relax_pipeline="default_build")
    assert_same(run(executable, random_inputs(network)), expected)
    partitioned = partition_for_megcc(network, target=TARGET)
    with pytest.raises(MegccError, match=r"'default_build' does not compile the regions.*megcc_region0_.*'megcc'"):
        tvm.compile(partitioned, target=TARGET, relax_pipeline="default_build")
    with pytest.raises(MegccError, match=r"compile regions first, tvm_megcc\.build_megcc_kernels"):
        tvm.compile(relax.get_pipeline("zero")(partitioned), target=TARGET)


def test_the_host_is_that_of_the_target():
    """What stays with TVM is compiled for the CPU of the tag as well."""
    target = tvm.target.Target("megcc-arm64-v82")
    assert str(target.attrs["mtriple"]).startswith("aarch64") and "+dotprod" in map(str, target.attrs["mattr"])


MISTAKES = {
    "no module": (lambda mod: partition_for_megcc("model.onnx"), r"takes a module of TVM \(tvm.IRModule\), not str"),
    "a function": (lambda mod: partition_for_megcc(mod["main"]), "not Function.*of one function"),
    "no module to build": (lambda mod: megcc.build(np.zeros(3)), "build takes a module of TVM"),
    "no module to tune": (lambda mod: tune_megcc_kernels(None), "tune_megcc_kernels takes a module of TVM"),
    "no kernels to build": (lambda mod: build_megcc_kernels(3), "build_megcc_kernels takes a module of TVM"),
    "no functions": (lambda mod: partition_for_megcc(tvm.IRModule()), "a module with Relax functions; .*: none"),
    "no params": (lambda mod: partition_for_megcc(mod, [np.zeros(3)]), r"params is \{name: array\}, not list"),
    "other params": (lambda mod: partition_for_megcc(mod, {"w": np.zeros(3)}), "main has no parameter w; it has x0"),
    "no array": (lambda mod: partition_for_megcc(mod, {"x0": "zeros"}), r"params\['x0'\] is no array: str"),
    "another shape": (lambda mod: partition_for_megcc(mod, {"x0": np.zeros((1, 3, 8, 7), np.float32)}),
                      r"params\['x0'\] is float32 of shape \(1, 3, 8, 7\); the parameter is"),
    "another type": (lambda mod: partition_for_megcc(mod, {"x0": np.zeros((1, 3, 8, 8))}), "is float64 of shape"),
    "no arrays of a function": (lambda mod: partition_for_megcc(mod, {"main": 3}),
                                "main has no parameter main; it has x0"),
    "texts for a function": (lambda mod: partition_for_megcc(mod, {"main": ["zeros"]}),
                             r"params\['x0'\] is no array: str"),
    "too many arrays": (lambda mod: partition_for_megcc(mod, {"main": [np.zeros(3)] * 2}),
                        "params has 2 arrays for main, which has 1 parameters"),
    "another shape in a list": (lambda mod: partition_for_megcc(mod, {"main": [np.zeros(3, np.float32)]}),
                                r"params\['x0'\] is float32 of shape \(3,\); the parameter is"),
    "unknown option": (lambda mod: partition_for_megcc(mod, optimise="size"), "has no option 'optimise'"),
    "unknown target": (lambda mod: partition_for_megcc(mod, target="megcc-arm63"),
                       "unknown target 'megcc-arm63', did you mean 'megcc-arm64'"),
    "no target": (lambda mod: partition_for_megcc(mod, target="abacus"), "abacus is neither one of ours .*megcc-arm64"),
    "a number": (lambda mod: megcc.build(mod, 3), "a target is a name such as 'megcc-arm64'.*not int"),
    "report of no module": (lambda mod: megcc.report(mod["main"]),
                            "report takes a module of TVM .*, not Function"),
    "picture of no module": (lambda mod: megcc.picture("model.onnx"), "picture takes a module of TVM .*, not str"),
    "picture of no function": (lambda mod: megcc.picture(mod, "man"),
                               "there is no function 'man'; the module has main"),
    "profile of a module": (lambda mod: megcc.profile(mod, "main"),
                            "profile takes a virtual machine, not IRModule: relax.VirtualMachine.executable"),
    "profile of no function": (
        lambda mod: megcc.profile(relax.VirtualMachine(megcc.build(mod, TARGET), tvm.cpu()), "man"),
        "there is no function 'man'"),
    "no log": (lambda mod: tune_megcc_kernels(mod, log=3), "log is the path of a file or None, not 3"),
    "no number of trials": (lambda mod: tune_megcc_kernels(mod, trials="3"),
                            "trials is a number of 1 or more, or None, not '3'"),
    "no trials": (lambda mod: tune_megcc_kernels(mod, trials=0), "trials is a number of 1 or more, or None, not 0"),
    "shapes in a list": (lambda mod: Dispatch("main", [(None, 8)], {"x0": {0: [(1, 8)]}})(mod),
                         r"input_shape is \{input: shape\}, not list"),
    "no operating system": (lambda mod: megcc.build(mod, "megcc-cortex-m4"), "which has no operating system"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(network, mistake):
    call, told = MISTAKES[mistake]
    with pytest.raises(MegccError, match=told):
        call(network)


def test_a_symbolic_extent_takes_any_array():
    n = tvm.tirx.Var("n", "int64")
    mod = module(lambda emit, x, w: emit(op.matmul(x, w)), f32(2, 3), RelaxTensor((3, n), "float32"))
    assert_same(run(megcc.build(mod, TARGET, {"x1": np.ones((3, 4), np.float32)}), [np.ones((2, 3), np.float32)]),
                [np.full((2, 4), 3, np.float32)])
