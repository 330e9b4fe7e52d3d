# SPDX-License-Identifier: Apache-2.0
"""What is said where programs of a target do not run."""

import pytest

from tvm_megcc.errors import ToolError
from tvm_megcc.runtime import toolchain
from tvm_megcc.target import TARGETS


def test_a_level_that_no_emulator_knows_is_not_emulated(monkeypatch):
    monkeypatch.setattr(toolchain, "native", lambda: TARGETS["x86-64-v3"])
    with pytest.raises(ToolError, match=r"x86-64-v4 do not run on this machine \(x86-64-v3\), and qemu does not know"):
        toolchain.find_emulator(TARGETS["x86-64-v4"])


def test_an_emulator_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(toolchain, "native", lambda: TARGETS["x86-64-v3"])
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match="qemu-aarch64 is not installed: 'apt-get install qemu-user'"):
        toolchain.find_emulator(TARGETS["arm64"])
