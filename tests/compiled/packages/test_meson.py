# SPDX-License-Identifier: Apache-2.0
"""Packages for Meson: by itself, in another project, for a microcontroller. Skipped without Meson and ninja."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.compiled.packages.test_languages import DIGITS, hostile_network, needs, of_zeros, ran
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages import base
from tvm_megcc.errors import MegccError

pytestmark = pytest.mark.slow


def exported(folder: Path, *options: str) -> Path:
    assert main(["export", str(DIGITS), "--for", "meson", "-q", "-o", str(folder), *options]) == 0
    return folder


def commands(made: Path) -> list[list[str]]:
    """The first block of commands of the README.md."""
    block = re.search(r"(?:^    \S.*\n)+", (made / "README.md").read_text(), re.MULTILINE).group()
    return [line.partition("#")[0].split() for line in block.splitlines()]


def numbers(text: str) -> np.ndarray:
    return np.array(text.split(), np.float32)


@pytest.mark.parametrize("options", [["--target", "c"], ["--weights", "incbin"]], ids=["c", "incbin"])
def test_commands_of_the_readme(options, tmp_path):
    """With Meson's warnings as errors of our own: there are none."""
    needs("meson", "ninja", "cc")
    made = exported(tmp_path / "digits", *options)
    said = [ran(*command, cwd=made) for command in commands(made)]
    assert "WARNING" not in said[0] and "warning:" not in said[1]
    np.testing.assert_allclose(numbers(said[2]), of_zeros(tmp_path / "plain"), rtol=1e-5)
    assert re.search(r"Ok: +1\b", ran("meson", "test", "-C", "build", cwd=made))
    assert not (made / "cross.ini").exists()


def test_in_a_project_that_is_not_optimized(tmp_path):
    """The library is. A shared library takes it, so it is position-independent code."""
    needs("meson", "ninja", "cc")
    made = exported(tmp_path / "subprojects/my_network", "--target", "c", "--name", "digits")
    lines = re.search(r"```meson\n(.*?)```", (made / "README.md").read_text(), re.DOTALL).group(1)
    (tmp_path / "meson.build").write_text(f"project('app', 'c', version: '1')\n{lines}"
                                         "shared_library('plugin', 'main.c', dependencies: network)\n")
    shutil.copy(made / "examples/zeros.c", tmp_path / "main.c")
    ran("meson", "setup", "build", cwd=tmp_path)
    ran("meson", "compile", "-C", "build", cwd=tmp_path)
    np.testing.assert_allclose(numbers(ran("build/app", cwd=tmp_path)), of_zeros(tmp_path / "plain"), rtol=1e-5)
    compiled = re.findall(r'"command": "(.*digits_data.*)"', (tmp_path / "build/compile_commands.json").read_text())
    assert len(compiled) == 1 and " -O2 " in compiled[0]


def test_for_a_microcontroller(tmp_path):
    needs("meson", "ninja", "arm-none-eabi-gcc")
    made = exported(tmp_path / "digits", "--target", "cortex-m4")
    said = [ran(*command, cwd=made) for command in commands(made)]
    assert len(said) == 2 and "WARNING" not in said[0]
    (library,) = (made / "build").glob("*.a")
    assert "Tag_CPU_arch: v7E-M" in ran("arm-none-eabi-readelf", "-A", str(library), cwd=made)
    assert "GLOBAL_OFFSET_TABLE" not in ran("arm-none-eabi-nm", str(library), cwd=made)


def test_meson_takes_the_cross_file_of_risc_v(tmp_path):
    needs("meson", "ninja", "riscv64-unknown-elf-gcc")
    made = exported(tmp_path / "digits", "--target", "riscv32")
    assert "Host machine cpu family: riscv32" in (said := ran(*commands(made)[0], cwd=made)) and "WARNING" not in said


def test_texts_of_a_hostile_model_and_folder(tmp_path):
    needs("meson", "ninja", "cc")
    folder = hostile_network(tmp_path, "c")
    files = base.package(folder, "meson", folder_name="x'\n') error('y")
    made = tmp_path / "made"
    for name, data in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(data)
    ran("meson", "setup", "build", cwd=made)
    ran("meson", "compile", "-C", "build", cwd=made)
    assert numbers(ran("build/zeros", cwd=made)).size


def test_names_of_mesons_own_targets():
    """That the table of them is whole."""
    names = pytest.importorskip("mesonbuild.coredata").FORBIDDEN_TARGET_NAMES
    for name in names:
        with pytest.raises(MegccError, match=r"a word of meson|no name of a package"):
            base.package_name(name, "meson")
