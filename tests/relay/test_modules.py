# SPDX-License-Identifier: Apache-2.0
"""Small modules: what is partitioned, and that the result is TVM's, by every executor that TVM has."""

from __future__ import annotations

import numpy as np
import pytest

from . import modules
from .modules import (
    TARGET,
    assert_same,
    check,
    conv_relu,
    evaluated,
    exported,
    megcc,
    module,
    random_inputs,
    relay,
    run_aot,
    run_graph,
    run_vm,
    tvm,
    weights,
)

EXECUTORS = {"graph": run_graph, "aot": run_aot, "vm": run_vm}


def regions(mod) -> list[str]:
    return [var.name_hint for var, function in mod.functions.items() if megcc.is_ours(function)]


def batch_norm(x, channels: int):
    statistics = [relay.const(np.linspace(low, high, channels, dtype="float32"))
                  for low, high in ((0.5, 1.5), (-1, 1), (-0.2, 0.2), (0.7, 1.3))]
    return relay.nn.batch_norm(x, *statistics)[0]


def mixed(x):
    """Ours, TVM's, ours."""
    y = conv_relu(x)
    y = relay.trunc(relay.multiply(y, relay.const(4.0)))
    return relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(y), weights(5, 8 * 8 * 6)))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_network_that_is_split(executor):
    report = check(module(mixed, (1, 3, 8, 6)), run=EXECUTORS[executor])
    assert report.theirs == {"trunc": 1} and len(report.regions) == 2


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_network_that_is_ours_altogether(executor):
    """Two results; TVM is left with no function at all."""
    def build(x):
        y = relay.nn.relu(batch_norm(conv_relu(x), 8))
        return relay.nn.max_pool2d(y, (2, 2), (2, 2)), relay.mean(y, [2, 3])
    report = check(module(build, (1, 3, 8, 6)), run=EXECUTORS[executor])
    assert not report.theirs and len(report.regions) == 1


def test_residual():
    def build(x):
        y = relay.nn.conv2d(x, weights(16, 16, 3, 3), padding=1)
        y = relay.add(y, relay.const(np.ones((1, 16, 1, 1), "float32")))
        return relay.nn.relu(relay.add(x, y))
    mod = module(build, (2, 16, 7, 7))
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    assert '"megcc.conv2d_bias_add_act"' in str(partitioned)
    assert not check(mod).theirs


def test_channels_last():
    """NHWC with its weights as HWIO, pooled and resized in that layout, and a depthwise convolution."""
    def build(x):
        y = relay.nn.conv2d(x, weights(3, 3, 4, 24), (2, 2), (1, 1), data_layout="NHWC", kernel_layout="HWIO")
        y = relay.nn.relu(relay.nn.bias_add(y, weights(24), axis=3))
        y = relay.nn.conv2d(y, weights(3, 3, 24, 1), groups=24, channels=24, kernel_size=(3, 3), padding=(1, 1),
                            data_layout="NHWC", kernel_layout="HWOI")
        y = relay.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC")
        return relay.image.resize2d(y, (9, 7), layout="NHWC", method="linear")
    report = check(module(build, (1, 20, 20, 4)))
    assert not report.theirs and len(report.regions) == 1


def test_tuples():
    """A split whose parts go different ways; an input among the results."""
    def build(x):
        a, b, c = relay.split(x, [2, 6], axis=1)
        return relay.concatenate((c, relay.nn.relu(b), a), axis=1), relay.exp(a), x
    assert not check(module(build, (3, 9))).theirs


def test_the_same_value_twice():
    def build(x):
        y = relay.nn.relu(x)
        return y, y
    check(module(build, (3, 4)), run=run_vm)


def test_element_types():
    """Integers and truth values in and out of regions."""
    def build(x, i, flag):
        both = relay.logical_and(relay.greater(x, relay.const(0.0)), flag)
        chosen = relay.where(both, x, relay.negative(x))
        return both, chosen, relay.add(i, relay.cast(chosen, "int64")), relay.argmax(x, 1)
    mod = module(build, (3, 7), ((3, 7), "int64"), ((3, 7), "bool"))
    inputs = random_inputs(mod)
    inputs[2] = inputs[2] > 2
    assert not check(mod, inputs=inputs).theirs


def test_parameters_are_bound():
    def build(x, w, b):
        return relay.nn.bias_add(relay.nn.dense(x, w), b)
    mod = module(build, (2, 8), (3, 8), (3,))
    params = {"x1": np.ones((3, 8), "float32"), "x2": tvm.nd.array(np.ones(3, "float32"))}
    bound = megcc.partition_for_megcc(mod, params)
    assert len(bound["main"].params) == 1 and megcc.report(bound).share == 1.0
    assert len(mod["main"].params) == 3  # the module that was given is as it was
    with pytest.raises(megcc.MegccError, match="main has no parameter weight; it has x0, x1, x2"):
        megcc.partition_for_megcc(mod, {"weight": params["x1"]})


def test_unbound_weights_are_ours_too():
    """Weights that arrive with every call: other kernels, the same result."""
    check(module(lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1)), (1, 5, 6, 6), (7, 5, 3, 3)))


def test_weights_are_in_the_library_once():
    """TVM keeps none of our constants as parameters."""
    partitioned = megcc.partition_for_megcc(module(lambda x: relay.nn.dense(x, weights(512, 64)), (1, 64)),
                                            target=TARGET)
    library = relay.build(partitioned, target=TARGET)
    assert not library.get_params()


def test_constants_that_depend_on_constants_are_folded():
    def build(x):
        return relay.multiply(x, relay.exp(relay.reshape(weights(4), (1, 4))))
    assert sum(check(module(build, (3, 4))).ours.values()) == 1


def test_equal_regions_of_one_function():
    """They stay apart, because TVM inlines a function at one place only; each has its own entry."""
    def twice(x):
        y = relay.nn.relu(relay.nn.dense(relay.trunc(x), weights(6, 6)))
        return relay.nn.relu(relay.nn.dense(relay.trunc(y), weights(6, 6)))
    mod = module(twice, (2, 6))
    assert len(regions(megcc.partition_for_megcc(mod, target=TARGET))) == 2
    check(mod)


def test_tuples_that_enter_a_region():
    """TVM makes them parameters; ours are tensors."""
    def build(x, y):
        parts = relay.trunc(x), y
        return relay.concatenate(parts, axis=1), relay.stack(relay.split(relay.sort(x), 2, axis=1), axis=0)
    check(module(build, (3, 4), (3, 5)), run=run_vm)


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag):
    """The operators in the branches of an If are ours, the If is TVM's."""
    def build(chosen, x):
        return relay.If(chosen, relay.nn.dense(relay.nn.relu(x), weights(8, 8)), relay.nn.softmax(relay.tanh(x)))
    mod = module(build, ((), "bool"), (3, 8))
    report = check(mod, run=run_vm, inputs=[np.array(flag), np.random.default_rng(0).standard_normal((3, 8))
                                            .astype("float32")])
    assert not report.theirs and len(report.regions) == 2


def test_functions_that_call_functions():
    y = relay.var("y", shape=(2, 6))
    inner = relay.GlobalVar("inner")
    body = relay.nn.relu(relay.nn.dense(y, weights(6, 6)))
    mod = tvm.IRModule({inner: relay.Function([y], body, relay.TensorType((2, 6)))})
    x = relay.var("x", shape=(2, 6))
    mod["main"] = relay.Function([x], relay.negative(relay.Call(inner, [relay.exp(x)])))
    mod = relay.transform.InferType()(mod)
    report = megcc.report(megcc.partition_for_megcc(mod, target=TARGET))
    assert len(report.regions) == 3 and not report.theirs
    inputs = random_inputs(mod)
    expected = modules.flat(modules.vm.VirtualMachine(relay.vm.compile(mod, target=modules.LLVM), tvm.cpu())
                            .run(*inputs))
    assert_same(run_vm(megcc.partition_for_megcc(mod, target=TARGET), inputs), expected)


def test_quantised_operators_are_one_region():
    """In integers, with the bits that TVM's own lowering has."""
    def build(x):
        q = relay.qnn.op.quantize(relay.nn.relu(x), relay.const(0.05), relay.const(0, "int32"))
        w = relay.const(np.random.default_rng(0).integers(-9, 9, (4, 3, 3, 3)).astype("int8"))
        y = relay.qnn.op.conv2d(q, w, relay.const(0, "int32"), relay.const(0, "int32"), relay.const(0.05),
                                relay.const(0.02), kernel_size=(3, 3), channels=4)
        y = relay.nn.bias_add(y, relay.const(np.array([5, -700, 30, 0], "int32")))
        y = relay.qnn.op.requantize(y, relay.const(0.001), relay.const(0, "int32"), relay.const(0.1),
                                    relay.const(3, "int32"), out_dtype="int8")
        y = relay.nn.max_pool2d(relay.clip(y, 3, 127), (2, 2), (2, 2))
        return relay.qnn.op.dequantize(y, relay.const(0.1), relay.const(3, "int32"))
    report = check(module(build, (1, 3, 6, 6)))
    assert not report.theirs and len(report.regions) == 1


def test_a_nan_stays_a_nan():
    x = np.linspace(-3, 3, 18, dtype="float32").reshape(2, 9)
    x[0, 4], x[1, 2], x[1, 3] = np.nan, np.inf, -np.inf
    check(module(lambda a: relay.tanh(relay.add(a, a)), (2, 9)), inputs=[x])


def test_a_failing_kernel_is_an_error_of_tvm():
    """An index off its axis: refused by our kernel, reported with the runtime's words; the next call works."""
    mod = module(lambda x, i: relay.take(x, i, axis=0, mode="fast"), (4, 3), ((2,), "int64"))
    machine = modules.machine_of(megcc.partition_for_megcc(mod, target=TARGET))
    x = np.arange(12, dtype="float32").reshape(4, 3)
    with pytest.raises(RuntimeError, match=r"tvmgen_default_megcc_main_0: .*kernel"):
        machine.run(x, np.array([0, 99]))
    np.testing.assert_array_equal(machine.run(x, np.array([3, 1])).numpy(), x[[3, 1]])


def test_the_table_by_hand():
    """The passes as TVM's users know them, with the table that we register."""
    from tvm.relay.op.contrib import get_pattern_table

    mod = module(mixed, (1, 3, 8, 6))
    partitioned = tvm.transform.Sequential([
        relay.transform.MergeComposite(get_pattern_table("megcc")), relay.transform.AnnotateTarget("megcc"),
        relay.transform.MergeCompilerRegions(), relay.transform.PartitionGraph()])(mod)
    inputs = random_inputs(mod)
    assert_same(run_graph(partitioned, inputs, "llvm"), evaluated(mod["main"], inputs))


def test_a_module_saved_and_read_again():
    """All that the code generator has to know is in the module."""
    mod = module(mixed, (1, 3, 8, 6))
    partitioned = tvm.ir.load_json(tvm.ir.save_json(megcc.partition_for_megcc(mod, target=TARGET, optimize="size")))
    inputs = random_inputs(mod)
    assert_same(run_graph(partitioned, inputs), evaluated(mod["main"], inputs))


def test_two_modules_in_one_process():
    """Libraries of the same names, each with its own weights."""
    mods = [module(lambda x, seed=seed: conv_relu(x, seed=seed), (1, 3, 8, 6)) for seed in (0, 7)]
    inputs = random_inputs(mods[0])
    machines = [modules.machine_of(megcc.partition_for_megcc(mod, target=TARGET)) for mod in mods]
    wanted = [evaluated(mod["main"], inputs) for mod in mods]
    for machine, want in [*zip(machines, wanted, strict=True)] * 2:
        assert_same(modules.flat(machine.run(*inputs)), want)


def test_build_in_one_call(tmp_path):
    import tvm_megcc

    mod = module(mixed, (1, 3, 8, 6))
    library = exported(tvm_megcc.build(mod, TARGET), tmp_path)
    executor = modules.graph_executor.GraphModule(library["default"](tvm.cpu()))
    inputs = random_inputs(mod)
    executor.run(x0=inputs[0])
    assert_same([executor.get_output(0).numpy()], evaluated(mod["main"], inputs))


def test_only_the_entry_is_exported():
    """Of the object that is linked into a library, nothing but the region can be seen."""
    import subprocess

    objects = {}

    def look(_output, files, **_options):
        for file in files:
            objects[file] = subprocess.run(["nm", "-g", "--defined-only", file], capture_output=True, text=True,
                                           check=False).stdout

    look.output_format = "so"
    partitioned = megcc.partition_for_megcc(module(conv_relu, (1, 3, 8, 6)), target=TARGET)
    relay.build(partitioned, target=TARGET).export_library("unused.so", fcompile=look)
    (names,) = [text for text in objects.values() if "megcc_main" in text]
    assert [line.split()[-1] for line in names.splitlines()] == ["tvmgen_default_megcc_main_0"]


def test_picture_and_report():
    partitioned = megcc.partition_for_megcc(module(mixed, (1, 3, 8, 6)), target=TARGET)
    svg, text = megcc.picture(partitioned), str(megcc.report(partitioned))
    assert "tvmgen_default_megcc_main_0" in svg and "nn.conv2d" in svg and ">trunc<" in svg
    assert "100.0% of" in text and "1 x trunc\n        there is no kernel for it" in text


def test_options_are_checked():
    mod = module(lambda x: relay.nn.relu(x), (2, 2))
    with pytest.raises(megcc.MegccError, match="has no option 'optimise'"):
        megcc.partition_for_megcc(mod, optimise="size")
    with pytest.raises(megcc.MegccError, match="optimize is one of speed, size, not 'fast'"):
        megcc.partition_for_megcc(mod, optimize="fast")
    with pytest.raises(megcc.MegccError, match="no operating system"):
        megcc.partition_for_megcc(mod, target="cortex-m4")
    with pytest.raises(megcc.MegccError, match="partitioned already"):
        megcc.build(megcc.partition_for_megcc(mod), params={"x": 1})


def test_tags():
    """Every CPU that runs an operating system has a tag, which relay.build resolves."""
    from tvm_megcc.target import TARGETS

    for target in TARGETS.values():
        if not target.bare_metal:
            tag = tvm.target.Target(f"megcc-{target}")
            assert tag.kind.name == "llvm" and str(tag.attrs["model"]) == target.name
            assert megcc.our_target(tag) is target
    with tvm.target.Target("megcc-arm64"):
        assert megcc.our_target().name == "arm64"
    assert megcc.our_target("llvm -mtriple=aarch64-linux-gnu").name == "arm64"
