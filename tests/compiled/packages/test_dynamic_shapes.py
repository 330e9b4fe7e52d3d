# SPDX-License-Identifier: Apache-2.0
"""Packages of networks whose shapes change from run to run: in each language a call gives the shapes of inputs and gets
those of the outputs, one of which only the run knows. What the network was not compiled for is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_export import built, exported
from tests.compiled.packages.test_languages import needs, ran, written
from tests.compiled.packages.test_mobile import java
from tests.onnx_models import model, node, saved
from tvm_megcc.codegen.packages import base
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.export import npm, wheel

WEIGHTS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
#: Rows of the input in turn: the least, the most, and as many as before.
ROWS = (1, 8, 2, 2)


def network(folder: Path, target: str, **options) -> Path:
    """Names of inputs are those that templates might have for themselves."""
    made = model([node("MatMul", "place w", "y"), node("NonZero", "size", "found")], {"place": ["n", 3], "size": [4]},
                 {"y": ["n", 2], "found": ("int64", [1, "c"])}, {"w": WEIGHTS})
    path = saved(made, folder / "net.onnx")
    return tvm_megcc.compile(path, target, **{"dims": {"n": "1..8"}, **options}).save(folder / "out", embed=True)


@pytest.fixture(scope="module")
def portable(tmp_path_factory) -> Path:
    return network(tmp_path_factory.mktemp("dynamic"), "c")


def check(said: str) -> None:
    """A line for each run: the dimensions and elements of y, then of found, and any signs between these numbers."""
    lines = said.splitlines()
    assert len(lines) == len(ROWS)
    for rows, line in zip(ROWS, lines, strict=True):
        y = np.arange(3 * rows).reshape(rows, 3) @ WEIGHTS
        found = np.nonzero([rows - 2, 0, rows - 2, 0])[0]
        wanted = [rows, 2, *y.ravel(), 1, found.size, *found]
        assert [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", line)] == wanted, line


@pytest.mark.slow
def test_rust(portable, tmp_path, monkeypatch):
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = written(base.package(portable, "rust", name="rows_net"), tmp_path / "crate")
    written({"examples/runs.rs": b"""
use rows_net::{Arena, Error, Model, Tensor};
fn main() {
    let mut arena = Arena::new();
    let mut model = Model::new(&mut arena).unwrap();
    for rows in [1usize, 8, 2, 2] {
        let place: Vec<f32> = (0..3 * rows).map(|x| x as f32).collect();
        let some = rows as f32 - 2.0;
        let out = model.run(Tensor { data: &place, dims: [rows, 3] }, &[some, 0.0, some, 0.0]).unwrap();
        println!("{:?} {:?} {:?} {:?}", out.y.dims, out.y.data, out.found.dims, out.found.data);
    }
    for (data, dims, status) in [(27, [9, 3], 0x11), (0, [0, 3], 0x11), (8, [2, 4], 0x11), (3, [2, 3], 0x10),
                                 (0, [usize::MAX, 3], 0x10), (0, [usize::MAX, 0], 0x11)] {
        let place = vec![0.0; data];
        let given = Tensor { data: &place, dims };
        assert_eq!(model.run(given, &[0.0; 4]).err(), Some(Error(status)), "{dims:?}");
    }
}
"""}, made)
    check(ran("cargo", "run", "-q", "--example", "runs", cwd=made))
    assert "two_models_give_the_same ... ok" in ran("cargo", "test", cwd=made)


@pytest.mark.slow
def test_cpp(portable, tmp_path):
    needs("g++", "cc")
    made = written(base.package(portable, "cpp", name="rows_net"), tmp_path / "package")
    written({"runs.cpp": b"""
#include "rows_net.hpp"
#include <initializer_list>
#include <cstdio>
static rows_net::Model model;
template <class T, std::size_t N> void print(const rows_net::Tensor<T, N> &tensor)
{
    for (std::size_t i = 0; i < N; i++)
        std::printf("%d ", (int)tensor.dim(i));
    for (auto x : tensor)
        std::printf("%g ", (double)x);
}
int main()
{
    if (model.place().size() != 0 || model.place().data() != nullptr)
        return 1;
    for (std::int32_t rows : {1, 8, 2, 2}) {
        if (!model.reshape({rows, 3}))
            return 2;
        float next = 0;
        for (auto &x : model.place())
            x = next++;
        for (std::size_t i = 0; i < 4; i++)
            model.size()[i] = i % 2 ? 0.f : static_cast<float>(rows - 2);
        if (!model.run())
            return 3;
        print(model.y()), print(model.found()), std::puts("");
    }
    return model.reshape({9, 3}) || model.reshape({0, 3}) || model.reshape({2, 4}) || model.place().dim(0) != 2;
}
"""}, made)
    files = sorted(path.relative_to(made) for path in (made / "src").rglob("*.c"))
    ran("cc", "-O1", "-Isrc", "-c", *files, cwd=made)
    flags = ["-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude"]
    for program in ("runs.cpp", "examples/zeros.cpp"):
        ran("g++", *flags, program, *sorted(made.glob("*.o")), "-o", Path(program).stem, cwd=made)
    check(ran("./runs", cwd=made))
    assert ran("./zeros", cwd=made) == "y: 0 0\nfound:\n"


@pytest.mark.slow
def test_go(portable, tmp_path, monkeypatch):
    needs("go", "cc")
    monkeypatch.setenv("GOCACHE", str(tmp_path / "cache"))
    made = written(base.package(portable, "go", name="rows_net"), tmp_path / "package")
    written({"runs_test.go": b"""package rows_net

import (
	"errors"
	"fmt"
	"testing"
)

func TestRuns(t *testing.T) {
	model, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{1, 8, 2, 2} {
		place := make([]float32, 3*rows)
		for i := range place {
			place[i] = float32(i)
		}
		some := float32(rows - 2)
		out, err := model.Run(Inputs{Place: place, PlaceShape: [2]int{rows, 3}, Size: []float32{some, 0, some, 0}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("run", out.YShape, out.Y, out.FoundShape, out.Found)
	}
	for shape, wanted := range map[[2]int]error{{9, 3}: ErrShape, {0, 3}: ErrShape, {1, 27}: ErrShape,
		{-9, -3}: ErrShape, {1 << 40, 3}: ErrShape, {8, 3}: ErrLength} {
		elements := 27
		if shape[0] == 0 {
			elements = 0
		}
		_, err := model.Run(Inputs{Place: make([]float32, elements), PlaceShape: shape, Size: make([]float32, 4)})
		if !errors.Is(err, wanted) {
			t.Fatal(shape, err)
		}
	}
}
"""}, made)
    said = ran("go", "test", "-v", "./...", cwd=made)
    check("\n".join(re.findall(r"^run (.*)", said, re.MULTILINE)))
    assert "PASS: Example" in said and "PASS: TestErrors" in said
    assert ran("go", "vet", "./...", cwd=made) == ""
    (made / "runs_test.go").unlink()
    assert ran("gofmt", "-l", ".", cwd=made) == ""


@pytest.mark.slow
def test_java(portable, tmp_path, monkeypatch):
    made = written(base.package(portable, "android", name="rows_net"), tmp_path / "package")
    check(java(made, "rows_net", """
import java.util.Arrays;
import rows_net.Model;

class Main {
    public static void main(String[] arguments) {
        Model model = new Model();
        for (int rows : new int[] {1, 8, 2, 2}) {
            float[] place = new float[3 * rows];
            for (int i = 0; i < place.length; i++)
                place[i] = i;
            Model.Outputs out = model.run(place, new int[] {rows, 3}, new float[] {rows - 2, 0, rows - 2, 0});
            System.out.println(Arrays.toString(out.yShape) + Arrays.toString(out.y) + Arrays.toString(out.foundShape)
                + Arrays.toString(out.found));
        }
        for (int[] shape : new int[][] {{9, 3}, {1, 27}, {8, 3}, {27}, {-9, -3}, {65536, 65536}})
            try {
                model.run(new float[27], shape, new float[4]);
                throw new AssertionError(Arrays.toString(shape));
            } catch (IllegalArgumentException refused) {
                continue;
            }
    }
}
""", monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("embed", [True, False])
def test_npm(embed, tmp_path):
    needs("node")
    try:
        find_compiler(TARGETS["wasm32-simd128"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    network(tmp_path, "wasm32-simd128")
    folder = tvm_megcc.compile(tmp_path / "net.onnx", "wasm32-simd128", dims={"n": "1..8"}).save(
        tmp_path / "folder", embed=embed)
    made = written(npm.package(folder, "rows-net"), tmp_path / "package")
    written({"runs.mjs": b"""
import { load } from "./index.js";
const model = await load();
for (const rows of [1, 8, 2, 2]) {
  const data = Float32Array.from({ length: 3 * rows }, (_, i) => i), size = Float32Array.of(rows - 2, 0, rows - 2, 0);
  const { y, found } = model.run({ place: { data, dims: [rows, 3] }, size });
  console.log(y.dims.join(" "), y.data.join(" "), found.dims.join(" "), found.data.join(" "));
}
const zeros = (...dims) => ({ data: new Float32Array(dims.reduce((a, b) => a * b, 1)), dims });
const { data } = zeros(9, 3);
for (const [place, error] of [[zeros(9, 3), RangeError], [zeros(0, 3), RangeError], [zeros(2, 4), TypeError],
    [{ data, dims: [8, 3] }, TypeError], [{ data, dims: [27] }, TypeError], [data, TypeError], [null, TypeError],
    [{ data, dims: [-9, -3] }, TypeError], [{ data, dims: ["n", 3] }, TypeError]]) {
  let refused = false;
  try { model.run([place, new Float32Array(4)]); } catch (found) { refused = found instanceof error; }
  if (!refused) throw new Error(`not refused: ${JSON.stringify(place)}`);
}
"""}, made)
    check(ran("node", "runs.mjs", cwd=made))
    assert ran("node", "test.mjs", cwd=made).startswith("y: 0 0\nfound: \n")


@pytest.mark.slow
def test_wheel(tmp_path):
    files = wheel.package(network(tmp_path, "native"), "rows_net")
    (name,) = (name for name in files if name.endswith(".whl"))
    written({name: files[name], "runs.py": b"""
import numpy as np, rows_net
model = rows_net.Model()
for rows in (1, 8, 2, 2):
    place = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    out = model.run({"place": place, "size": np.array([rows - 2, 0, rows - 2, 0], np.float32)})
    y, found = out["y"], out["found"]
    print(*y.shape, *y.ravel(), *found.shape, *found.ravel())
assert [port.shape for port in rows_net.inputs] == [("n", 3), (4,)]
for shape, error in (((9, 3), ValueError), ((0, 3), ValueError), ((2, 4), TypeError), ((3,), TypeError)):
    try:
        model.run([np.zeros(shape, np.float32), np.zeros(4, np.float32)])
    except error:
        continue
    raise SystemExit(f"not refused: {shape}")
"""}, tmp_path)
    ran(sys.executable, "-m", "zipfile", "-e", name, ".", cwd=tmp_path)
    check(ran(sys.executable, "runs.py", cwd=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("system", "example", "program", "home"), [
    ("zephyr", "samples/digits", "app", "ZEPHYR_BASE"), ("esp-idf", "examples/digits", "main", "IDF_PATH")])
def test_examples_of_cmake(system, example, program, home, tmp_path):
    """The example begins with the smallest shapes."""
    made = saved(model([node("MatMul", "x w", "y")], {"x": ["n", 3]}, {"y": ["n", 2]}, {"w": WEIGHTS}),
                 tmp_path / "digits.onnx")
    folder = tvm_megcc.compile(made, "c", dims={"n": "2..8"}).save(tmp_path / "folder", embed=True)
    said = built(exported(folder, system, tmp_path) / example, program, {home: ""}, tmp_path).splitlines()
    assert said == ["digits: 0", *["0 / 1000"] * 4]


@pytest.mark.parametrize("system", ["zephyr", "arduino", "rust", "swift"])
def test_shapes_without_a_bound_are_refused(system, tmp_path):
    with pytest.raises(MegccError, match=r"'n' of 'net' has no upper bound.*n=1\.\.64"):
        base.package(network(tmp_path, "c", dims={"n": "1..*"}), system)


def test_swift_as_text(portable):
    """Nothing here compiles it."""
    files = base.package(portable, "swift", name="rows_net")
    source, tests = (files[f"{name}.swift"].decode() for name in
                     ("Sources/rows_net/Model", "Tests/rows_net_tests/ModelTests"))
    assert "public func run(place: Tensor<Float>, size: [Float]) throws -> Outputs" in source
    assert "let y: Tensor<Float>\n" in source and "let found: Tensor<Int64>\n" in source
    assert "place: Tensor(data: Array(repeating: 0, count: 3), dims: [1, 3])" in tests
    assert source.count("{") == source.count("}")
    assert "net_block_shape" in files["src/include/rows_net_block.h"].decode()
