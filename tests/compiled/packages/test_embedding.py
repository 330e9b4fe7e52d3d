# SPDX-License-Identifier: Apache-2.0
"""Models that the assembler or the compiler takes in as a file: the bytes, alignment and section of the text of C."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_languages import DIGITS, needs, ran
from tvm_megcc.cli import main
from tvm_megcc.codegen import bundle
from tvm_megcc.codegen.embedding import AUTO, AUTO_TEXT_BYTES, INCBIN, TEXT, read_container
from tvm_megcc.codegen.packages import base
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.build import build
from tvm_megcc.runtime.toolchain import find_compiler, zig_command
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.export.packages import embedding

ZEROS = {"image": np.zeros((1, 1, 8, 8), np.float32)}


def saved(target: str, folder: Path, embed: bool | str = INCBIN) -> Path:
    return tvm_megcc.compile(DIGITS, target).save(folder, embed=embed)


def test_the_file_is_what_the_text_says(tmp_path):
    """One for each machine, named by a digest in the C; the same again gives the same bytes."""
    targets = "cortex-m4,arm64,x86-64,c"
    text, file = saved(targets, tmp_path / "text", TEXT), saved(targets, tmp_path / "file")
    names = [f"digits_data_{index}.bin" for index in range(4)]
    assert sorted(path.name for path in file.glob("*.bin")) == names
    for name in targets.split(","):
        assert read_container(file, "digits", TARGETS[name]) == read_container(text, "digits", TARGETS[name])
    source = (file / "digits_data.c").read_text()
    assert len(set(re.findall(r'DATA_FILE "\w+\.bin" /\* sha256 ([0-9a-f]{64})', source))) == 4
    artifact = tvm_megcc.compile(DIGITS, targets)
    assert bundle.contents([artifact], INCBIN) == bundle.contents([artifact], INCBIN)
    assert (saved("c", tmp_path / "one") / "digits_data.bin").exists()
    with pytest.raises(MegccError, match="no way to embed"):
        bundle.contents([artifact], "xxd")


def test_large_models_are_files(tmp_path, monkeypatch):
    artifact = tvm_megcc.compile(DIGITS, "c")
    assert "digits_data.bin" not in bundle.contents([artifact], AUTO) and AUTO_TEXT_BYTES == 1 << 20
    monkeypatch.setattr(bundle, "AUTO_TEXT_BYTES", 1000)
    assert "digits_data.bin" in bundle.contents([artifact], AUTO)
    assert embedding("arduino", None) == AUTO and embedding("go", None) == TEXT and embedding("wheel", None) is False
    assert embedding("arduino", "text") == TEXT


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [("gcc",), ("clang",), ("clang", "-flto"),
                                      ("gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")])
def test_sections_and_alignment(compiler, tmp_path):
    """What an object file has of it, and what a program makes of it."""
    lto = "-flto" in compiler
    needs(compiler[0], "objdump", *["ld.lld"] * lto)
    folder = saved("x86-64,arm64,c", tmp_path / "digits")
    if not lto:
        ran(*compiler, "-Iruntime/include", "-I.", "-c", "digits_data.c", "-o", tmp_path / "data.o", cwd=folder)
        header = ran("objdump", "-h", tmp_path / "data.o", cwd=folder).partition(".rodata.digits_data")[2]
        row, flags = header.split("\n")[:2]
        size, *_, alignment = row.split()
        assert alignment == "2**6" and "READONLY" in flags
        assert int(size, 16) == next(folder.glob("digits_data_1.bin")).stat().st_size
    sources = [path.relative_to(folder) for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c")
               for path in sorted(folder.glob(pattern))]
    flags = ["-flto", "-fuse-ld=lld"] if lto else []
    ran(compiler[0], "-O1", "-ffp-contract=off", "-Iruntime/include", "-I.", *sources, *flags, "-pthread", "-o",
        "program", cwd=folder)
    wanted = tvm_megcc.load(saved("x86-64", tmp_path / "same", False), "x86-64").run(ZEROS)["logits"].ravel()
    np.testing.assert_allclose(np.array(ran("./program", cwd=folder).split(), np.float32), wanted, rtol=1e-5)


@pytest.mark.slow
def test_make_and_cmake_and_a_changed_model(tmp_path):
    """Built from another folder; what was built before is built again where the file is another."""
    needs("make", "cmake", "cc")
    folder = saved("native,c", tmp_path / "digits")
    ran("make", "-s", "-C", folder, cwd=tmp_path)
    ran("cmake", "-S", folder, "-B", "build", "-DCMAKE_BUILD_TYPE=Release", cwd=tmp_path)
    ran("cmake", "--build", "build", "-j2", cwd=tmp_path)
    first = ran(folder / "build/make/main", cwd=tmp_path)
    assert ran(tmp_path / "build/main", cwd=tmp_path) == first and len(first.split()) == 10
    loaded = tvm_megcc.load(folder)
    np.testing.assert_array_equal(tvm_megcc.load(saved("native,c", tmp_path / "text", TEXT)).run(ZEROS)["logits"],
                                  loaded.run(ZEROS)["logits"])


@pytest.mark.parametrize("flags", [("-std=c23",), ("-target", "wasm32-freestanding"), ("-target", "aarch64-macos"),
                                   ("-target", "x86_64-windows-gnu"), ("-target", "arm-linux-gnueabihf")])
def test_other_compilers_and_systems(flags, tmp_path):
    """#embed where C has it, and assembler in the words of each object format."""
    if not zig_command():
        pytest.skip("no zig on this machine")
    folder = saved("c", tmp_path / "digits")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "zig")}
    done = subprocess.run([*zig_command(), "cc", *flags, "-Iruntime/include", "-I.", "-c", "digits_data.c", "-o",
                           tmp_path / "data.o"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "data.o").read_bytes()
    assert (folder / "digits_data.bin").read_bytes() in made and b"digits_data" in made


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m4,c"])
@pytest.mark.parametrize("embed", [False, TEXT, INCBIN])
def test_firmware(target, embed, tmp_path):
    """A folder that has portable C besides: the image holds what the firmware is told the size of."""
    folder = saved(target, tmp_path / "digits", embed)
    try:
        find_compiler(TARGETS["cortex-m4"])
        found = tvm_megcc.load(folder, "cortex-m4").run(ZEROS)["logits"]
    except MissingTool as missing:
        pytest.skip(str(missing))
    wanted = tvm_megcc.load(saved("c", tmp_path / "plain", False), "c").run(ZEROS)["logits"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert build(folder, "cortex-m4").program.exists()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["arduino", "esp-idf"])
def test_packages(system, tmp_path):
    """The file lies beside the C, where the one include folder finds it; systems that would not find it are refused."""
    needs("gcc")
    made = str(tmp_path / "made")
    assert main(["export", str(DIGITS), "--for", system, "--weights", "incbin", "-o", made, "-q"]) == 0
    sources = tmp_path / "made" / "src"
    assert (sources / "digits_data.bin").stat().st_size > 10_000
    for source in sorted(sources.rglob("*.c")):
        ran("gcc", "-std=gnu11", "-Os", "-w", f"-I{sources}", "-c", source, cwd=tmp_path)
    folder = saved("c", tmp_path / "folder")
    for other in ("go", "swift", "cmsis-pack"):
        with pytest.raises(MegccError, match="again with --weights text"):
            base._sources(folder, bundle.read_manifest(folder), other, None)
