# SPDX-License-Identifier: Apache-2.0
"""Object files that builds share."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node
from tvm_megcc import paths
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime import calls, objects
from tvm_megcc.runtime.build import build
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.objects import run_tool
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, native

DIGITS = paths.examples() / "digits.onnx"
STORE = "objects"


@pytest.fixture(scope="module", autouse=True)
def compiler():
    native_compiler()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """The C files that a compiler was called for."""
    names = []

    def counted(command):
        if "-c" in command:
            names.append(Path(command[command.index("-c") + 1]).name)
        run_tool(command)

    monkeypatch.setattr(objects, "run_tool", counted)
    return names


def test_another_folder_of_a_model_copies(tmp_path, cache, compiled):
    first = build(tvm_megcc.compile(DIGITS).save(tmp_path / "first"))
    assert "vm.c" in compiled and "kernels.c" in compiled
    compiled.clear()
    second = build(tvm_megcc.compile(DIGITS).save(tmp_path / "second"))
    assert compiled == ["megcc_py.c"]  # a macro says what it includes
    for made in (first, second):
        assert len(list((made.library.parent / "objects").glob("*.o"))) == len(list((cache / STORE).glob("*.o"))) + 1
    with load(tmp_path / "first") as one, load(tmp_path / "second") as other:
        feeds = {port.name: np.ones(port.shape, port.dtype) for port in one.inputs}
        for name, array in one.run(feeds).items():
            np.testing.assert_array_equal(array, other.run(feeds)[name])


def test_another_model_shares_the_runtime_and_kernels(tmp_path, cache, compiled):
    def network(name: str, *kinds: str):
        values = ["x", *(f"v{i}" for i in range(1, len(kinds))), "y"]
        return tvm_megcc.compile(model([node(kind, values[i], values[i + 1]) for i, kind in enumerate(kinds)],
                                       {"x": [3, 5]}, ["y"]), "c", name=name).save(tmp_path / name)

    build(network("one", "Erf"))
    compiled.clear()
    other = network("other", "Erf", "Softmax")
    build(other)
    kernels = {path.name for path in (other / "kernels").glob("*.c")}
    assert "kernels.c" in compiled and len(kernels) == 2 and len(kernels & set(compiled)) == 1
    assert not {path.name for path in (other / "runtime" / "src").glob("*.c")} & set(compiled)


def test_a_changed_header_is_compiled_again(tmp_path, cache, compiled):
    build(tvm_megcc.compile(DIGITS).save(tmp_path / "first"))
    folder = tvm_megcc.compile(DIGITS).save(tmp_path / "second")
    with (folder / "runtime" / "src" / "internal.h").open("a") as header:
        header.write("\n#define SOMETHING_NEW\n")
    compiled.clear()
    build(folder)
    assert {"vm.c", "session.c"} <= set(compiled)
    assert not {path.name for path in (folder / "kernels").glob("*.c")} & set(compiled)


@pytest.mark.parametrize("flag", ["-g", "-ggdb3", "-march=native", "-fprofile-arcs"])
def test_files_that_know_their_folder_are_not_shared(flag: str, tmp_path, cache, compiled):
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "first")
    objects.Objects(folder, tmp_path / "own", find_compiler(native())).compile_all(
        [folder / "runtime" / "src" / "status.c"], [flag])
    assert compiled == ["status.c"] and not any((cache / STORE).glob("*.o"))
    objects.Objects(folder, tmp_path / "own", find_compiler(native())).compile_all(
        [folder / "runtime" / "src" / "status.c"], ["-gno-column-info"])
    assert any((cache / STORE).glob("*.o"))


def test_builds_without_a_store(tmp_path, cache, monkeypatch):
    """There is no place for one, or what lies there cannot be read."""
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "first")
    monkeypatch.setattr(objects, "_store", lambda: None)
    build(folder)
    monkeypatch.undo()
    monkeypatch.setenv("MEGCC_CACHE", str(cache))
    shutil.rmtree(folder / "build")
    build(folder)
    for path in (cache / STORE).glob("*.o"):
        path.unlink()
        path.mkdir()
    shutil.rmtree(folder / "build")
    build(folder)


def test_what_was_not_used_goes_first(tmp_path, cache, monkeypatch):
    store = cache / STORE
    store.mkdir(parents=True, mode=0o700)
    for number in range(5):
        (store / f"{number}.o").write_bytes(bytes(100))
        os.utime(store / f"{number}.o", (1000 + number, 1000 + number))
    monkeypatch.setattr(objects, "STORE_BYTES", 250)
    monkeypatch.setattr(objects, "_limited", set())
    objects.Objects(tmp_path, tmp_path / "own", find_compiler(native())).compile_all([], [])
    assert sorted(path.name for path in store.iterdir()) == ["3.o", "4.o"]


def test_a_call_graph_that_is_gone_is_made_again(tmp_path, cache):
    """The store may have the object file alone: what is used least goes first."""
    try:
        find_compiler(TARGETS["cortex-m4"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    graphs = []
    for name in ("first", "second"):
        made = build(tvm_megcc.compile(DIGITS, "cortex-m4").save(tmp_path / name))
        graphs.append(made.program.with_suffix(calls.ENDING).read_text())
        for graph in (cache / STORE).glob(f"*{calls.ENDING}"):
            graph.unlink()
    assert graphs[0] and [calls.deepest(graph).bytes for graph in graphs] == [calls.deepest(graphs[0]).bytes] * 2


def test_headers_of_one_name_are_told_apart(tmp_path, cache, compiled):
    """The second, in another folder, decides as well."""
    made = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "runtime" / "include" / "deep").mkdir(parents=True)
        (folder / "runtime" / "include" / "one.h").write_text('#include "deep/one.h"\n')
        (folder / "runtime" / "include" / "deep" / "one.h").write_text(f"int f(void);\n#define NUMBER {number}\n")
        (folder / "a.c").write_text('#include "one.h"\nint f(void) { return NUMBER; }\n')
        made += objects.Objects(folder, folder / "own", find_compiler(native())).compile_all([folder / "a.c"], ["-O1"])
    assert compiled == ["a.c", "a.c"] and made[0].read_bytes() != made[1].read_bytes()
