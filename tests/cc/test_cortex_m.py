# SPDX-License-Identifier: Apache-2.0
"""Networks on an emulated Cortex-M4F: right results, flash, RAM and stack, and nothing of the C library but copies."""

import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.models.networks import NETWORKS, assert_close, onnxruntime_outputs
from tvm_megcc import paths
from tvm_megcc.errors import MegccError, ToolError
from tvm_megcc.runtime import firmware
from tvm_megcc.runtime.build import build
from tvm_megcc.runtime.session import load
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS

TARGET = TARGETS["cortex-m4"]
FORBIDDEN = ("malloc", "free", "calloc", "realloc", "printf", "fopen", "fread", "fwrite", "_sbrk", "pthread", "exp",
             "expf", "tanhf", "logf")


@pytest.fixture(scope="module", autouse=True)
def tools():
    try:
        find_compiler(TARGET)
        find_emulator(TARGET)
    except ToolError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", TARGET)
    return artifact.save(tmp_path_factory.mktemp("m4") / "digits_megcc")


def symbols(elf) -> set[str]:
    (compiler,) = find_compiler(TARGET).command
    nm = compiler.removesuffix("gcc") + "nm"
    text = subprocess.run([nm, str(elf)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in text.splitlines()}


def test_digits(digits):
    sample = np.load(paths.examples() / "digits.npz")
    session = load(digits)
    logits = session.run({"image": sample["in:image"]})["logits"]
    assert_close({"logits": logits}, {"logits": sample["out:logits"]})
    assert 0 < session.stack_bytes < firmware.LIMITS["stack"]


def test_an_embedded_model_is_the_same_firmware(digits, tmp_path):
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", TARGET)
    embedded = artifact.save(tmp_path / "digits_megcc", embed=True)
    sizes, expected = firmware.sizes(build(embedded).program), firmware.sizes(build(digits).program)
    assert sizes["ram"] == expected["ram"]
    assert abs(sizes["flash"] - expected["flash"]) < 64, "but for alignment: the linker got the files in another order"


def test_no_heap_no_files(digits):
    found = symbols(build(digits).program)
    assert not found.intersection(FORBIDDEN)


def test_a_model_that_does_not_fit_is_refused_with_the_bytes(digits):
    needs = firmware.sizes(build(digits).program)
    with pytest.raises(MegccError, match=f"flash {needs['flash']:,} bytes, there are 8,192.*"
                                         f"ram {needs['ram']:,} bytes, there are 4,096"):
        build(digits, limits={"flash": 8 << 10, "ram": 4 << 10, "stack": needs["stack"]})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist8", "resnet8_cifar10_f32", "kws_dscnn_f32"])
def test_network(name, tmp_path, record_property):
    network = NETWORKS[name]
    artifact = tvm_megcc.compile(network.path, TARGET, input_shapes=dict(network.shapes), name=name)
    folder = artifact.save(tmp_path / name)
    session = load(folder)
    for _file, inputs, outputs in network.references():
        assert_close(session.run(inputs), outputs)
    inputs = network.inputs(1)
    assert_close(session.run(inputs), onnxruntime_outputs(network.path, inputs))
    built = build(folder)
    assert not symbols(built.program).intersection(FORBIDDEN)
    sizes = firmware.sizes(built.program)
    record_property("sizes", sizes)
    print(f"\n{name}: flash {sizes['flash']:,}, RAM {sizes['ram']:,}, deepest stack {session.stack_bytes:,}")
