# SPDX-License-Identifier: Apache-2.0
"""The precompiled header of intrinsics is used by gcc, changes no object file, and is never needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.build import CFLAGS
from tvm_megcc.runtime.precompiled import intrinsics
from tvm_megcc.runtime.toolchain import Compiler, find_compiler
from tvm_megcc.target import TARGETS


@pytest.fixture(params=["x86-64-v3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("x86-64-v4", "arm64"))])
def kernel(request, tmp_path, monkeypatch):
    """(gcc for the target, its flags, a kernel's file, flags that find the headers), with a cache of its own."""
    target = TARGETS[request.param]
    try:
        compiler = find_compiler(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    if "clang" in compiler.version or "zig" in str(compiler):
        pytest.skip(f"{compiler} is no gcc")
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", request.param, name="digits")
    folder = artifact.save(tmp_path / "digits")
    source = next(path for path in sorted(folder.glob("kernels/*.c")) if "conv2d" in path.name)
    return compiler, (*CFLAGS, *target.cflags, "-fPIC"), source, (f"-I{folder / 'runtime' / 'include'}",)


def compiled(compiler: Compiler, source: Path, *flags: str) -> tuple[bytes, str]:
    """The object file, and what the compiler said."""
    made = source.with_suffix(".o")
    done = subprocess.run([*compiler.command, *flags, "-c", str(source), "-o", str(made)], capture_output=True,
                          text=True, check=True)
    return made.read_bytes(), done.stderr


def test_used_and_the_same_code(kernel):
    compiler, flags, source, include = kernel
    first = intrinsics(compiler, (*flags, "-DMEGCC_MODULE=other"), source.read_text())
    assert first == intrinsics(compiler, flags, source.read_text()) and first[0] == "-include"
    made, said = compiled(compiler, source, *flags, *first, "-DMEGCC_MODULE=x", "-H", "-Winvalid-pch", *include)
    assert f"! {first[1]}.gch" in said
    assert made == compiled(compiler, source, *flags, *include)[0]


def test_a_header_for_other_flags_or_a_broken_one_is_passed_over(kernel):
    compiler, flags, source, include = kernel
    first = intrinsics(compiler, flags, source.read_text())
    plain = compiled(compiler, source, *flags, "-O0", *include)[0]
    assert compiled(compiler, source, *flags, "-O0", *first, *include)[0] == plain
    with open(f"{first[1]}.gch", "r+b") as made:
        made.write(b"nothing that a compiler made")
    assert compiled(compiler, source, *flags, "-O0", *first, *include)[0] == plain


def test_without_a_cache(kernel, tmp_path, monkeypatch):
    compiler, flags, source, _ = kernel
    (tmp_path / "file").write_text("where a folder should be")
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "file"))
    assert intrinsics(compiler, flags, source.read_text()) == ()


def test_only_for_vectors_and_gcc():
    gcc = Compiler(("cc",), "cc (Debian 12.2.0) 12.2.0", False)
    assert intrinsics(gcc, (), '#include "megcc_kernel.h"\n#define MGC_ISA_C\n') == ()
    for clang in (Compiler(("cc",), "Apple clang version 15.0.0", False), Compiler(("zig", "cc"), "zig cc", True)):
        assert intrinsics(clang, (), "#define MGC_ISA_AVX2\n") == ()
