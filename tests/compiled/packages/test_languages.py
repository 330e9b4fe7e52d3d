# SPDX-License-Identifier: Apache-2.0
"""`megcc export` for Rust, C++ and Go: what the packages compute, built by their own tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen.packages import base
from tvm_megcc.codegen.packages.languages import go_module, in_one_folder, ports, statuses
from tvm_megcc.errors import MegccError

from ..models.test_strings import HOSTILE as TEXTS
from ..models.test_strings import echo

DIGITS = paths.examples() / "digits.onnx"
#: Names that would end comments and literals, or that are words of languages.
HOSTILE = "*/ \"`\\\u2028\n\r]]--{x}"


def needs(*programs: str) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} on this machine")


def of_zeros(folder: Path) -> np.ndarray:
    """What the digits' network makes of zeros, in plain C."""
    session = tvm_megcc.load(tvm_megcc.compile(DIGITS, "c").save(folder), "c")
    return session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["logits"].ravel()


def ran(*command: object, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def hostile_network(folder: Path, targets: str) -> Path:
    """A network that adds its inputs to a state: its names are words of Rust and C++, and worse."""
    made = model([node("Add", "self h", "s"), node("Add", "s Self", "y"), node("Identity", "y", "n")],
                 {"self": [4], "h": [4], "Self": [4]}, {"y": [4], "n": [4]})
    for value in (made.graph.input[2], made.graph.output[0]):
        value.name += HOSTILE
    made.graph.node[1].input[1], made.graph.node[1].output[0] = "Self" + HOSTILE, "y" + HOSTILE
    made.graph.node[2].input[0] = "y" + HOSTILE
    path = saved(made, folder / "fn.onnx")
    return tvm_megcc.compile(path, targets, states={"n": "h"}).save(folder / "out", embed=True)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    return hostile_network(tmp_path_factory.mktemp("hostile"), "c")


def two_packages(folder: Path, system: str) -> None:
    """The digits' network as "one", and a sum whose shapes change as "two"."""
    summed = saved(model([node("ReduceSum", "x", "y", keepdims=0)], {"x": ["n"]}, {"y": []}), folder / "sum.onnx")
    for name, path, more in (("one", DIGITS, []), ("two", summed, ["--dim", "n=1..9"])):
        command = ["export", str(path), "--for", system, "--name", name, "--target", "c", "-q", *more]
        assert main([*command, "-o", str(folder / name)]) == 0


@pytest.mark.slow
def test_two_crates_in_one_program(tmp_path, monkeypatch):
    """They share a runtime, and only one of them has shapes that change."""
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    two_packages(tmp_path, "rust")
    run = "let mut {0} = Box::new({0}::Arena::new()); println!(\"{{:?}}\", " \
          "{0}::Model::new(&mut {0}).unwrap().run({1}).unwrap().{2});"
    given = "two::Tensor { data: &[1.5, 2.0, 3.0], dims: [3] }"
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.rs").write_text(f"fn main() {{ {run.format('one', '&[0.0f32; 64]', 'logits')} "
                                         f"{run.format('two', given, 'y')} println!(\"{{:?}}\", two::Error(0x41)); }}")
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "both"\nversion = "0.1.0"\nedition = "2021"\n'
                                         '[dependencies]\none = { path = "one" }\ntwo = { path = "two" }\n')
    first, second, error = ran("cargo", "run", "-q", cwd=tmp_path).splitlines()
    assert first.count(",") == 9 and second == "[6.5]"
    assert error == "two: a kernel refused the values of its operands (status 0x41 of megcc.h)"


@pytest.mark.slow
def test_two_classes_in_one_program(tmp_path):
    needs("cmake", "c++")
    two_packages(tmp_path, "cpp")
    (tmp_path / "main.cpp").write_text('''#include <algorithm>
#include <cstdio>
#include "one.hpp"
#include "two.hpp"
static one::Model digits;
static two::Model sum;
int main() {
    std::fill(digits.image().begin(), digits.image().end(), 0.0f);
    sum.reshape({3});
    const float x[] = {1.5f, 2.0f, 3.0f};
    std::copy(x, x + 3, sum.x().begin());
    if (!digits.run() || !sum.run())
        return 1;
    std::printf("%zu %g\\n", digits.logits().size(), double(sum.y()[0]));
}
''')
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.15)\nproject(both C CXX)\n"
                                             "add_subdirectory(one)\nadd_subdirectory(two)\n"
                                             "add_executable(both main.cpp)\n"
                                             "target_link_libraries(both megcc::one megcc::two)\n")
    ran("cmake", "-B", "build", cwd=tmp_path)
    ran("cmake", "--build", "build", cwd=tmp_path)
    assert ran("build/both", cwd=tmp_path) == "10 6.5\n"


@pytest.mark.slow
def test_rust(tmp_path, monkeypatch):
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = tmp_path / "crate"
    command = ["export", str(DIGITS), "--for", "rust", "--name", "some_digits", "--target", "c", "-q", "-o", str(made)]
    assert main(command) == 0
    assert "two_models_give_the_same ... ok" in ran("cargo", "test", cwd=made)
    for variable, tool in (("CC", "C compiler"), ("AR", "archiver")):
        said = subprocess.run(["cargo", "build"], cwd=made, capture_output=True, text=True, check=False,
                              env={**os.environ, variable: "no-such-tool"})
        *_, last = said.stderr.strip().splitlines()
        assert said.returncode and f"the {tool} 'no-such-tool' does not start" in last
        assert last.endswith(f"with {variable}=…")
    said = ran("cargo", "run", "-q", "--example", "zeros", cwd=made)
    found = [float(text) for text in said.partition("[")[2].rstrip("]\n").split(",")]
    np.testing.assert_array_equal(np.array(found, np.float32), of_zeros(tmp_path / "c"))


@pytest.mark.slow
def test_rust_with_hostile_names_and_states(hostile, tmp_path, monkeypatch):
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = written(base.package(hostile, "rust", name="fn_net"), tmp_path / "crate")
    (made / "tests" / "sums.rs").write_text("""
#[test]
fn states_are_kept() {
    let mut arena = fn_net::Arena::new();
    let mut model = fn_net::Model::new(&mut arena).unwrap();
    for turn in 1..4 {
        assert_eq!(model.run(&[1.0, 2.0, 3.0, 4.0], &[0.5; 4]).unwrap().y_x[3], 4.5 * turn as f32);
    }
    model.reset();
    assert_eq!(model.run(&[1.0; 4], &[0.0; 4]).unwrap().y_x, &[1.0; 4]);
}
""")
    assert "states_are_kept ... ok" in ran("cargo", "test", cwd=made)


@pytest.fixture(scope="module")
def strings(tmp_path_factory) -> Path:
    """A network that says the string of a number."""
    folder = tmp_path_factory.mktemp("strings") / "echo"
    return tvm_megcc.compile(echo(list(TEXTS)), "c", dims={"rows": 1}, name="echo").save(folder, embed=True)


@pytest.mark.slow
def test_strings_in_rust(strings, tmp_path, monkeypatch):
    """Each of the list has a number, and the network gives it for its place."""
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = written(base.package(strings, "rust"), tmp_path / "crate")
    (made / "tests" / "strings.rs").write_text("""
#[test]
fn strings() {
    let mut arena = echo::Arena::new();
    let mut model = echo::Model::new(&mut arena).unwrap();
    for (place, known) in echo::STRINGS.iter().enumerate() {
        assert_eq!(echo::number(known), place as i64);
        let same = model.run(&[echo::number(known)], &[0]).unwrap().same[0];
        assert_eq!(echo::string(same), Some(*known));
        print!("{:?} ", known.as_bytes());
    }
    assert_eq!((echo::number("unknown"), echo::string(-1)), (-1, None));
}
""")
    said = ran("cargo", "test", "--", "--nocapture", cwd=made)
    assert all(str(list(known.encode())) in said for known in TEXTS)


@pytest.mark.slow
def test_strings_in_cpp(strings, tmp_path):
    needs("g++", "cc")
    made = written(base.package(strings, "cpp"), tmp_path / "echo")
    (made / "strings.cpp").write_text("""
#include <cstdio>
#include "echo.hpp"
static echo::Model model;
int main()
{
    for (std::int64_t number = 0; echo::string(number).data() != nullptr; number++) {
        model.x()[0] = echo::number(echo::string(number));
        if (!model.run() || model.same()[0] != number)
            return 1;
        for (char each : echo::string(number))
            std::printf("%d ", static_cast<unsigned char>(each));
        std::puts("");
    }
    return echo::number("unknown") == -1 ? 0 : 2;
}
""")
    ran("cc", "-O1", "-Isrc", "-c", *sorted((made / "src").rglob("*.c")), cwd=made)
    ran("g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Isrc", "-Iinclude", "strings.cpp",
        *sorted(made.glob("*.o")), "-o", "strings", cwd=made)
    said = ran("./strings", cwd=made).split("\n")
    assert {"".join(f"{byte} " for byte in known.encode()) for known in TEXTS} <= {*said}


def named_as_variables(folder: Path) -> Path:
    """A network whose inputs, of changing shapes, are named as variables that generated code once had."""
    names = ("axis", "error", "shapes", "tensor", "data", "dims", "elements", "memory", "index", "linux")
    made = model([node("Identity", name, f"{name}_y") for name in names], {name: ["n"] for name in names},
                 {f"{name}_y": ["n"] for name in names})
    return tvm_megcc.compile(saved(made, folder / "names.onnx"), "c", dims="n=1..4").save(folder / "out", embed=True)


@pytest.mark.slow
def test_cpp_with_ports_named_as_variables(tmp_path):
    needs("g++")
    made = written(base.package(named_as_variables(tmp_path), "cpp"), tmp_path / "made")
    ran("g++", "-std=gnu++20", "-fsyntax-only", "-Isrc", "-Iinclude", "examples/zeros.cpp", cwd=made)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cpp(compiler, hostile, tmp_path):
    needs(compiler, "cc")
    flags = ["-std=c++17", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Isrc",
             "-Iinclude"]
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "c_megcc", embed=True)
    for source, name in ((folder, "digits"), (hostile, "hostile")):
        made = written(base.package(source, "cpp", name=name), tmp_path / name)
        files = sorted(path.relative_to(made) for path in (made / "src").rglob("*.c"))
        ran("cc", "-O1", "-Isrc", "-c", *files, cwd=made)
        objects = sorted(made.glob("*.o"))
        ran(compiler, *flags, "examples/zeros.cpp", *objects, "-o", "zeros", cwd=made)
        said = ran("./zeros", cwd=made).splitlines()
        found = np.array(said[0].split(": ")[1].split(), np.float32)
        np.testing.assert_array_equal(found, of_zeros(tmp_path / "wanted") if name == "digits" else np.zeros(4))


@pytest.mark.slow
def test_go(tmp_path, monkeypatch):
    """Digits, and a module in another folder that vendors it."""
    needs("go", "cc")
    monkeypatch.setenv("GOCACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    made = tmp_path / "package"
    command = ["export", str(DIGITS), "--for", "go", "--name", "some_digits", "--target", "c", "-q", "-o", str(made),
               "--url", "https://example.com/net/digits/"]
    assert main(command) == 0
    said = ran("go", "test", "-v", "./...", cwd=made)
    assert "PASS: Example" in said and "PASS: TestTwoModelsAgree" in said and "PASS: TestErrors" in said
    assert ran("go", "vet", "./...", cwd=made) == "" and ran("gofmt", "-l", ".", cwd=made) == ""
    without = subprocess.run(["go", "build", "./..."], cwd=made, capture_output=True, text=True, check=False,
                             env={**os.environ, "CGO_ENABLED": "0"})
    assert without.returncode and "needsCgo_installACCompiler" in without.stderr.strip().splitlines()[-1]
    app = tmp_path / "app"
    written({"go.mod": b"module app\n\ngo 1.17\n", "main.go": b"""package main

import (
	"fmt"

	digits "example.com/net/digits"
)

func main() {
	model, err := digits.New()
	if err != nil {
		panic(err)
	}
	outputs, err := model.Run(digits.Inputs{Image: make([]float32, digits.InputImageElements)})
	fmt.Println(outputs.Logits, err)
}
"""}, app)
    ran("go", "mod", "edit", "-require", "example.com/net/digits@v0.0.0", "-replace", f"example.com/net/digits={made}",
        cwd=app)
    ran("go", "mod", "vendor", cwd=app)
    found = ran("go", "run", "-mod=vendor", ".", cwd=app)
    assert found.endswith("<nil>\n")
    values = [float(text) for text in found.partition("[")[2].partition("]")[0].split()]
    np.testing.assert_array_equal(np.array(values, np.float32), of_zeros(tmp_path / "c"))


@pytest.mark.slow
def test_go_with_hostile_names_and_states(hostile, tmp_path, monkeypatch):
    needs("go", "cc")
    monkeypatch.setenv("GOCACHE", str(tmp_path / "cache"))
    made = written(base.package(hostile, "go", name="x_linux"), tmp_path / "package")
    (made / "sums_test.go").write_text("""package x_linux

import "testing"

func TestStatesAreKept(t *testing.T) {
	model, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	given := Inputs{Self_in0: []float32{1, 2, 3, 4}, Self_x: []float32{0.5, 0.5, 0.5, 0.5}}
	for turn := float32(1); turn < 4; turn++ {
		outputs, err := model.Run(given)
		if err != nil || outputs.Y_x[3] != 4.5*turn {
			t.Fatal(outputs, err)
		}
	}
	model.Reset()
	if outputs, _ := model.Run(given); outputs.Y_x[3] != 4.5 {
		t.Fatal(outputs)
	}
}
""")
    assert "PASS: TestStatesAreKept" in ran("go", "test", "-v", "./...", cwd=made)


@pytest.mark.parametrize(("system", "name"), [
    ("go", "func"), ("go", "range"), ("go", "internal"), ("go", "main"), ("android", "java"), ("android", "byte"),
    ("android", "val"), ("android", "new"), ("swift", "func"), ("swift", "swift"), ("swift", "self"),
    ("cpp", "all"), ("cpp", "zeros"), ("cmake", "help"), ("android", "install"), ("meson", "test")])
def test_words_of_languages_and_targets_of_build_systems(system, name, hostile):
    with pytest.raises(MegccError, match="a word of"):
        base.package(hostile, system, name=name)


def test_files_in_one_folder():
    files = {"go.mod": b"", "src/a.c": b'#include "b.h"\n', "src/b.h": b'#include "simd/c.h"\n',
             "src/simd/c.h": b'#include "d.h"\n#include "b.h"\n#include <math.h>\n', "src/simd/d.h": b"\n"}
    assert in_one_folder(files) == {"go.mod": b"", "a_.c": b'#include "b.h"\n', "b.h": b'#include "simd_c.h"\n',
                                    "simd_c.h": b'#include "simd_d.h"\n#include "b.h"\n#include <math.h>\n',
                                    "simd_d.h": b"\n"}
    with pytest.raises(MegccError, match="one name"):
        in_one_folder({"src/simd/c.h": b"", "src/simd_c.h": b""})


@pytest.mark.parametrize(("address", "module"), [
    ("github.com/me/net", "github.com/me/net"), ("example.com", "example.com"), ("localhost", "kws"), ("", "kws"),
    ("a.b/../c", "kws"), ("a.b/c?d", "kws"), ("a.b:80/c", "kws")])
def test_paths_of_modules(address, module):
    assert go_module("kws", address) == module


def test_a_model_all_of_whose_outputs_are_states_shows_them(tmp_path):
    path = saved(model([node("Add", "x h", "n")], {"x": [4], "h": [4]}, {"n": [4]}), tmp_path / "sums.onnx")
    folder = tvm_megcc.compile(path, "c", states={"n": "h"}).save(tmp_path / "out", embed=True)
    for language in ("android", "cpp", "go", "swift"):
        readme = base.package(folder, language)["README.md"].decode()
        assert re.search(r"(outputs|model)\.[nN]\b", readme), readme


def test_words_of_ports_differ():
    rows = [{"name": name, "dtype": "float32", "shape": [1]}
            for name in ("type", "Type", "a b", "a-b", "self", HOSTILE)]
    inputs, outputs = ports({"inputs": rows, "outputs": rows[:2], "states": [], "buckets": [{}]})
    words = [port.word for port in (*inputs, *outputs)]
    assert len(set(words)) == len(words) and "type" not in words and "self" not in words
    assert all(word.isidentifier() and word.isascii() for word in words)


@pytest.mark.parametrize("name", ["Digits", "1x", "a-b", "../x", "é", "x" * 300, "fn", "self"])
def test_names_that_are_none(name, hostile):
    with pytest.raises(MegccError, match="no name of a package"):
        base.package(hostile, "rust", name=name)


def test_statuses_are_told_in_words():
    """As the runtime has them, which packages leave out."""
    known = statuses()
    assert known[0x11] == "the model was not compiled for this shape" and 0x30 in known and 0x41 in known
    header = (paths.c_runtime() / "include/megcc.h").read_text()
    assert len(known) == len(set(re.findall(r"^    MEGCC_E_\w+ =", header, re.MULTILINE)))
