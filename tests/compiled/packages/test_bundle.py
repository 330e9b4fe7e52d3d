# SPDX-License-Identifier: Apache-2.0
"""The generated folder in the hands of its users: make, CMake, C++, several models, embedded or not."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.c_flags import WARNINGS, native_compiler, poison
from tests.compiled.models.test_strings import echo
from tests.onnx_models import model, node
from tvm_megcc import folders, paths
from tvm_megcc.codegen import bundle
from tvm_megcc.errors import MegccError, ShapeError
from tvm_megcc.runtime.load import load

CPLUSPLUS = ("-Wall", "-Wextra", "-Wpedantic", "-Wcast-qual", "-Wredundant-decls", "-Wundef", "-Werror")
SAMPLE = np.load(paths.examples() / "digits.npz")


def cc() -> str:
    return " ".join(native_compiler().command)


def run(*command, cwd, **env) -> str:
    result = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False,
                            env={**os.environ, **env}, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def artifact():
    return tvm_megcc.compile(paths.examples() / "digits.onnx", "native,arm64")


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """The same network retrained by the stroke of a pen, under another name."""
    model = onnx.load(paths.examples() / "digits.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "dense.b":
            tensor.raw_data = (np.frombuffer(tensor.raw_data, np.float32) + np.float32(100)).tobytes()
    path = tmp_path_factory.mktemp("second") / "second.onnx"
    onnx.save(model, path)
    return tvm_megcc.compile(path, "native,arm64")


@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.slow), "embedded"])
def folder(request, artifact, tmp_path):
    return artifact.save(tmp_path / "digits_megcc", embed=request.param == "embedded")


def expected_of_zeros(artifact) -> np.ndarray:
    """What the example prints: the network on an input of zeros."""
    model = onnx.load(paths.examples() / "digits.onnx")
    from onnx.reference import ReferenceEvaluator
    return ReferenceEvaluator(model).run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})[0][0]


def assert_prints_zeros(text: str, artifact) -> None:
    np.testing.assert_allclose([float(line) for line in text.split()], expected_of_zeros(artifact), rtol=1e-4,
                               atol=1e-4)


def test_what_is_in_it(folder, artifact):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    embedded = "digits_data.c" in names
    assert names.issuperset({"README.md", "digits.h", "kernels.c", "main.c", "CMakeLists.txt", "Makefile",
                             "manifest.json", "report.txt", "memory.svg", "runtime/include/megcc.h",
                             "digits_data.c" if embedded else "digits.megcc"})
    assert ("digits.megcc" in names) != embedded
    assert len((folder / "main.c").read_text().splitlines()) <= 40
    manifest = json.loads((folder / "manifest.json").read_text())
    assert names == {*manifest["files"], "manifest.json"}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    for path in folder.rglob("*.[ch]"):
        assert "SPDX-License-Identifier" in path.read_text()[:400], path


@pytest.mark.slow
def test_make_c_and_cplusplus(folder, artifact):
    run("make", "-j2", f"CC={cc()}", f"CFLAGS=-O1 {' '.join([*WARNINGS, *poison(cc().split())])}", cwd=folder)
    assert_prints_zeros(run("build/make/main", cwd=folder), artifact)
    compiler = shutil.which("g++") or shutil.which("c++") or pytest.skip("no C++ compiler: apt-get install g++")
    run(compiler, *CPLUSPLUS, "-Iruntime/include", "-I.", "-x", "c++", "main.c", "-x", "none",
        "build/make/libdigits.a", "-o", "build/cpp_main", cwd=folder)
    assert_prints_zeros(run("build/cpp_main", cwd=folder), artifact)


@pytest.mark.slow
def test_short_names(folder, artifact):
    """Kernels that a linker cannot confuse, if it takes 31 characters of a name."""
    run("make", "-j2", f"CC={cc()}", "CFLAGS=-O1 -DMEGCC_SHORT_NAMES", cwd=folder)
    assert_prints_zeros(run("build/make/main", cwd=folder), artifact)
    kernels = [path.stem for path in (folder / "kernels").glob("*.c")]
    found = {line.split()[-1] for line in run("nm", "-g", "build/make/main", cwd=folder).splitlines()}
    assert not found & set(kernels)
    assert len({name for name in found if name.startswith("megcc_") and len(name) == 31}) >= 3


@pytest.mark.parametrize("shapes", [
    pytest.param({"input_shapes": "image=(1,1,8,8):image=(3,1,8,8)"}, id="sets", marks=pytest.mark.slow),
    pytest.param({"dispatch": "image[0]=1..2,3..*"}, id="open")])
def test_example_with_shapes_that_change(shapes, artifact, tmp_path):
    changing = tvm_megcc.compile(paths.examples() / "digits.onnx", **shapes)
    folder = changing.save(tmp_path / "changing", embed=True)
    assert len((folder / "main.c").read_text().splitlines()) <= 42
    run("make", "-j2", f"CC={cc()}", f"CFLAGS=-O1 {' '.join(WARNINGS)}", cwd=folder)
    assert_prints_zeros(run("build/make/main", cwd=folder), artifact)
    assert "from 3" in (folder / "README.md").read_text() or "image_0 3" in (folder / "README.md").read_text()


def test_example_with_a_number_beside_shapes_that_change(tmp_path):
    """C99 has no empty initialisers."""
    made = model([node("Mul", "x n", "y")], {"x": ["rows", 3], "n": []}, {"y": ["rows", 3]})
    folder = tvm_megcc.compile(made, dispatch="x[0]=1..8").save(tmp_path / "net")
    run(*cc().split(), "-std=c99", *WARNINGS, "-fsyntax-only", "-Iruntime/include", "-I.", "main.c", cwd=folder)


@pytest.mark.slow
def test_cmake_in_a_project_and_installed(folder, artifact, tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("no cmake: apt-get install cmake")
    app = tmp_path / "app"
    app.mkdir()
    shutil.copy(folder / "main.c", app)
    for how in (f"add_subdirectory({folder} digits)", "find_package(digits REQUIRED)"):
        (app / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.15)\nproject(app C)\n" + how +
            "\nadd_executable(app main.c)\ntarget_link_libraries(app PRIVATE megcc::digits)\n")
        build = tmp_path / "build"
        run("cmake", "-S", app, "-B", build, f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}", cwd=tmp_path)
        run("cmake", "--build", build, "-j2", cwd=tmp_path)
        assert_prints_zeros(run(build / "app", cwd=folder), artifact)
        shutil.rmtree(build)
        run("cmake", "-S", folder, "-B", build, f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'installed'}", cwd=tmp_path)
        run("cmake", "--build", build, "-j2", "--target", "install", cwd=tmp_path)
        shutil.rmtree(build)


@pytest.mark.slow
def test_what_is_installed_is_found(tmp_path):
    """By a project, with libraries in a folder of the architecture, as Debian has them: all headers, and the model."""
    if not shutil.which("cmake"):
        pytest.skip("no cmake: apt-get install cmake")
    folder = tvm_megcc.compile(echo(["a", "b"]), "c", dims={"rows": 1}, name="echo").save(tmp_path / "folder")
    app = tmp_path / "app"
    app.mkdir()
    (app / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.15)\nproject(app C)\nfind_package(echo REQUIRED)\n"
        "if(NOT EXISTS ${echo_DATA}/echo.megcc)\n  message(FATAL_ERROR ${echo_DATA})\nendif()\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE megcc::echo)\n")
    (app / "main.c").write_text('#include "echo.h"\n#include "echo_strings.h"\n#include "megcc_realtime.h"\n'
                                'int main(void) { return (int)echo_code_of("b", 1) - 1; }\n')
    run("cmake", "-S", folder, "-B", "build", f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'installed'}",
        "-DCMAKE_INSTALL_LIBDIR=lib/any-linux-gnu", "-DCMAKE_BUILD_TYPE=Debug", cwd=tmp_path)
    run("cmake", "--build", "build", "-j2", "--target", "install", cwd=tmp_path)
    assert not list((tmp_path / "installed").rglob("megcc_simd.h"))
    found = next((tmp_path / "installed").rglob("echoConfig.cmake")).parent
    run("cmake", "-S", app, "-B", "app_build", f"-Decho_DIR={found}", cwd=tmp_path)
    run("cmake", "--build", "app_build", cwd=tmp_path)
    run("app_build/app", cwd=tmp_path)


@pytest.mark.parametrize("embed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["file", "embedded"])
def test_session(artifact, embed, tmp_path):
    cc()
    session = load(artifact.save(tmp_path / "digits_megcc", embed=embed))
    logits = session.run({"image": SAMPLE["in:image"]})["logits"]
    np.testing.assert_allclose(logits, SAMPLE["out:logits"], rtol=1e-4, atol=1e-4)
    profile = session.profile({"image": SAMPLE["in:image"]})
    assert [row["kernel"] for row in profile] == [call["kernel"] for call in session.calls]
    assert all(row["seconds"] > 0 for row in profile)
    trace = session.trace({"image": SAMPLE["in:image"]})
    assert np.frombuffer(trace[-1], np.float32).tobytes() == logits.tobytes()


def test_wrong_inputs(artifact, tmp_path):
    cc()
    session = load(artifact.save(tmp_path / "digits_megcc"))
    for inputs, message in (
            ({}, "misses its input 'image': float32[1,1,8,8]"),
            ({"picture": np.zeros(1)}, "no input 'picture'; its inputs are 'image': float32[1,1,8,8]"),
            ({"image": np.zeros((1, 1, 8, 8))}, "expects 'image': float32[1,1,8,8], and was given float64[1,1,8,8]"),
            ({"image": np.zeros((8, 8), np.float32)}, "expects 'image': float32[1,1,8,8], and was given float32[8,8]")):
        with pytest.raises(ShapeError) as refused:
            session.run(inputs)
        assert message in str(refused.value)


def test_a_folder_saved_again_is_loaded_anew(artifact, tmp_path):
    """The first library is still in the process, under the same path."""
    cc()
    folder = artifact.save(tmp_path / "again")
    first = load(folder)
    tvm_megcc.compile(paths.examples() / "digits.onnx", "native", optimize="size").save(folder)
    second = load(folder)
    inputs = {port.name: np.zeros(port.shape, port.dtype) for port in first.inputs}
    for name, array in first.run(inputs).items():
        np.testing.assert_allclose(second.run(inputs)[name], array, rtol=1e-5)


def test_a_damaged_container_is_refused(artifact, tmp_path):
    cc()
    folder = artifact.save(tmp_path / "digits_megcc")
    path = folder / "digits.megcc"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(MegccError, match="digits: "):
        load(folder)


def test_the_same_bytes_again_and_elsewhere(artifact, tmp_path, monkeypatch):
    first = bundle.contents([artifact])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.copy(paths.examples() / "digits.onnx", ".")
    assert bundle.contents([tvm_megcc.compile("digits.onnx", "native,arm64")]) == first
    for name, data in first.items():
        assert str(Path.home()).encode() not in bytes(data) or Path.home() == Path("/"), name


def test_a_failed_save_leaves_nothing(artifact, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("disk full")
    monkeypatch.setattr(folders, "pieces", fail)
    with pytest.raises(MegccError, match="cannot be written: disk full"):
        artifact.save(tmp_path / "digits_megcc")
    assert not any(tmp_path.iterdir())


BOTH = """
#include <stdio.h>
#include "digits.h"
#include "second.h"

static unsigned char block[DIGITS_MEMORY_BYTES + SECOND_MEMORY_BYTES + 128];

static float first_logit(const megcc_module *module, const char *path, void *memory, size_t size)
{
    static megcc_model model[2];
    static megcc_file file[2];
    static int n;
    megcc_session *session;
    megcc_tensor tensor;
    megcc_error error;
    if (megcc_model_load_file(&model[n], &file[n], module, path, NULL, &error)
        || megcc_session_open(&session, &model[n], memory, size, NULL, &error))
        return -1e9f;
    n++;
    float *image = (float *)megcc_session_input(session, 0, &tensor);
    for (size_t i = 0; i < tensor.bytes / 4; i++)
        image[i] = 0;
    return megcc_session_run(session, &error) ? -2e9f : *(const float *)megcc_session_output(session, 0, NULL);
}

int main(int argc, char **argv)
{
    unsigned char *p = block + 64 - (uintptr_t)block % 64;
    if (argc != 3)
        return 1;
    printf("%g\\n", (double)first_logit(&digits_module, argv[1], p, DIGITS_MEMORY_BYTES));
    p += (DIGITS_MEMORY_BYTES + 63) / 64 * 64;
    printf("%g\\n", (double)first_logit(&second_module, argv[2], p, SECOND_MEMORY_BYTES));
    return 0;
}
"""


def test_two_models_in_one_folder(artifact, second, tmp_path):
    folder = bundle.write([artifact, second], tmp_path / "both")
    kernels = list((folder / "kernels").glob("*.c"))
    assert len(kernels) == len([name for name in artifact.sources if "/" in name]), "kernels are shared"
    (folder / "main.c").write_text(BOTH)
    run("make", "-j2", f"CC={cc()}", f"CFLAGS=-O1 {' '.join(WARNINGS)}", cwd=folder)
    a, b = map(float, run("build/make/main", "digits.megcc", "second.megcc", cwd=folder).split())
    assert b == pytest.approx(a + 100, abs=1e-3)


@pytest.mark.slow
def test_two_folders_in_one_binary(artifact, second, tmp_path):
    compiler = cc().split()
    folders = [artifact.save(tmp_path / "digits_megcc"), second.save(tmp_path / "second_megcc")]
    for folder in folders:
        run("make", "-j2", f"CC={cc()}", cwd=folder)
    (tmp_path / "both.c").write_text(BOTH)
    run(*compiler, "-std=c99", *(f"-I{folder / sub}" for folder in folders for sub in (".", "runtime/include")),
        "both.c", *(folder / f"build/make/lib{name}.a" for folder, name in zip(folders, ("digits", "second"),
                                                                            strict=True)),
        "-o", "both", cwd=tmp_path)
    a, b = map(float, run("./both", folders[0] / "digits.megcc", folders[1] / "second.megcc", cwd=tmp_path).split())
    assert b == pytest.approx(a + 100, abs=1e-3)


@pytest.mark.parametrize("name", ["model", "test", "int", "block"])
def test_awkward_names(name, tmp_path):
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "c", name=name)
    folder = artifact.save(tmp_path / f"{name}_megcc")
    run(*cc().split(), "-std=c99", *WARNINGS, "-Iruntime/include", "-I.", "-c", "main.c", "-o", "main.o", cwd=folder)
    if shutil.which("cmake"):
        run("cmake", "-B", "build/cmake", ".", cwd=folder)


def test_a_model_cannot_take_the_name_of_a_header():
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "c", name="string")
    with pytest.raises(MegccError, match=r"with name"):
        bundle.contents([artifact])


def test_two_models_of_one_name_are_refused(artifact):
    with pytest.raises(MegccError, match=r"with name"):
        bundle.contents([artifact, artifact])
