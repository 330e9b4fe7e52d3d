# SPDX-License-Identifier: Apache-2.0
"""Building generated folders: by many processes at once, and where nothing can be written."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import WARNINGS, native_compiler
from tvm_megcc import paths
from tvm_megcc.errors import MegccError
from tvm_megcc.runtime import build as build_module
from tvm_megcc.runtime import objects
from tvm_megcc.runtime.build import build, compile_objects
from tvm_megcc.runtime.device import build_library
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.objects import run_tool
from tvm_megcc.target import native

DIGITS = paths.examples() / "digits.onnx"


pytestmark = pytest.mark.usefixtures("unshared")


@pytest.fixture(scope="module", autouse=True)
def compiler():
    native_compiler()


@pytest.fixture
def folder(tmp_path):
    return tvm_megcc.compile(DIGITS).save(tmp_path / "digits_megcc")


def test_what_a_killed_build_left_is_removed(folder):
    left = folder / "build" / native().name / "objects" / ".megcc-left"
    left.mkdir(parents=True)
    (left / "o.o").write_bytes(b"half")
    compile_objects(folder)
    assert not left.exists() and not list(left.parent.glob(".megcc-*")) and list(left.parent.glob("*.o"))


def test_a_folder_of_another_version(folder):
    """Its runtime lacks what this version's files read. The message says so, not that of the C compiler."""
    header = folder / "runtime" / "include" / "megcc.h"
    header.write_text(header.read_text().replace("unbacked_symbols", "other_symbols"))
    with pytest.raises(MegccError, match="another version of tvm_megcc"):
        build(folder)
    (folder / "runtime" / "src" / "vm.c").write_text("#error broken\n")
    shutil.copy(paths.c_runtime() / "include" / "megcc.h", header)
    with pytest.raises(MegccError, match="#error broken"):
        build(folder)


@pytest.mark.slow
def test_many_builds_at_once_do_the_work_once(folder, monkeypatch):
    commands = []

    def counted(command):
        commands.append(" ".join(command[:-1]))  # without the place of the result
        run_tool(command)

    monkeypatch.setattr(objects, "run_tool", counted)
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(build, [folder] * 4))
    assert len({one.library for one in built}) == 1
    assert len(commands) == len(set(commands)) > 10


@pytest.mark.slow
def test_a_library_is_up_to_date_until_a_file_changes(folder, monkeypatch):
    built, compared = build(folder), []
    monkeypatch.setattr(build_module, "Objects", lambda *args: compared.append(args) or objects.Objects(*args))
    assert build(folder) == built and not compared
    source = next(folder.glob("kernels/*.c"))
    before, text = source.stat(), source.read_text()
    source.write_text(text.replace("Generated", "generated", 1))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert build(folder) == built and len(compared) == 1
    assert build(folder, cflags=("-DOTHER",)).library == built.library and len(compared) == 2
    assert build(folder) == built and len(compared) == 3
    monkeypatch.setenv("CC", "gcc")
    assert build(folder).compiler.command == ("gcc",) and len(compared) == 4


@pytest.mark.parametrize("options", [
    pytest.param({}, id="fixed"), pytest.param({"dispatch": "image[0]=1..2,3..*", "optimize": "size"}, id="open")])
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_all_files_are_free_of_warnings(cc, options, tmp_path):
    """Kernels, their table, the container, the example and the runtime. Without optimisation intrinsics are
    macros, which gcc warns of as if they were ours."""
    if not shutil.which(cc):
        pytest.skip(f"no {cc} on this machine")
    folder = tvm_megcc.compile(DIGITS, "native,c", **options).save(tmp_path / "digits_megcc", embed=True)
    sources = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.c"))]
    assert {"main.c", "kernels.c", "digits_data.c", "runtime/src/vm.c"} < set(sources)
    subprocess.run([cc, "-std=c99", "-O1", *native().cflags, *WARNINGS, "-Iruntime/include", "-I.",
                    "-fsyntax-only", *sources], cwd=folder, check=True)


@pytest.mark.slow
def test_eight_processes_and_one_cold_cache(tmp_path):
    environment = {**os.environ, "MEGCC_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tvm_megcc", "run", str(DIGITS), "--json", "--repeat", "1"]
    running = [subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True) for _ in range(8)]
    said = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * 8, said
    left = [path.name for path in (tmp_path / "cache").rglob("*") if path.name.startswith((".", "tmp"))]
    assert not left


def refuse_to_write(monkeypatch) -> None:
    """As on a file system that is mounted read-only: this user may be root, whom permissions do not stop."""
    def refuse(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/somewhere")

    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)


@pytest.mark.slow
@pytest.mark.parametrize("make", [build, build_library, compile_objects])
def test_a_folder_that_cannot_be_written(folder, make, monkeypatch):
    """What is built runs; what is not is refused with what to do."""
    with monkeypatch.context() as patch:
        refuse_to_write(patch)
        with pytest.raises(MegccError, match=r"is not built, and cannot be: Read-only file system.*MEGCC_CACHE"):
            make(folder)
    made = make(folder)
    monkeypatch.setattr(objects, "run_tool", None)
    refuse_to_write(monkeypatch)
    assert make(folder) == made


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MegccError, match=r"cannot be written: Not a directory.*\$MEGCC_CACHE"):
        tvm_megcc.compile(DIGITS).save(paths.cache() / "models" / "digits")


@pytest.mark.slow
def test_a_folder_that_is_replaced_while_it_is_built(folder):
    other = tvm_megcc.compile(DIGITS, optimize="size")

    def one(index: int):
        return build(folder).library if index % 2 else other.save(folder)

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(one, range(4)))) == 2
    assert load(folder).name == "digits"


@pytest.mark.slow
def test_a_program_that_trusts_its_container_runs_it_and_no_other(tmp_path):
    """MEGCC_TRUSTED_DATA: nothing is checked but what the kernels were made for."""
    said = {}
    for optimize in ("speed", "size"):
        tvm_megcc.compile(DIGITS, "c", optimize=optimize, name="m").save(tmp_path / optimize, embed=True)
    for data in ("speed", "size"):
        folder = tmp_path / f"with_{data}"
        shutil.copytree(tmp_path / "speed", folder)
        (folder / "m_data.c").write_bytes((tmp_path / data / "m_data.c").read_bytes())
        subprocess.run(["make", "-s", "CC=gcc", "CFLAGS=-O1 -DMEGCC_TRUSTED_DATA"], cwd=folder, check=True)
        said[data] = subprocess.run([folder / "build/make/main"], capture_output=True, text=True)
    assert said["speed"].returncode == 0 and len(said["speed"].stdout.split()) >= 10
    assert said["size"].returncode == 1 and "code_id" in said["size"].stderr


def _compiled_for_riscv(folder, output, *flags):
    compiler = "riscv64-linux-gnu-gcc"
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} on this machine")
    sources = sorted(str(path) for path in [*folder.glob("*.c"), *(folder / "kernels").glob("*.c"),
                                            *(folder / "runtime/src").glob("*.c")])
    return subprocess.run([compiler, "-O1", f"-I{folder}", f"-I{folder / 'runtime/include'}", *sources, "-o", output,
                           *flags], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["riscv64,riscv64-v", "riscv64-v,c"])
def test_a_level_that_the_compiler_does_not_know_is_left_out(target, tmp_path):
    """gcc has no vectors for our kernels; a CPU that has some takes the other level."""
    folder = tvm_megcc.compile(DIGITS, target).save(tmp_path / "digits", embed=True)
    done = _compiled_for_riscv(folder, tmp_path / "program", "-static")
    assert done.returncode == 0, done.stderr
    if not shutil.which("qemu-riscv64"):
        pytest.skip("no qemu-riscv64 on this machine")
    plain = tvm_megcc.load(tvm_megcc.compile(DIGITS, "c").save(tmp_path / "plain"), "c")
    wanted = plain.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["logits"].ravel()
    for cpu in ("rv64", "rv64,v=true"):
        said = subprocess.run(["qemu-riscv64", "-cpu", cpu, tmp_path / "program"], capture_output=True, text=True,
                              check=True).stdout
        np.testing.assert_allclose(np.array(said.split(), np.float32), wanted, rtol=1e-5)


def test_a_folder_of_which_the_compiler_knows_no_level_says_so(tmp_path):
    folder = tvm_megcc.compile(DIGITS, "riscv64-v").save(tmp_path / "digits", embed=True)
    done = _compiled_for_riscv(folder, "-", "-fsyntax-only")
    assert done.returncode and "riscv64-v requires clang 18 or newer" in done.stderr
    assert "--target riscv64-v,riscv64" in done.stderr and done.stderr.count("error:") == 1
