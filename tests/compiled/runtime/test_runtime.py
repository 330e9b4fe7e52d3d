# SPDX-License-Identifier: Apache-2.0
"""The C runtime by itself, on containers and kernels made by hand (c_runtime/tests)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.c_flags import WARNINGS
from tvm_megcc.codegen import container

from .hostile_models import HOSTILE
from .runtime_models import MODELS, MODULES, WEIGHT

ROOT = Path(__file__).parents[3] / "c_runtime"
SOURCES = sorted((ROOT / "src").glob("*.c"))
TEST_SOURCES = sorted((ROOT / "tests").glob("*.c"))
TESTS = re.findall(r"TEST\((\w+)\)", (ROOT / "tests" / "test_runtime.c").read_text().split("tests[] =")[1])
FLAGS = ["-std=c99", "-O2", *WARNINGS, f"-I{ROOT / 'include'}"]
STRICT = [*FLAGS, "-Wframe-larger-than=1024"]
SMALL = ["-Os", *(f"-DMEGCC_NO_{name}" for name in ("DYNAMIC", "REGIONS", "STRINGS", "STDIO", "THREADS")),
         "-ffunction-sections", "-fdata-sections", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: What the core may ask of the C library. Compilers call these by themselves as well.
ALLOWED = {"memcpy", "memset", "memcmp", "getauxval"}

CC = next((cc for cc in ("cc", "gcc", "clang") if shutil.which(cc)), None)
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def call(command, **options) -> str:
    """Standard output of a command that must succeed."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def has_flags(*flags: str, cc: str = "") -> bool:
    """Whether the compiler makes a program with these flags."""
    program = b"#include <stdio.h>\nint main(void) { return puts(\"\"); }"
    with tempfile.TemporaryDirectory() as aside:  # some linkers, run as root, replace /dev/null by a file
        command = [cc or CC, *flags, "-x", "c", "-", "-o", f"{aside}/program"]
        return subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0


def need(*tools: str) -> str:
    """The first of the tools that is installed; otherwise the test is skipped."""
    for tool in tools:
        if shutil.which(tool):
            return tool
    pytest.skip(f"{' or '.join(tools)} is not installed")


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """The containers."""
    return write_containers(tmp_path_factory.mktemp("containers"))


def write_containers(path: Path) -> Path:
    """All that test_runtime.c opens."""
    for name, model in MODELS.items():
        (path / f"{name}.megcc").write_bytes(container.write(model()))
    _write_sparse(path / "sparse.megcc")
    (path / "hostile.txt").write_text("".join(
        f"{name} {module} {field}\n" for name, (module, _, field) in HOSTILE.items()))
    for name, (_, model, _) in HOSTILE.items():
        (path / f"{name}.megcc").write_bytes(container.write(model))
    return path


def _write_sparse(path: Path) -> None:
    """As large, with the weight 5 GB further on; what is not written takes no room."""
    large, beyond = MODELS["large"](), 5 << 30
    moved = container.Image(replace(large, programs=tuple(replace(program, tensors=tuple(
        replace(row, data=row.data + beyond) if row.storage == container.Storage.weight else row
        for row in program.tensors)) for program in large.programs)))
    with path.open("wb") as file:
        file.writelines(list(moved.pieces())[:-1])
        file.seek(beyond, os.SEEK_CUR)
        file.write(large.weights)


def build(output: Path, *flags, cc: str = "", sources=(*SOURCES, *TEST_SOURCES)) -> Path:
    call([cc or CC, *FLAGS, *flags, *sources, "-o", output, "-lm", "-pthread"])
    return output


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory) -> Path:
    """The tests with a compiler that has sanitizers; clang's see more, as arithmetic on NULL."""
    output = tmp_path_factory.mktemp("build") / "sanitized"
    compilers = [cc for cc in ("clang", CC) if shutil.which(cc) and has_flags(*SANITIZE, cc=cc)]
    return build(output, *SANITIZE, cc=compilers[0]) if compilers else build(output)


@pytest.mark.parametrize("name", TESTS)
def test_behaviour(name: str, sanitized: Path, folder: Path):
    assert call([sanitized, folder, name]) == f"{name} passed\n"


@pytest.mark.parametrize("cc", ["gcc", "clang-19", "clang", "aarch64-linux-gnu-gcc",
                                pytest.param("arm-none-eabi-gcc", marks=pytest.mark.slow)])
def test_no_warnings(cc: str, tmp_path: Path):
    need(cc)
    for source in SOURCES:
        call([cc, *STRICT, "-c", source, "-o", tmp_path / "o.o"])
        call([cc, *STRICT, *SMALL, "-c", source, "-o", tmp_path / "o.o"])


@pytest.mark.parametrize("standard", ["-std=c99", "-std=c++98", "-std=c++17"])
def test_headers_by_themselves(standard: str, tmp_path: Path):
    source = tmp_path / "include.c"
    source.write_text('#include "megcc.h"\n#include "megcc.h"\nmegcc_model model;\n')
    language = ["-x", "c"] if "c99" in standard else ["-x", "c++", "-Wno-long-long"]
    compiler = CC if "c99" in standard else need("g++", "clang++")
    call([compiler, *language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'include'}", "-c",
          source, "-o", tmp_path / "o.o"])


ALL_SWITCHES = ("DYNAMIC", "STRINGS", "THREADS", "REGIONS", "CPU_DETECT")
SWITCHES = [ALL_SWITCHES, *(pytest.param((name,), marks=pytest.mark.slow) for name in ALL_SWITCHES)]


@pytest.mark.parametrize("switches", SWITCHES, ids="+".join)
def test_switches(switches, folder: Path, tmp_path: Path):
    program = build(tmp_path / "test", *(f"-DMEGCC_NO_{name}" for name in switches))
    assert call([program, folder, "all"]).splitlines() == [f"{name} passed" for name in TESTS]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O3", "-Os", "-flto"])
def test_optimisation(level: str, folder: Path, tmp_path: Path):
    program = build(tmp_path / "test", level)
    assert call([program, folder, "all"]).count("passed") == len(TESTS)


@pytest.mark.slow
def test_threads_do_not_race(folder: Path, tmp_path: Path):
    if not has_flags("-fsanitize=thread"):
        pytest.skip("this compiler has no thread sanitizer")
    program = build(tmp_path / "test", "-g", "-fsanitize=thread")
    result = subprocess.run([program, folder, "pool"], capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("the thread sanitizer does not work on this kernel")
    assert result.returncode == 0, result.stderr


def objects(cc: str, folder: Path, *flags) -> list[Path]:
    made = []
    for source in SOURCES:
        made.append(folder / f"{source.stem}.o")
        call([cc, "-std=c99", *flags, f"-I{ROOT / 'include'}", "-c", source, "-o", made[-1]])
    return made


@pytest.mark.parametrize("flags", [["-O2"], SMALL], ids=["full", "small"])
def test_core_needs_nothing_and_has_no_data(flags, tmp_path: Path):
    need("nm")
    for path in objects(CC, tmp_path, *flags, "-fno-stack-protector"):
        sections = dict(re.findall(r"^(\.\S+)\s+(\d+)", call(["size", "-A", path]), re.MULTILINE))
        for name, size in sections.items():
            writable = name.startswith((".data", ".bss", ".tdata", ".tbss")) and not name.startswith(".data.rel.ro")
            assert not writable or size == "0", f"{path.name} has {size} bytes of {name}"
        if path.stem in ("host", "pool") and "-O2" in flags:
            continue
        undefined = {line.split()[-1] for line in call(["nm", "-u", path]).splitlines()}
        outside = {name for name in undefined if not name.startswith("megcc_")} - ALLOWED
        assert outside <= {"_GLOBAL_OFFSET_TABLE_"}, f"{path.name} uses {outside}"


def test_size(tmp_path: Path):
    """The static profile on arm64: code and constants."""
    cc = need("aarch64-linux-gnu-gcc")
    made = objects(cc, tmp_path, *SMALL)
    total = int(call(["aarch64-linux-gnu-size", "-t", *made]).splitlines()[-1].split()[0])
    assert total <= 12 * 1024


def test_no_library_headers(tmp_path: Path):
    """A bare machine: the compiler's own headers are enough."""
    cc = need("clang-19", "clang")
    for source in SOURCES:
        call([cc, "--target=thumbv7em-none-eabihf", "-ffreestanding", "-nostdlibinc", "-std=c99", *SMALL,
              f"-I{ROOT / 'include'}", "-c", source, "-o", tmp_path / "o.o"])


@pytest.mark.slow
@pytest.mark.parametrize(("cc", "qemu"), [("aarch64-linux-gnu-gcc", "qemu-aarch64"),
                                          ("arm-linux-gnueabihf-gcc", "qemu-arm")])
def test_emulated(cc: str, qemu: str, folder: Path, tmp_path: Path):
    qemu = need(qemu, f"{qemu}-static")
    if not has_flags("-static", cc=need(cc)):
        pytest.skip(f"{cc} has no C library")
    program = build(tmp_path / "test", "-static", cc=cc)
    assert call([qemu, program, folder, "all"]).count("passed") == len(TESTS)


# --- megcc_run ---------------------------------------------------------------------------------------------------

@pytest.fixture(scope="session")
def megcc_run(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("run") / "megcc_run", "-DMEGCC_MODULE=static_module",
                 sources=(*SOURCES, ROOT / "tests" / "kernels.c", ROOT / "tools" / "megcc_run.c"))


def test_run_command(megcc_run: Path, folder: Path, tmp_path: Path):
    x = np.arange(24, dtype=np.float32) + 1
    x.tofile(tmp_path / "x.bin")
    np.full(24, 0.25, np.float32).tofile(tmp_path / "h.bin")
    out = call([megcc_run, "--input", f"x={tmp_path / 'x.bin'}", "--input", f"h={tmp_path / 'h.bin'}", "--output",
                f"y={tmp_path / 'y.bin'}", "--repeat", "3", "--warmup", "1", "--profile", "--threads", "2", "--mark",
                "--check", "--shape", "x=4,6"], cwd=folder)
    # Four runs, each adding to the state that the first one began with.
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), 4 * x * np.array(WEIGHT) + 0.25)
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["output", "0", "float32", "[24]", "plain", "96", "y"]
    assert lines[2][0:2] == ["run", "median_us"] and lines[2][3] == "min_us" and lines[2][5:] == ["repeat", "3"]
    assert [(line[0], line[1], line[-1]) for line in lines[3:]] == [
        ("instruction", str(i), name) for i, name in enumerate(("mul", "add", "check", "copy"))]


def test_run_command_shapes(folder: Path, tmp_path: Path):
    # A module whose model is called a_module.
    program = build(tmp_path / "megcc_run", "-Ddynamic_module=a_module_module", "-DMEGCC_MODULE=a_module_module",
                    sources=(*SOURCES, ROOT / "tests" / "kernels.c", ROOT / "tools" / "megcc_run.c"))
    a = np.arange(15, dtype=np.float32)
    a.tofile(tmp_path / "a.bin")
    for model in ("dynamic.megcc", "unbounded.megcc"):
        call([program, "--model", model, "--shape", "a=5,3", "--shape", "b=10", "--input", f"a={tmp_path / 'a.bin'}",
              "--output", f"y={tmp_path / 'y.bin'}", "--repeat", "2", "--profile"], cwd=folder)
        np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), 4 * a)
    for shapes in ([], ["--shape", "a=5,3"], ["--shape", "a=5,3", "--shape", "b=9"], ["--shape", "a=99,3"]):
        result = subprocess.run([program, "--model", "dynamic.megcc", *shapes], cwd=folder, capture_output=True,
                                text=True, check=False)
        assert result.returncode == 1 and "not compiled for this shape: shapes" in result.stderr
    result = subprocess.run([program], cwd=folder, capture_output=True, text=True, check=False)
    assert result.stderr.startswith("megcc_run: a_module.megcc\n")  # the default file


def test_run_command_info(megcc_run: Path, folder: Path):
    facts = dict(line.split(" ", 1) for line in call([megcc_run, "--info"], cwd=folder).splitlines()[:8])
    assert facts["model"] == "static" and facts["instructions"] == "4" and facts["workers"] == "4"


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["--what"], 2, "megcc_run [--model"), (["--repeat", "0"], 2, "megcc_run [--model"),
    (["--input", "x"], 2, "megcc_run [--model"), (["--model", "none"], 1, "cannot read the file"),
    (["--input", "q=x"], 1, "no such input or output: q"), (["--input", "x=static.megcc"], 1, "96 bytes of input x"),
    (["--shape", "x=4,5"], 1, "not compiled for this shape"), (["--shape", "x=4,"], 1, "not compiled for this shape"),
    (["--threads", "5"], 1, "so many threads"), (["--model", "dynamic.megcc"], 1, "other code"),
])
def test_run_command_errors(arguments, code: int, message: str, megcc_run: Path, folder: Path):
    result = subprocess.run([megcc_run, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (code, "")
    assert message in result.stderr


@pytest.mark.slow
def test_memory_macro(folder: Path, tmp_path: Path):
    """What the generated header says is what the runtime wants."""
    for name, model in MODELS.items():
        own = model()
        programs = [p for p in own.programs if p.code_id != 99]
        expression = container.memory_expression(container.ContainerModel(name, 0, tuple(programs), b""))
        module = MODULES[name]
        source = tmp_path / f"{name}.c"
        source.write_text(f"""#include "megcc.h"
            extern const megcc_module {module};
            int main(void) {{
                megcc_model model;
                megcc_file file;
                return megcc_model_load_file(&model, &file, &{module}, "{folder}/{name}.megcc", NULL, NULL) != 0
                    || megcc_model_memory(&model, NULL) != {expression};
            }}""")
        call([build(tmp_path / name, sources=(*SOURCES, ROOT / "tests" / "kernels.c", source))])
