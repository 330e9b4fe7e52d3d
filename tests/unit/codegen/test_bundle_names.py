# SPDX-License-Identifier: Apache-2.0
"""Names whose header would shadow one that C or the runtime includes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tvm_megcc import paths
from tvm_megcc.codegen.bundle import is_header


@pytest.mark.parametrize(("command", "flags"), [("gcc", ()), ("gcc", ("-mavx512f",)), ("aarch64-linux-gnu-gcc", ()),
                                                ("arm-none-eabi-gcc", ()), ("clang", ())])
def test_headers_that_are_included_give_no_names(tmp_path, command, flags):
    """Those that the runtime and generated files include, and each header that a compiler finds from there."""
    if not shutil.which(command):
        pytest.skip(f"{command} is not installed")
    root = Path(paths.__file__).parent
    included = {name for folder in (paths.c_runtime(), root) for path in folder.rglob("*")
                if path.suffix in (".h", ".c", ".j2")
                for name in re.findall(r"^# *include <([a-z_]+)\.h>", path.read_text("utf-8"), re.MULTILINE)}
    assert {"string", "stdint", "immintrin"} <= included
    source = tmp_path / "all.c"
    source.write_text("".join(f"#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n"
                              for name in sorted(included)
                              if name == "immintrin" or (not name.endswith("intrin") and not name.startswith("arm_"))))
    found = subprocess.run([command, *flags, "-M", str(source)], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"{command} has no C library: {found.stderr[:200]}")
    names = {match[1] for match in re.finditer(r"include/(?:x86_64-linux-gnu/)?([a-z_0-9]+)\.h\b", found.stdout)}
    assert "stdint" in names
    assert sorted(name for name in names if not name.startswith("_") and not is_header(name)) == []


def test_headers_of_the_runtime_give_no_names():
    assert is_header("megcc_blocks")
    assert is_header("megcc_integer")
    assert is_header("features")
    assert not is_header("portrait")
