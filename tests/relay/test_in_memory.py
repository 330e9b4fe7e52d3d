# SPDX-License-Identifier: Apache-2.0
"""Libraries that run before they are exported, and what is exported then."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from . import modules
from .modules import TARGET, assert_same, conv_relu, evaluated, flat, megcc, module, random_inputs, relay, tvm, weights


def mixed(x):
    """Ours, TVM's, ours."""
    y = relay.trunc(relay.multiply(conv_relu(x), relay.const(4.0)))
    return relay.nn.dense(relay.nn.batch_flatten(y), weights(5, 8 * 8 * 6))


def ours(x):
    return conv_relu(x)


def by_graph(partitioned, inputs):
    return modules.outputs_of(relay.build(partitioned, target=TARGET), inputs)


def by_aot(partitioned, inputs):
    library = relay.build(partitioned, target=TARGET, executor=relay.backend.Executor("aot"))
    executor = tvm.runtime.executor.AotModule(library["default"](tvm.cpu()))
    executor.set_input(x0=inputs[0])
    executor.run()
    return [executor.get_output(0).numpy()]


def by_machine(partitioned, inputs):
    return flat(modules.vm.VirtualMachine(relay.vm.compile(partitioned, target=TARGET), tvm.cpu()).run(*inputs))


def by_executor(kind: str):
    return lambda partitioned, inputs: flat(relay.create_executor(
        kind, mod=partitioned, device=tvm.cpu(), target=TARGET).evaluate()(*inputs))


WAYS = {"graph": by_graph, "aot": by_aot, "vm": by_machine,
        **{f"create_executor {kind}": by_executor(kind) for kind in ("graph", "vm", "aot")}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", [mixed, ours])
def test_every_way(way, network):
    mod = module(network, (1, 3, 8, 6))
    inputs = random_inputs(mod)
    assert_same(WAYS[way](megcc.partition_for_megcc(mod, target=TARGET), inputs), evaluated(mod["main"], inputs))


def test_two_of_the_same_names():
    """Regions of several modules have the same symbols; each has its own weights."""
    mods = [module(lambda x, seed=seed: conv_relu(x, seed=seed), (1, 3, 8, 6)) for seed in (0, 7)]
    inputs = random_inputs(mods[0])
    for way in (by_graph, by_aot):
        for mod in mods:
            assert_same(way(megcc.partition_for_megcc(mod, target=TARGET), inputs), evaluated(mod["main"], inputs))


def test_what_is_exported_has_every_region_once(tmp_path):
    """Run, exported, run again, exported again: the same file each time, whose only code of a region is our object."""
    mod = module(mixed, (1, 3, 8, 6))
    inputs = random_inputs(mod)
    wanted = evaluated(mod["main"], inputs)
    library = relay.build(megcc.partition_for_megcc(mod, target=TARGET), target=TARGET)
    for name in ("a.so", "b.so"):
        assert_same(modules.outputs_of(library, inputs), wanted)
        library.export_library(str(tmp_path / name))
        assert_same(modules.outputs_of(tvm.runtime.load_module(str(tmp_path / name)), inputs), wanted)
    assert abs((tmp_path / "a.so").stat().st_size - (tmp_path / "b.so").stat().st_size) < 1024
    symbols = subprocess.run(["nm", "-g", "--defined-only", str(tmp_path / "a.so")], capture_output=True, text=True,
                             check=True).stdout.split()
    assert sum(name.startswith("tvmgen_default_megcc_main_") for name in symbols) == 2
    assert b"megcc-tvm-" not in (tmp_path / "a.so").read_bytes()  # nothing of the file that ran in memory


def test_an_export_that_fails_leaves_a_library_that_runs():
    mod = module(ours, (1, 3, 8, 6))
    inputs = random_inputs(mod)
    library = relay.build(megcc.partition_for_megcc(mod, target=TARGET), target=TARGET)

    def refuse(*_arguments, **_options):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        library.export_library("unused.so", fcompile=refuse)
    assert_same(modules.outputs_of(library, inputs), evaluated(mod["main"], inputs))


def test_shapes_in_no_bucket():
    """The function that only fails is there in memory as well."""
    from tvm_megcc.dispatch import Dispatch, uniform_dispatcher

    mod = module(lambda x: relay.nn.relu(x), (None, 4))
    mod = Dispatch("main", {"x0": (None, 4)}, uniform_dispatcher(2, 1, 5))(mod)
    machine = modules.vm.VirtualMachine(relay.vm.compile(megcc.partition_for_megcc(mod, target=TARGET), target=TARGET),
                                        tvm.cpu())
    np.testing.assert_array_equal(machine.run(np.full((3, 4), -1, "float32")).numpy(), np.zeros((3, 4)))
    with pytest.raises(ValueError, match="no bucket holds; it may be 1 to 4"):
        machine.run(np.zeros((9, 4), "float32"))


@pytest.mark.parametrize("way", ["graph", "vm", "aot"])
def test_another_machines_code(way, monkeypatch):
    """Compiled for a CPU that this machine is not: the error says what to do."""
    from tvm_megcc.frontends.relay import in_memory

    monkeypatch.setattr(in_memory, "runs_here", lambda _target: False)
    mod = module(ours, (1, 3, 8, 6))
    with pytest.raises((RuntimeError, megcc.MegccError), match="export_library, and load the file there"):
        WAYS[way](megcc.partition_for_megcc(mod, target=TARGET), random_inputs(mod))


@pytest.mark.parametrize("options", [{"unpacked-api": True}, {"unpacked-api": True, "interface-api": "c"}], ids=str)
def test_interfaces_that_pass_bare_pointers(options):
    """TVM has them with its C runtime. It would call our packed function with the wrong arguments."""
    partitioned = megcc.partition_for_megcc(module(ours, (1, 3, 8, 6)), target=TARGET)
    with pytest.raises(megcc.MegccError, match="leave out interface-api and unpacked-api"):
        relay.build(partitioned, target="c", executor=relay.backend.Executor("aot", options),
                    runtime=relay.backend.Runtime("crt"))


def test_the_interpreter():
    mod = module(ours, (1, 3, 8, 6))
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    with pytest.raises(megcc.MegccError, match="interpreter cannot run tvmgen_default_megcc_main_0, "):
        by_executor("debug")(partitioned, random_inputs(mod))
    assert_same(by_executor("debug")(mod, random_inputs(mod)), evaluated(mod["main"], random_inputs(mod)))
