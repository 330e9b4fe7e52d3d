# SPDX-License-Identifier: Apache-2.0
"""CPUs we only meet emulated: networks on each, the level that is chosen at run time, one folder for two machines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.toolchain import find_emulator
from tvm_megcc.target import TARGETS

from .networks import CHECKOUT, NETWORKS, Network, assert_close

EMULATED = ("arm64-v82", "arm64-v86", "armv7", "riscv64", "riscv64-v", "wasm32-simd128")
QUICK = {("mnist8", "riscv64")}
PAIRS = [pytest.param(name, target, marks=[pytest.mark.slow] * ((name, target) not in QUICK))
         for name in ("mnist8", "resnet8_cifar10_f32", "kws_dscnn_f32") for target in EMULATED]


def session(folder, target: str):
    """The folder on an emulated CPU; skips what the machine lacks."""
    try:
        return tvm_megcc.load(folder, target)
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_network(name: str, target: str, tmp_path):
    network: Network = NETWORKS[name]
    artifact = tvm_megcc.compile(network.path, target, input_shapes=dict(network.shapes), name=name)
    machine = session(artifact.save(tmp_path / name), target)
    references = network.references()
    assert references
    for _file, inputs, outputs in references:
        assert_close(machine.run(inputs), outputs)


#: Networks of 8 bits: model and form. Those with reals (hybrid ones, dynamic quantisation) end in functions that differ
#: in the last place between targets.
INTEGERS = (("kws_dscnn_int8", "tflite"), ("kws_dscnn_int8", "onnx"), ("resnet8_cifar10_int8", "tflite"),
            ("resnet8_cifar10_int8", "onnx"), ("ad_autoencoder_int8", "tflite"), ("ad_autoencoder_int8", "onnx"),
            ("tflm_micro_speech", "tflite"), ("tflm_mnist_lstm_int8", "tflite"), ("qtdnn_tract", "onnx"),
            ("mobilenet_v1_025_224_uint8", "tflite"), ("mobilenet_v1_025_224_uint8", "onnx"))


@pytest.mark.long
@pytest.mark.parametrize(("name", "form"), INTEGERS)
def test_integers_are_the_same_everywhere(name: str, form: str, tmp_path):
    """What LiteRT or ONNX Runtime gave, bit for bit, on every target that this machine runs or emulates."""
    folder = Path(os.environ.get("MEGCC_MODELS", CHECKOUT.parent / "shared" / "models")) / name
    if not folder.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    with np.load(folder / ("reference_tflite.npz" if form == "tflite" else "reference.npz")) as arrays:
        inputs, outputs = ({key.partition(":")[2]: arrays[key] for key in arrays.files if key.startswith(kind)}
                           for kind in ("in:", "out:"))
    shapes = {key: array.shape for key, array in inputs.items()} if form == "onnx" else None
    ran = 0
    for target in TARGETS:
        artifact = tvm_megcc.compile(folder / f"model.{form}", target, input_shapes=shapes, name="model")
        try:
            found = tvm_megcc.load(artifact.save(tmp_path / target), target).run(inputs)
        except MissingTool:
            continue
        ran += 1
        for key, wanted in outputs.items():
            np.testing.assert_array_equal(found[key], wanted, err_msg=f"{target}: {key}")
    assert ran > 2


def image() -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)}


@pytest.mark.slow
def test_one_folder_for_arm64_and_armv7(tmp_path):
    """`--target arm64,armv7`: the same sources and container for both machines, guarded by the compiler's macros."""
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "arm64,armv7")
    assert [p["target"] for p in artifact.manifest["programs"]] == ["armv7", "arm64"]
    folder = artifact.save(tmp_path / "digits")
    here = tvm_megcc.load(tvm_megcc.compile(paths.examples() / "digits.onnx", "native").save(tmp_path / "here"))
    for target in ("arm64", "armv7"):
        assert_close(session(folder, target).run(image()), here.run(image()))


_RISCV = "rv64,v={},vext_spec=v1.0,vlen={}"


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "cpus"), [
    (("arm64", "arm64-v82", "arm64-v86"), {"cortex-a57": "arm64", "cortex-a76": "arm64-v82",
                                           "neoverse-n1": "arm64-v82", "max": "arm64-v86"}),
    # A 32-bit CPU without fused multiply-add gets the program in plain C.
    (("armv7",), {"cortex-a7": "armv7", "cortex-a9": "c"}),
    (("riscv64", "riscv64-v", "riscv64-v256"), {
        "rv64": "riscv64", _RISCV.format("true", 128): "riscv64-v", _RISCV.format("true", 256): "riscv64-v256",
        _RISCV.format("true", 1024): "riscv64-v256"})], ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_level_chosen_at_open(levels, cpus, tmp_path):
    """One container for the levels of a machine and plain C: each CPU gets the best that it runs."""
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", ",".join(("c", *levels)))
    folder = artifact.save(tmp_path / "digits")
    program = session(folder, levels[-1])._program
    (emulator, *_) = find_emulator(TARGETS[levels[-1]])
    for cpu, name in cpus.items():
        command = [emulator, "-cpu", cpu, str(program), "--model", str(folder / "digits.megcc"), "--info"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"isa 0x{TARGETS[name].isa.code:08x}" in text, f"{cpu}: {text}"
