# SPDX-License-Identifier: Apache-2.0
"""Programs that are compiled and run: every function on images, functions of the user's, shared weights and memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_cv import called, library
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import main
from tvm_megcc.codegen import container
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MegccError, ShapeError
from tvm_megcc.runtime.objects import Objects
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Image, Network, Operator, State

pytestmark = pytest.mark.slow
MATRIX = [0.5, 0.1, 1.0, -0.1, 0.5, 2.0]


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_are_those_of_the_library(tmp_path, dtype):
    """Each function gives the bits of the same call of megcc_cv, or what numpy says where nothing is computed."""
    steps = [
        Image("crop", "x", "cropped", {"x": 3, "y": 2, "size": [12, 18]}),
        Image("rotate", "cropped", "turned", {"degrees": 90}),
        Image("flip", "cropped", "mirrored", {"mirrored": "both"}),
        Image("color", "cropped", "swapped", {"code": "RGB_BGR"}),
        Image("resize", "x", "near", {"size": [7, 9], "method": "nearest"}),
        Image("letterbox", "x", "boxed", {"size": [16, 16], "value": [114, 7, 300]}),
        Image("blur", "cropped", "blurred", {"size": [3, 5], "sigma": [1.0, 0.5]}),
        Image("warp_affine", "x", "warped", {"size": [8, 10], "matrix": MATRIX, "value": [1, 2, 3]}),
        Image("warp_affine", "x", "led", {"size": [8, 10], "matrix": "m", "border": "replicate"}),
        Operator("Identity", ["m"], ["same"])]
    outputs = ["turned", "mirrored", "swapped", "near", "boxed", "blurred", "warped", "led", "same"]
    program = Program("pictures", {"x": f"{dtype}[20,30,3]", "m": "float32[6]"}, steps, outputs)
    generator = np.random.default_rng(1)
    x = generator.integers(0, 256, (20, 30, 3)).astype(dtype)
    matrix = np.array(MATRIX, np.float32)
    with tvm_megcc.load(program.compile(tmp_path / "pictures")) as session:
        found = session.run({"x": x, "m": matrix})
    cropped = x[2:14, 3:21]
    np.testing.assert_array_equal(found["turned"], np.rot90(cropped, -1))
    np.testing.assert_array_equal(found["mirrored"], cropped[::-1, ::-1])
    np.testing.assert_array_equal(found["swapped"], cropped[..., ::-1])
    np.testing.assert_array_equal(found["near"], x[np.arange(7) * 20 // 7][:, np.arange(9) * 30 // 9])
    np.testing.assert_array_equal(found["same"], matrix)

    cv = library(native().name, tmp_path)
    work, zeros, value = np.empty(1 << 16, np.uint8), np.zeros(3, np.float32), np.array([1, 2, 3], np.float32)
    fill = np.array([114, 7, 255 if dtype == "uint8" else 300], dtype)
    boxed = np.broadcast_to(fill, (16, 16, 3)).copy()
    boxed[2:13] = called(cv, "resize", x, (11, 16, 3), 1, pointer(work))
    np.testing.assert_array_equal(found["boxed"], boxed)
    blurred = called(cv, "gaussian_blur", np.ascontiguousarray(cropped), (12, 18, 3), 5, 3, ctypes.c_float(0.5),
                     ctypes.c_float(1.0), pointer(work))
    np.testing.assert_array_equal(found["blurred"], blurred)
    for name, border, values in (("warped", 0, value), ("led", 1, zeros)):
        expected = called(cv, "warp_affine", x, (8, 10, 3), pointer(matrix), border, pointer(values))
        np.testing.assert_array_equal(found[name], expected)


def product(tmp_path, name: str) -> str:
    weights = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    return saved(model([node("MatMul", "x w", "p"), node("Tanh", "p", "y")], {"x": ("float32", [1, 64])},
                       {"y": ("float32", [1, 64])}, {"w": weights}), tmp_path / f"{name}.onnx")


def test_equal_weights_are_stored_once(tmp_path, capsys):
    """A network runs twice in one program, and its states are apart: a running sum of what goes through."""
    path = product(tmp_path, "layer")
    program = Program("twice", {"x": "float32[1,64]"}, [
        Network(path, {"x": "x"}, {"y": "once"}), Network(path, {"x": "once"}, {"y": "again"}),
        Operator("Add", ["again", "sum_before"], ["total"])], ["total"],
        {"sum_before": State("float32[1,64]", "total")})
    folder = program.compile(tmp_path / "twice")
    facts = read_manifest(folder)["program"]
    assert facts["weight_bytes"] == 64 * 64 * 4 and facts["unshared"]["weight_bytes"] == 2 * 64 * 64 * 4
    assert facts["container_bytes"] == (folder / "twice.megcc").stat().st_size < 20_000
    assert [path.name for path in folder.glob("*.megcc")] == ["twice.megcc"]
    data = (folder / "twice.megcc").read_bytes()
    assert container.read(data).name == "twice_layer", "the first network is where the file begins"

    alone = tvm_megcc.load(tvm_megcc.compile(path, name="alone").save(tmp_path / "alone"))
    x, total = np.linspace(-1, 1, 64, dtype=np.float32)[None], np.zeros((1, 64), np.float32)
    with tvm_megcc.load(folder) as session:
        for _ in range(3):
            x = x * np.float32(0.5)
            total = alone(alone(x)) + total
            np.testing.assert_array_equal(session(x), total)
        session.reset()
        np.testing.assert_array_equal(session(x), alone(alone(x)))
        with pytest.raises(ShapeError, match="expects 'x': float32"):
            session.run({"x": x[0]})
    with pytest.raises(MegccError, match="is closed"):
        session(x)
    with pytest.raises(MegccError, match="its networks run as its steps"):
        tvm_megcc.load(folder, model="twice_layer")
    assert main(["export", str(folder), "--for", "cmake", "-o", str(tmp_path / "package")]) == 1
    assert "which has no package for cmake" in capsys.readouterr().err


def test_a_folder_is_loaded_again_after_another_program_was_compiled_to_it(tmp_path):
    """In one process: earlier sessions stay what they are, and each session has states of its own."""
    x = np.arange(4, dtype=np.float32)

    def loaded(operator: str):
        program = Program("same", {"x": "float32[4]"}, [Operator(operator, ["x", "sum_before"], ["y"])], ["y"],
                          {"sum_before": State("float32[4]", "y")})
        return tvm_megcc.load(program.compile(tmp_path / "same"))

    sums, differences = loaded("Add"), loaded("Sub")
    others, fewer = loaded("Add"), Program("same", {"x": "float32[4]"}, [Operator("Neg", ["x"], ["z"])], ["z"])
    negative = tvm_megcc.load(fewer.compile(tmp_path / "same"))
    for count in range(1, 4):
        np.testing.assert_array_equal(sums(x), count * x)
        np.testing.assert_array_equal(differences(x), x if count % 2 else 0 * x)
        np.testing.assert_array_equal(negative(x), -x)
    np.testing.assert_array_equal(others(x), x)
    sums.reset()
    np.testing.assert_array_equal(sums(x), x)
    np.testing.assert_array_equal(others(x), 2 * x)
    sums.close()
    np.testing.assert_array_equal(tvm_megcc.load(tmp_path / "same")(x), -x)


def test_a_damaged_container_is_refused(tmp_path):
    program = Program("one", {"x": "float32[1,64]"}, [Network(product(tmp_path, "layer"), {"x": "x"}, {"y": "y"})],
                      ["y"])
    folder = program.compile(tmp_path / "one")
    path = folder / "one.megcc"
    whole = path.read_bytes()
    for data in (whole[:-64], whole + bytes(64), bytes(len(whole)), whole[:40] + b"\xff" * 64 + whole[104:]):
        path.write_bytes(data)
        with pytest.raises(MegccError, match=r"^one: "):
            tvm_megcc.load(folder)
    path.write_bytes(whole)
    tvm_megcc.load(folder).close()


def test_a_built_folder_is_not_compiled_again(tmp_path, monkeypatch):
    program = Program("one", {"x": "float32[1,64]"}, [Network(product(tmp_path, "layer"), {"x": "x"}, {"y": "y"})],
                      ["y"])
    folder = program.compile(tmp_path / "one")
    for _ in range(2):  # the first one may end within the tick of the clock in which the folder was written
        tvm_megcc.load(folder).close()

    def compile_all(*_: object) -> list[object]:
        raise MegccError("it is compiled")

    monkeypatch.setattr(Objects, "compile_all", compile_all)
    tvm_megcc.load(folder).close()
    (folder / "one.c").write_text((folder / "one.c").read_text() + "\n")
    with pytest.raises(MegccError, match="it is compiled"):
        tvm_megcc.load(folder)


def test_its_container_and_header_are_installed(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("no cmake: apt-get install cmake")
    program = Program("sums", {"x": "float32[4]"}, [Operator("Identity", ["x"], ["y"])], ["y"])
    folder = program.compile(tmp_path / "sums")
    subprocess.run(["cmake", "-S", folder, "-B", tmp_path / "build"], check=True)
    (tmp_path / "build/libsums_identity.a").touch()  # as if it were compiled
    subprocess.run(["cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "installed"], check=True)
    assert {path.name for path in (tmp_path / "installed").rglob("sums*.*")} >= {
        "sums.h", "sums_identity.h", "sums.megcc"}


def test_functions_of_the_user_are_steps(tmp_path):
    (tmp_path / "halve.c").write_text("""
#include <stdint.h>
int halve(const float *x, const int32_t *x_dims, float *y, const int32_t *y_dims)
{
    for (int32_t i = 0; i < x_dims[0]; i++)
        y[i] = x[i] * 0.5f;
    return y_dims[0] != x_dims[0];
}
""")
    (tmp_path / "mine.py").write_text("""
from tvm_megcc import extern
HALVE = extern.Operator("com.example", "Halve", source="halve.c", inputs={"x": "float32"}, outputs={"y": "float32"},
                        compute=lambda attrs, x: [x * np.float32(0.5)])
""".replace("from tvm_megcc", "import numpy as np\nfrom tvm_megcc"))
    program = Program("mine", {"x": "float32[5]"}, [
        Operator("com.example::Halve", ["x"], ["half"], extern=str(tmp_path / "mine.py")),
        Operator("Add", ["half", 1.5], ["y"])], ["y"])
    x = np.arange(5, dtype=np.float32)
    with tvm_megcc.load(program.compile(tmp_path / "mine")) as session:
        np.testing.assert_array_equal(session(x), x * np.float32(0.5) + np.float32(1.5))


def test_workers(tmp_path):
    """Two workers share the work of each network, and give the bits of one; the folder says how many there may be."""
    random = np.random.default_rng(3)
    w = random.standard_normal((96, 160)).astype(np.float32)
    path = saved(model([node("MatMul", "a w", "b")], {"a": [64, 96]}, {"b": [64, 160]}, {"w": w}), tmp_path / "m.onnx")
    program = Program("pair", {"x": "float32[64,96]"}, [
        Network(path, {"a": "x"}, {"b": "y"}, name="product"), Operator("Softmax", ["y"], ["z"])], ["z"])
    folder = program.compile(tmp_path / "pair", threads=2)
    x = random.standard_normal((64, 96)).astype(np.float32)
    found = []
    for threads in (None, 1, 2):
        with tvm_megcc.load(folder, threads=threads) as session:
            found.append(session(x))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with pytest.raises(MegccError, match=r"threads: 3 is no number from 1 to 2: .* was compiled for 2"):
        tvm_megcc.load(folder, threads=3)
    compiler = find_compiler(native())
    subprocess.run([*compiler.command, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wcast-qual", "-Wshadow", "-Werror",
                    "-pedantic", f"-I{folder}", f"-I{folder / 'runtime/include'}", "-c", str(folder / "pair.c"), "-o",
                    str(tmp_path / "pair.o")], check=True)
    with pytest.raises(MegccError, match="threads"):
        program.compile(tmp_path / "none", threads=0)


def test_what_is_generated_calls_no_allocator(tmp_path):
    """The steps call the runtime, memcpy and memset; clang and gcc find nothing to warn of."""
    program = Program("one", {"x": "uint8[8,8,1]"}, [
        Image("resize", "x", "small", {"size": [4, 4]}), Operator("Cast", ["small"], ["real"], {"to": 1}),
        Operator("Reshape", ["real", [16]], ["y"])], ["y"])
    folder = program.compile(tmp_path / "one")
    compiler = find_compiler(native())
    subprocess.run([*compiler.command, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wcast-qual", "-Wshadow", "-Werror",
                    "-pedantic", f"-I{folder}", f"-I{folder / 'runtime/include'}", "-c", str(folder / "one.c"), "-o",
                    str(tmp_path / "one.o")], check=True)
    listed = subprocess.run(["nm", "-u", str(tmp_path / "one.o")], capture_output=True, text=True, check=True).stdout
    called_functions = {line.split()[-1] for line in listed.splitlines()}
    assert {name for name in called_functions if not name.startswith(("megcc_", "one_"))} <= {
        "memcpy", "memset", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
