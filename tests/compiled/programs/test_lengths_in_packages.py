# SPDX-License-Identifier: Apache-2.0
"""Packages of a program with a length that the caller decides and one that the run decides: each language prints what
the session returns, and refuses a length above the largest one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.packages.test_languages import needs, ran
from tests.compiled.packages.test_mobile import java
from tests.compiled.packages.test_programs import python
from tvm_megcc.cli import main
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.program.program import Program

pytestmark = pytest.mark.slow
#: The lengths of x, and the ends of the part of [x, x] that is the output.
RUNS = ((1, 2), (6, 12), (3, 0), (4, 5))


def program() -> Program:
    return Program("vary", {"x": "float32[1,1..6]", "n": "int64[1]"}, [
        Program.Operator("Concat", ["x", "x"], ["both"], {"axis": 1}),
        Program.Operator("Slice", ["both", [0], "n", [1]], ["y"])], ["y"])


@pytest.fixture(scope="module")
def wanted(tmp_path_factory) -> list[str]:
    found = []
    with tvm_megcc.load(program().compile(tmp_path_factory.mktemp("vary") / "vary", "c")) as session:
        for length, end in RUNS:
            y = session(np.arange(1, length + 1, dtype=np.float32).reshape(1, -1), np.array([end]))
            x = np.arange(1, length + 1)
            assert y.shape == (1, min(end, 2 * length)) and y[0].tolist() == np.concatenate([x, x])[:end].tolist()
            found.append(" ".join(str(int(each)) for each in (*y.shape, *y[0])))
    return found


def exported(system: str, folder: Path, target: str = "c") -> Path:
    made = program().compile(folder / "vary", target)
    assert main(["export", str(made), "--for", system, "--name", "some_vary", "-q", "-o", str(folder / "out")]) == 0
    return folder / "out"


def test_a_wheel(wanted, tmp_path):
    (wheel,) = exported("wheel", tmp_path, "native").glob("*.whl")
    assert python(wheel, f"""
import numpy as np, some_vary
model = some_vary.Model()
def run(length, end):
    y = model.run({{"x": np.arange(1, length + 1, dtype=np.float32).reshape(1, -1), "n": np.array([end])}})["y"]
    return " ".join(str(int(each)) for each in (*y.shape, *y[0]))
for length, end in {RUNS}:
    print(run(length, end))
for length in (0, 7):
    try:
        run(length, 1)
        raise SystemExit("not refused")
    except ValueError as error:
        assert "x_length from 1 to 6" in str(error), error
""").splitlines() == wanted


def test_npm(wanted, tmp_path):
    needs("node")
    find_compiler(TARGETS["wasm32-simd128"])
    made = exported("npm", tmp_path, "wasm32-simd128")
    (made / "lengths.mjs").write_text("""
import { load } from "./index.js";
const model = await load();
const run = (length, end) => model.run({
  x: { data: Float32Array.from({ length }, (_, i) => i + 1), dims: [1, length] }, n: BigInt64Array.of(BigInt(end)) }).y;
for (const [length, end] of RUNS) {
  const { data, dims } = run(length, end);
  console.log([...dims, ...data].join(" "));
}
for (const length of [0, 7]) {
  try {
    run(length, 1);
  } catch (error) {
    if (error instanceof RangeError) continue;
  }
  throw new Error("not refused");
}
""".replace("RUNS", str([list(run) for run in RUNS])))
    assert ran("node", "lengths.mjs", cwd=made).splitlines() == wanted
    assert "undefined" not in ran("node", "test.mjs", cwd=made)


def test_a_crate(wanted, tmp_path, monkeypatch):
    needs("cargo", "cc")
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    made = exported("rust", tmp_path)
    (made / "examples/lengths.rs").write_text("""use some_vary::{Arena, Error, Model, Tensor};
fn main() -> Result<(), Error> {
    let mut arena = Box::new(Arena::new());
    let mut model = Model::new(&mut arena)?;
    let x = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    for (length, end) in RUNS {
        let y = model.run(Tensor { data: &x[..length], dims: [1, length] }, &[end])?.y;
        let numbers = y.dims.iter().map(|dim| *dim as i64).chain(y.data.iter().map(|each| *each as i64));
        println!("{}", numbers.map(|each| each.to_string()).collect::<Vec<_>>().join(" "));
    }
    assert!(model.run(Tensor { data: &x[..0], dims: [1, 0] }, &[1]).is_err());
    assert!(model.run(Tensor { data: &x, dims: [1, 7] }, &[1]).is_err());
    Ok(())
}
""".replace("RUNS", str(list(RUNS))))
    assert ran("cargo", "run", "-q", "--example", "lengths", cwd=made).splitlines() == wanted
    assert "two_models_give_the_same ... ok" in ran("cargo", "test", cwd=made)


def test_a_class(wanted, tmp_path, monkeypatch):
    needs("cmake", "c++")
    monkeypatch.setenv("CXXFLAGS", "-Wall -Wextra -Werror -fno-exceptions -fno-rtti")
    made = exported("cpp", tmp_path)
    ran("cmake", "-S", ".", "-B", "build", cwd=made)
    ran("cmake", "--build", "build", "-j2", cwd=made)
    assert ran("build/zeros", cwd=made).startswith("y:")
    runs = ", ".join(f"{{ {length}, {end} }}" for length, end in RUNS)
    (made / "examples/zeros.cpp").write_text(f"""#include "some_vary.hpp"
#include <cstdio>
static some_vary::Model model;
int main()
{{
    const int runs[][2] = {{ {runs} }};
    for (auto [length, end] : runs) {{
        if (!model.reshape({{ 1, length }}))
            return 1;
        for (int i = 0; i < length; i++)
            model.x()[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
        model.n()[0] = end;
        if (!model.run())
            return 1;
        std::printf("%d %d", model.y().dim(0), model.y().dim(1));
        for (float each : model.y())
            std::printf(" %g", static_cast<double>(each));
        std::puts("");
    }}
    return model.reshape({{ 1, 0 }}) || model.reshape({{ 1, 7 }}) || model.reshape({{ 2, 3 }});
}}
""")
    ran("cmake", "--build", "build", cwd=made)
    assert ran("build/zeros", cwd=made).splitlines() == wanted


def test_java(wanted, tmp_path, monkeypatch):
    runs = ", ".join(f"{{{length}, {end}}}" for length, end in RUNS)
    assert java(exported("android", tmp_path), "some_vary", f"""
import some_vary.Model;
public final class Main {{
    static Model.Outputs run(Model model, int length, long end) {{
        float[] x = new float[length];
        for (int i = 0; i < length; i++)
            x[i] = i + 1;
        return model.run(x, new int[] {{1, length}}, new long[] {{end}});
    }}
    public static void main(String[] arguments) {{
        Model model = new Model();
        for (int[] each : new int[][] {{ {runs} }}) {{
            Model.Outputs outputs = run(model, each[0], each[1]);
            StringBuilder text = new StringBuilder();
            for (int dim : outputs.yShape)
                text.append(dim).append(" ");
            for (float number : outputs.y)
                text.append((int) number).append(" ");
            System.out.println(text.toString().trim());
        }}
        for (int length : new int[] {{0, 7}}) {{
            try {{
                run(model, length, 1);
            }} catch (IllegalArgumentException error) {{
                continue;
            }}
            throw new AssertionError();
        }}
        model.close();
    }}
}}
""", monkeypatch).splitlines() == wanted


def test_go(wanted, tmp_path, monkeypatch):
    needs("go", "cc")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    made = exported("go", tmp_path)
    runs = ", ".join(f"{{{length}, {end}}}" for length, end in RUNS)
    (made / "lengths_test.go").write_text("""package some_vary

import "fmt"

func ExampleModel_lengths() {
	model, err := New()
	if err != nil {
		panic(err)
	}
	x := []float32{1, 2, 3, 4, 5, 6, 7}
	for _, run := range [][2]int{RUNS} {
		outputs, err := model.Run(Inputs{X: x[:run[0]], XShape: [2]int{1, run[0]}, N: []int64{int64(run[1])}})
		if err != nil {
			panic(err)
		}
		fmt.Print(outputs.YShape[0], " ", outputs.YShape[1])
		for _, each := range outputs.Y {
			fmt.Print(" ", each)
		}
		fmt.Println()
	}
	_, err = model.Run(Inputs{X: x, XShape: [2]int{1, 7}, N: []int64{1}})
	fmt.Println(err != nil)
	// Output:
WANTED
	// true
}
""".replace("RUNS", runs).replace("WANTED", "\n".join(f"\t// {line}" for line in wanted)))
    assert "ok" in ran("go", "test", ".", cwd=made)


def test_swift(tmp_path):
    """The C compiles against its header."""
    needs("cc")
    made = exported("swift", tmp_path)
    assert "Tensor<Float>" in (made / "Sources/some_vary/Model.swift").read_text()
    ran("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Isrc", "src/some_vary_block.c",
        "src/vary.c", cwd=made)
