# SPDX-License-Identifier: Apache-2.0
"""What is said where programs of a target do not run."""

import pytest

from tvm_megcc import target as targets
from tvm_megcc.errors import ToolError
from tvm_megcc.runtime import toolchain
from tvm_megcc.target import TARGETS, native, parse_targets

ZEN_4 = {"avx2", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512_vnni"}


@pytest.mark.parametrize(("flags", "best", "others"), [
    ({"avx2", "fma"}, "x86-64-v3", {"x86-64"}),
    ({"avx2", "fma", "avx_vnni"}, "x86-64-v3-vnni", {"x86-64-v3", "x86-64"}),
    (ZEN_4, "x86-64-v4-vnni", {"x86-64-v4", "x86-64-v3", "x86-64"}),
    (ZEN_4 | {"avx_vnni"}, "x86-64-v4-vnni", {"x86-64-v4", "x86-64-v3-vnni", "x86-64-v3", "x86-64"})])
def test_products_of_bytes_of_avx2_are_no_part_of_a_higher_level(flags, best, others, monkeypatch):
    monkeypatch.setattr(targets, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(targets, "machine", lambda: "x86_64")
    assert native().name == best
    assert {name for name, target in TARGETS.items() if targets.runs(target)} == {best} | others
    ordered = parse_targets(",".join(sorted({best} | others)))
    assert ordered[0].name == best


def test_a_level_that_no_emulator_knows_is_not_emulated(monkeypatch):
    monkeypatch.setattr(targets, "_cpu_flags", lambda: {"avx2", "fma"})
    with pytest.raises(ToolError, match=r"x86-64-v4 do not run on this machine \(x86-64-v3\), and qemu does not know"):
        toolchain.find_emulator(TARGETS["x86-64-v4"])


def test_an_emulator_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(toolchain, "native", lambda: TARGETS["x86-64-v3"])
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match="qemu-aarch64 is not installed: 'apt-get install qemu-user'"):
        toolchain.find_emulator(TARGETS["arm64"])
