# SPDX-License-Identifier: Apache-2.0
"""The installed wheel compiles, builds and runs in a fresh environment, with the checkout absent."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

SCRIPT = """
import numpy as np, tvm_megcc
from tvm_megcc import paths
assert {checkout!r} not in tvm_megcc.__file__, tvm_megcc.__file__
assert {checkout!r} not in str(paths.c_runtime()) and paths.schema().exists()
sample = np.load(paths.examples() / "digits.npz")
folder = tvm_megcc.compile(paths.examples() / "digits.onnx").save("digits_megcc")
logits = tvm_megcc.load(folder).run({{"image": sample["in:image"]}})["logits"]
assert logits.argmax() == sample["label"]
"""


@pytest.mark.slow
def test_wheel_without_the_checkout(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(CHECKOUT, source, ignore=shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "demo_out", ".hypothesis"))
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command, cwd=tmp_path):
        result = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True,
                                check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    shutil.rmtree(source)
    (wheel,) = tmp_path.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", wheel)
    run(python, "-c", SCRIPT.format(checkout=str(CHECKOUT)))
    megcc = tmp_path / "venv" / "bin" / "megcc"
    assert "x86-64" in run(megcc, "list", "targets")
    run(megcc, "run", "digits_megcc")
