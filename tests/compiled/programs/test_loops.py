# SPDX-License-Identifier: Apache-2.0
"""Loops of programs: a found number of iterations, an end that a value decides, carried values, states of networks,
loops in loops; and the generated C under AddressSanitizer with counts that nobody expects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Carried, Image, Loop, Network, Operator, State

pytestmark = pytest.mark.slow
TOP = np.iinfo(np.int64).max


def rows_program() -> Program:
    """Each of `count` rows is squared and added to a sum; `seen` is what the rows gave so far, with a state."""
    body = [Operator("Mul", ["row", "row"], ["square"]), Operator("Add", ["total", "square"], ["sum"]),
            Operator("Cast", ["index"], ["number"], {"to": 1}), Operator("Mul", ["square", "number"], ["weighted"]),
            Operator("Add", ["weighted", "offset"], ["moved"])]
    loop = Loop("lines", body, 5, count="count", for_each={"row": "rows"}, index="index",
                carried={"total": Carried("sum", type="float32[3]")}, outputs={"squares": "square", "moves": "moved"},
                final={"all": "total"}, trip_count="trips")
    return Program("lines", {"rows": "float32[6,3]", "count": "int64[1]", "x": "float32[3]"}, [
        Operator("Neg", ["x"], ["offset"]), loop, Operator("Add", ["all", "before"], ["so_far"]),
        Operator("Neg", ["squares"], ["negative"])],
        ["negative", "moves", "all", "trips", "so_far"], {"before": State("float32[3]", "so_far")})


def test_a_found_number_of_iterations(tmp_path):
    random = np.random.default_rng(1)
    rows, x, before = random.standard_normal((6, 3)).astype(np.float32), np.float32([1, 2, 3]), np.float32([0] * 3)
    with tvm_megcc.load(rows_program().compile(tmp_path / "lines")) as session:
        for count in (3, 0, 5, 6, TOP, -1, -TOP - 1):
            found = session.run({"rows": rows, "count": np.array([count]), "x": x})
            trips = min(max(count, 0), 5)
            squares = np.zeros((5, 3), np.float32)
            squares[:trips] = rows[:trips] ** 2
            moved = squares * np.arange(5, dtype=np.float32)[:, None] - x
            moved[trips:] = 0
            total = np.float32([0] * 3)
            for row in squares[:trips]:
                total = total + row
            before = total + before
            assert found["trips"].item() == trips
            np.testing.assert_array_equal(found["negative"], -squares)
            np.testing.assert_array_equal(found["moves"], moved)
            np.testing.assert_array_equal(found["all"], total)
            np.testing.assert_array_equal(found["so_far"], before)


def test_a_value_ends_a_loop(tmp_path):
    """Collatz: until 1 is reached. The network's state, a running sum, begins anew in each run."""
    path = saved(model([node("Add", "x before", "after"), node("Identity", "after", "y")],
                       {"x": ("int64", [1]), "before": ("int64", [1])}, {"y": ("int64", [1]), "after": ("int64", [1])}),
                 tmp_path / "sum.onnx")
    body = [Operator("Mod", ["n", [2]], ["odd"]), Operator("Div", ["n", [2]], ["half"]),
            Operator("Mul", ["n", [3]], ["threefold"]), Operator("Add", ["threefold", [1]], ["up"]),
            Operator("Cast", ["odd"], ["is_odd"], {"to": 9}),
            Operator("Where", ["is_odd", "up", "half"], ["following"]),
            Network(path, {"x": "following"}, {"y": "sums"}, {"states": "after=before"}),
            Operator("Equal", ["following", [1]], ["done"])]
    program = Program("collatz", {"start": "int64[1]"}, [Loop(
        "steps", body, 200, until="done", carried={"n": Carried("following", "start")},
        outputs={"numbers": "following", "totals": "sums"}, trip_count="length")], ["numbers", "length", "totals"])
    with tvm_megcc.load(program.compile(tmp_path / "collatz")) as session:
        for start in (27, 6, 27, 0):
            n, expected = start, []
            while n != 1 and len(expected) < 200:
                n = 3 * n + 1 if n % 2 else n // 2
                expected.append(n)
            found = session.run({"start": np.array([start])})
            length = found["length"].item()
            assert length == len(expected)
            np.testing.assert_array_equal(found["numbers"][:length], expected)
            np.testing.assert_array_equal(found["totals"][:length], np.cumsum(expected))
            assert not found["numbers"][length:].any()


def nested(folder: Path) -> Program:
    """Each word of each line, [3 lines, 4 words, 2]; crops of a picture that the words place."""
    inner = Loop("words", [Operator("Concat", ["one_hot", "word"], ["both"], {"axis": 0}),
                           Operator("ReduceSum", ["both"], ["one"], {"keepdims": 0}),
                           Image("warp_affine", "picture", "cut", {"size": [2, 2], "matrix": "place"})],
                 4, count="words_of", for_each={"word": "line"}, outputs={"sums": "one", "cuts": "cut"})
    outer = Loop("lines", [inner, Operator("ReduceSum", ["sums"], ["sum"], {"keepdims": 0})], 3, count="lines_of",
                 for_each={"line": "text", "words_of": "lengths"}, outputs={"result": "sum", "pictures": "cuts"})
    return Program("nested", {"text": "float32[3,4,2]", "lengths": "int64[3,1]", "lines_of": "int64[1]",
                              "one_hot": "float32[1]", "picture": "uint8[4,4,1]", "place": "float32[6]"},
                   [outer], ["result", "pictures"])


def test_loops_in_loops_and_hostile_counts_under_asan(tmp_path):
    """main.c reads records of raw bytes; ends of the counts are beyond all bounds."""
    program = nested(tmp_path)
    folder = program.compile(tmp_path / "nested")
    facts = read_manifest(folder)["program"]
    assert [row["kind"] for row in facts["steps"]] == ["loop", "loop", "operator", "operator", "image", "operator"]
    compiler = find_compiler(native())
    made = tmp_path / "run"
    sources = [path for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*compiler.command, "-std=c99", "-O1", "-g", "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all", *native().cflags, "-Wall", "-Wextra", "-Wshadow", "-Wconversion",
                    "-Wcast-qual", "-Werror", "-pedantic", f"-I{folder}", f"-I{folder / 'runtime/include'}",
                    *map(str, sources), "-o", str(made), "-pthread"], check=True)
    random = np.random.default_rng(3)
    records, expected = b"", []
    one, place = np.float32([1]), np.float32([0.5, 0, 0, 0, 0.5, 0])
    for _ in range(60):
        counts = random.choice([0, 1, 2, 3, 4, 5, -1, TOP, -TOP - 1], 4)
        text = random.integers(-9, 9, (3, 4, 2)).astype(np.float32)
        picture = random.integers(0, 256, (4, 4, 1), np.uint8)
        records += b"".join(x.tobytes() for x in (text, counts[:3], counts[3:], one, picture, place))
        result, lines = np.zeros(3, np.float32), min(max(counts[3], 0), 3)
        for line in range(lines):
            words = min(max(counts[line], 0), 4)
            result[line] = text[line, :words].sum() + words
        expected.append(result)
    data = subprocess.run([str(made), str(folder / "nested.megcc")], input=records, capture_output=True, check=True)
    found = np.frombuffer(data.stdout, np.dtype([("result", np.float32, 3), ("pictures", np.uint8, 48)]))
    np.testing.assert_array_equal(found["result"], expected)
