# SPDX-License-Identifier: Apache-2.0
"""Packages where a tool is missing: they say which, and how another is named. Rust and Go: test_languages.py."""

import os
import shutil
import subprocess

import pytest

from tvm_megcc import paths
from tvm_megcc.cli import main


@pytest.mark.parametrize(("options", "command", "message"), [
    (["android"], ["cmake", "--preset", "arm64-v8a"], "ANDROID_NDK_HOME has to name the folder of the NDK"),
    (["cmake", "--target", "cortex-m4"], ["cmake", "--preset", "cortex-m4", "-DCMAKE_C_COMPILER=no-such-gcc"],
     "there is no C compiler no-such-gcc: install it, or name another one with -DCMAKE_C_COMPILER"),
    (["swift"], ["sh", "xcframework/build.sh"], "no xcrun: install Xcode, or name the tools with CLANG, AR and LIPO")],
    ids=lambda value: value[0])
def test_what_is_missing_is_said(options, command, message, tmp_path):
    if not shutil.which(command[0]) or shutil.which("xcrun"):
        pytest.skip("without CMake, or on a Mac")
    made = tmp_path / "made"
    assert main(["export", str(paths.examples() / "digits.onnx"), "--for", *options, "-q", "-o", str(made)]) == 0
    where = {name: value for name, value in os.environ.items() if name not in ("ANDROID_NDK_HOME", "CLANG")}
    said = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False, env=where)
    assert said.returncode and message in " ".join(said.stderr.split())
