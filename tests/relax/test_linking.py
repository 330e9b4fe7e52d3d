# SPDX-License-Identifier: Apache-2.0
"""Regions of several modules in one library and one process: their names tell them apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.runtime.toolchain import find_compiler

from .modules import assert_same, f32, megcc, module, random_inputs, reference, run, tensors, weights

TARGET = "megcc-c"
"""Scalar code compiles fast."""


def network(seed: int, name: str = "main", mod=None):
    def build(emit, x):
        return emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3, seed=seed), padding=1))))
    return module(build, f32(1, 3, 8, 6), name=name, mod=mod)


def regions(mod) -> list[str]:
    return [var.name_hint for var, function in mod.functions.items()
            if function.attrs is not None and function.attrs.get("Codegen") == "megcc"]


def names(seed: int, target: str = TARGET, **options) -> list[str]:
    return regions(megcc.partition_for_megcc(network(seed), target=target, **options))


def linked(mods, path):
    """The objects of several modules, linked to one library and loaded."""
    objects = []
    for number, mod in enumerate(mods):
        folder = path / str(number)
        folder.mkdir()
        tvm_megcc.build(mod, TARGET).export_library(str(folder / "all.tar"))
        subprocess.run(["tar", "xf", "all.tar"], cwd=folder, check=True)
        objects += [str(file) for file in folder.glob("*.o") if b"megcc_region" in file.read_bytes()]
    assert len(objects) == len(mods)
    library = path / "model.so"
    command = find_compiler(megcc.our_target(TARGET)).command
    subprocess.run([*command, "-shared", *objects, "-pthread", "-o", str(library)], check=True)
    return tvm.runtime.load_module(str(library))


def call(library, name: str, x: np.ndarray) -> np.ndarray:
    (result,) = tensors([np.full((1, 8, 8, 6), np.nan, "float32")])
    library[name](tvm.runtime.tensor(x), result)
    return result.numpy()


def test_two_modules_in_one_library(tmp_path):
    """Each entry runs its own region, with its own weights."""
    mods = [network(seed) for seed in (0, 7)]
    (x,) = random_inputs(mods[0])
    library = linked(mods, tmp_path)
    for seed, mod in zip((0, 7), mods, strict=True):
        assert_same([call(library, *names(seed), x)], run(reference(mod), [x]))


def test_one_module_twice_in_one_library(tmp_path):
    mod = network(3)
    (x,) = random_inputs(mod)
    library = linked([mod, mod], tmp_path)
    assert_same([call(library, *names(3), x)], run(reference(mod), [x]))


def test_names_differ_where_regions_do():
    """In weights, target, options."""
    different = [names(0), names(7), names(0, target="megcc-arm64"), names(0, optimize="size")]
    assert len({name for (name,) in different}) == 4
    assert names(0) == names(0)


@pytest.mark.slow
def test_names_and_bytes_are_the_same_in_another_process(tmp_path):
    code = """
import sys
from tests.relax.test_linking import network, regions
from tests.relax.modules import megcc
mod = megcc.partition_for_megcc(network(0, "second", network(5)))
megcc.build(mod).export_library(sys.argv[1])
print(*regions(mod))
"""
    printed = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        result = subprocess.run([sys.executable, "-c", code, str(tmp_path / f"{seed}.tar")], env=environment,
                                capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        printed.append(result.stdout)
        (tmp_path / seed).mkdir()
        subprocess.run(["tar", "xf", f"../{seed}.tar"], cwd=tmp_path / seed, check=True)
    assert printed[0] == printed[1] and len(printed[0].split()) == 2
    objects = [{file.read_bytes() for file in (tmp_path / seed).glob("*.o")} for seed in ("1", "2")]
    assert objects[0] == objects[1]


def test_a_module_that_is_partitioned_again():
    """A function that was added afterwards gets regions of its own; those that were there stay."""
    first = megcc.partition_for_megcc(network(0), target=TARGET)
    both = megcc.partition_for_megcc(network(0, "second", first), target=TARGET)
    assert regions(both)[:1] == regions(first) and len(set(regions(both))) == 2
    (x,) = random_inputs(first)
    executable = tvm.compile(both, target=TARGET, relax_pipeline="megcc")
    expected = run(reference(network(0)), [x])
    assert_same(run(executable, [x]), expected)
    assert_same(run(executable, [x], "second"), expected)


def test_libraries_side_by_side(tmp_path):
    """Two libraries of one module and one of another, loaded in this process; each has its own pool."""
    (x,) = random_inputs(network(0))
    machines = []
    for number, seed in enumerate((0, 0, 7)):
        path = str(tmp_path / f"model{number}.so")
        tvm_megcc.build(network(seed), TARGET).export_library(path)
        machines.append((seed, relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())))
    for seed, machine in [*machines, *reversed(machines)]:
        expected = run(reference(network(seed)), [x])
        assert_same([machine["main"](*tensors([x])).numpy()], expected)


@pytest.mark.slow
def test_a_file_that_the_importer_does_not_take_is_called_as_a_library(tmp_path):
    """Made by `megcc export --for tvm-ffi`, called in the middle of a module."""
    digits = paths.examples() / "digits.onnx"
    folder = tmp_path / "ffi"
    assert main(["export", str(digits), "--for", "tvm-ffi", "--target", "native", "-o", str(folder), "-q"]) == 0
    network = tvm.runtime.load_module(str(folder / "digits.so"))
    tvm_ffi.register_global_func("megcc_test_digits", network["run"], override=True)
    described = json.loads(network["describe"]())
    shapes = {side: tuple(described[side][0]["shape"]) for side in ("inputs", "outputs")}

    def build(emit, x):
        half = emit(op.multiply(x, relax.const(np.float32(0.5))))
        return emit(op.nn.relu(emit(relax.call_dps_packed("megcc_test_digits", (half,), f32(*shapes["outputs"])))))
    mod = module(build, f32(*shapes["inputs"]))
    (x,) = random_inputs(mod)
    session = tvm_megcc.load(tvm_megcc.compile(digits, "native").save(tmp_path / "alone"))
    (expected,) = session.run({session.inputs[0].name: x * np.float32(0.5)}).values()
    np.testing.assert_array_equal(run(tvm.compile(mod, "megcc-native"), [x])[0], np.maximum(expected, 0))
