# SPDX-License-Identifier: Apache-2.0
"""TVM's command with the composite target "megcc"."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS

from .modules import relay  # noqa: F401  (skips where there is no Relay)
from .test_models import MODELS

tvmc = pytest.importorskip("tvm.driver.tvmc", reason="this TVM has no tvmc")

DIGITS = paths.examples() / "digits.onnx"


def test_compile_and_run(tmp_path):
    model = tvmc.load(str(DIGITS), shape_dict={"image": [1, 1, 8, 8]})
    package = tvmc.compile(model, target="megcc -arch=c, llvm", package_path=str(tmp_path / "model.tar"))
    with tarfile.open(tmp_path / "model.tar") as archive:
        archive.extractall(tmp_path / "model")
    library = (tmp_path / "model" / "mod.so").read_bytes()
    assert b"tvmgen_default_megcc_main_0" in library
    sample = np.load(paths.examples() / "digits.npz")
    result = tvmc.run(package, device="cpu", inputs={"image": sample["in:image"]})
    np.testing.assert_allclose(result.get_output("output_0"), sample["out:logits"], rtol=1e-4, atol=1e-4)


def test_for_another_machine(tmp_path):
    """The command itself; TVM's linker for the other machine is its own option, ours is found."""
    try:
        find_compiler(TARGETS["arm64"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    output = tmp_path / "model.tar"
    result = subprocess.run(
        [sys.executable, "-m", "tvm_megcc.frontends.relay.tvmc", "compile", str(DIGITS), "--input-shapes",
         "image:[1,1,8,8]", "--target", "megcc -arch=arm64, llvm -mtriple=aarch64-linux-gnu", "--output", str(output)],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert result.returncode == 0, result.stderr[-3000:]
    with tarfile.open(output) as archive:
        header = archive.extractfile("mod.so").read(20)
    assert int.from_bytes(header[18:20], "little") == 0xb7


def test_unknown_option():
    model = tvmc.load(str(DIGITS), shape_dict={"image": [1, 1, 8, 8]})
    with pytest.raises(tvm_megcc.MegccError, match="target megcc has no option -speed; it has -arch, -optimize"):
        tvmc.compile(model, target="megcc -speed=3, llvm")


@pytest.mark.slow
def test_a_network(tmp_path):
    path = MODELS / "resnet8_cifar10_f32"
    if not path.is_dir():
        pytest.skip(f"{path.name} is not on this machine (set MEGCC_MODELS)")
    arrays = np.load(path / "reference.npz")
    inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
    model = tvmc.load(str(path / "model.onnx"), shape_dict={key: list(a.shape) for key, a in inputs.items()})
    package = tvmc.compile(model, target="megcc -optimize=size, llvm", package_path=str(tmp_path / "model.tar"))
    result = tvmc.run(package, device="cpu", inputs=inputs)
    (expected,) = [arrays[key] for key in arrays.files if key.startswith("out:")]
    np.testing.assert_allclose(result.get_output("output_0"), expected, rtol=1e-4, atol=1e-4)
