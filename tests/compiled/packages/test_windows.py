# SPDX-License-Identifier: Apache-2.0
"""The generated C on Windows: plain C for compilers that have no extensions, vectors with clang-cl, bits under wine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.rows_graphs import Bytes
from tvm_megcc import paths
from tvm_megcc.cli import main as command
from tvm_megcc.compiler import compile_graph
from tvm_megcc.runtime.build import c_sources
from tvm_megcc.target import TARGETS

DIGITS = paths.examples() / "digits.onnx"
LEVELS = ("x86-64", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4", "x86-64-v4-vnni")
#: What the runtime's conveniences and the compiler's own headers take from a C library, which is not here.
LIBRARY = {
    "stdlib.h": "void *malloc(size_t);\nvoid free(void *);\nvoid exit(int);\n", "malloc.h": "",
    "string.h": "void *memcpy(void *, const void *, size_t);\nvoid *memset(void *, int, size_t);\n"
                "int memcmp(const void *, const void *, size_t);\n",
    "stdio.h": "typedef struct FILE FILE;\nextern FILE *stderr;\nint printf(const char *, ...);\n"
               "int fprintf(FILE *, const char *, ...);\nFILE *fopen(const char *, const char *);\n"
               "int fclose(FILE *);\nint fseek(FILE *, long, int);\nlong ftell(FILE *);\n"
               "size_t fread(void *, size_t, size_t, FILE *);\n"
               "#define SEEK_SET 0\n#define SEEK_END 2\n"}
EXTENSION = re.compile(r"__attribute__|__asm|__builtin|__extension__|__typeof|\(\{|_Pragma|__has_")


def integers() -> object:
    """Layers of int8: pointwise, depthwise, of all channels."""
    b = Bytes()
    x = b.layer(b.input("x", 1, 8, 12, 12, dtype="int8"), 8, groups=8)
    return b.graph(b.layer(b.layer(x, 22, kernel=1), 5, stride=2))


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """Networks of floats and of integers, for all levels."""
    root = tmp_path_factory.mktemp("windows")
    targets = ["c", *LEVELS]
    return [tvm_megcc.compile(DIGITS, ",".join(targets)).save(root / "digits"),
            compile_graph(integers(), [TARGETS[name] for name in targets]).save(root / "bytes")]


@pytest.fixture(scope="module")
def cl(tmp_path_factory) -> list[str]:
    """clang as Microsoft's compiler, with a C library of some lines."""
    if not shutil.which("clang"):
        pytest.skip("no clang on this machine")
    stub = tmp_path_factory.mktemp("library")
    for name, text in LIBRARY.items():
        (stub / name).write_text(f"#pragma once\n#include <stddef.h>\n{text}")
    return ["clang", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "-imsvc", str(stub), "/std:c11",
            "/Iruntime/include", "/I."]


def all_of(folder: Path) -> list[str]:
    """The C files below it: a path that begins with / would be an option."""
    return [path.relative_to(folder).as_posix() for path in (*c_sources(folder), folder / "main.c")]


def said(command: list, folder: Path, given: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, command)), cwd=folder, input=given, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_portable_c_has_no_extensions(folders, cl):
    """What a compiler that is neither gcc nor clang is left with, as Microsoft's; of headers, ours alone count."""
    unlike = [f"-U{name}" for name in ("__clang__", "__GNUC__", "__x86_64__", "__x86_64", "__amd64__", "__amd64")]
    for folder in folders:
        kernels = 0
        for source in all_of(folder):
            text = said([*cl, *unlike, "/E", source], folder)
            assert not text.returncode, text.stderr
            lines, ours = [], True
            for line in text.stdout.splitlines():
                if entered := re.match(r'#(?: |line )\d+ "([^"]*)"', line):
                    ours = not os.path.isabs(entered[1])
                elif ours:
                    lines.append(line)
            assert len(lines) > 1 and not (found := EXTENSION.search("\n".join(lines))), (source, found)
            kernels += "megcc_call" in text.stdout and source.startswith("kernels/")
            checked = said([*cl, "/W4", "/WX", "-fsyntax-only", "/Tc", "-"], folder, text.stdout)
            assert not checked.returncode, f"{source}\n{checked.stderr}"
        assert kernels >= 3


@pytest.mark.slow
def test_clang_cl_has_all_levels(folders, cl):
    for folder in folders:
        for source in all_of(folder):
            done = said([*cl, "/W3", "/WX", "-fsyntax-only", "/c", source], folder)
            assert not done.returncode, f"{source}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("system", ["", "cpp"])
def test_clang_cl_fuses_no_product_and_sum(system, tmp_path):
    """CMake for clang-cl, which takes options of clang with /clang: only, and passes over others with a warning."""
    tools = {name: shutil.which(name) for name in ("cmake", "clang", "llvm-rc", "llvm-mt")}
    if missing := [name for name, path in tools.items() if not path]:
        pytest.skip(f"no {missing[0]} on this machine")
    folder = tmp_path / "folder"
    way = ["export", "--for", system] if system else ["compile"]
    assert command([*way, "-q", str(DIGITS), "--target", "x86-64-v3", "-o", str(folder)]) == 0
    clang_cl = tmp_path / "clang-cl"
    clang_cl.symlink_to(tools["clang"])
    made = said(["cmake", "-S", folder, "-B", "made", "-G", "Unix Makefiles", "-DCMAKE_SYSTEM_NAME=Windows",
                 f"-DCMAKE_C_COMPILER={clang_cl}", f"-DCMAKE_CXX_COMPILER={clang_cl}", "-DCMAKE_C_COMPILER_WORKS=1",
                 "-DCMAKE_CXX_COMPILER_WORKS=1", "-DCMAKE_C_COMPILE_FEATURES=c_std_99",
                 "-DCMAKE_CXX_COMPILE_FEATURES=cxx_std_17", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                 f"-DCMAKE_MT={tools['llvm-mt']}", f"-DCMAKE_RC_COMPILER={tools['llvm-rc']}",
                 "-DCMAKE_C_FLAGS=--target=x86_64-pc-windows-msvc",
                 "-DCMAKE_CXX_FLAGS=--target=x86_64-pc-windows-msvc"], tmp_path)
    assert not made.returncode, made.stderr
    rows = json.loads((tmp_path / "made" / "compile_commands.json").read_text())
    kernels = [row["command"].split() for row in rows if "/kernels/" in row["file"] or "__" in Path(row["file"]).name]
    assert kernels and all("/clang:-ffp-contract=off" in row and "-ffp-contract=off" not in row for row in kernels)


@pytest.mark.long
@pytest.mark.parametrize("level", ["c", "x86-64", "x86-64-v3"])
def test_the_bits_of_here_under_wine(level, tmp_path):
    compiler, wine = shutil.which("x86_64-w64-mingw32-gcc"), shutil.which("wine") or shutil.which("wine64")
    if not compiler or not wine or not shutil.which("gcc"):
        pytest.skip("no mingw-w64, or no wine, on this machine")
    folder = tvm_megcc.compile(DIGITS, level).save(tmp_path / "digits")
    results = []
    for cc, run, name in ((compiler, [wine], "there.exe"), ("gcc", [], "here")):
        flags = ["-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Iruntime/include", "-I."]
        made = said([cc, *flags, *all_of(folder), "-o", name, "-lm", "-pthread"], folder)
        assert not made.returncode, made.stderr
        done = subprocess.run([*run, f"./{name}"], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                              env={**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"})
        assert not done.returncode, done.stderr
        results.append(done.stdout.split())
    assert results[0] == results[1] and len(results[0]) == 10 and np.unique(results[0]).size > 5
