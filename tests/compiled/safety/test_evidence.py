# SPDX-License-Identifier: Apache-2.0
"""`megcc evidence`: bounds that hold, figures that are measured, a trace without gaps, and what it refuses."""

import csv
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.kernels import test_kernels as kernel_tests
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.frontends.models import import_model
from tvm_megcc.passes.canonicalize.check import checked
from tvm_megcc.runtime.calls import CallGraph
from tvm_megcc.runtime.emulator.counting import Block, Disassembly
from tvm_megcc.runtime.emulator.cycles import CORES, cycles
from tvm_megcc.runtime.emulator.frames import completed, library_stacks
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.evidence import paths, timing
from tvm_megcc.tools.evidence.evidence import complete, evidence
from tvm_megcc.tools.evidence.loops import loops
from tvm_megcc.tools.evidence.page import files, page
from tvm_megcc.tools.evidence.trace import kernel_test

from .test_profile import compiled, floats, integers

# --- loops ----------------------------------------------------------------------------------------------------------


def bounds(text: str, **arguments) -> list:
    return [loop.at_most for loop in loops(text, "f", arguments)]


@pytest.mark.parametrize("head, most", [
    ("for (int i = 0; i < 10; i++) ;", 10), ("for (int i = 0; i <= 10; i += 3) ;", 4),
    ("for (int i = 7; i > 0; i -= 2) ;", 4), ("for (int i = 3; i >= 0; --i) ;", 4),
    ("for (int i = 0; 4 + i <= 10; i += 4) ;", 2), ("for (int i = 0; 10 > i; i++) ;", 10),
    ("for (int i = 0; i != 5; i++) ;", 5), ("for (int i = 0; i < 10 && memory[i]; i++) ;", 10),
    ("for (int i = 0; i < (3 < 5 ? 3 : 5); i++) ;", 3), ("int n = 5; while (n > 0) { n--; }", 5),
    ("int i = 0; do { i++; } while (i < 4);", 5), ("const int n = 8 / 3 * 2; for (int i = 0; i < n; i++) ;", 4),
    ("for (int i = a; i < b; i++) ;", 9), ("for (int i = 0; i < b % 4; i++) ;", 3),
    ("for (int i = 0; i < 10; i++) { if (memory[i]) { i += 2; } }", 10),
    ("for (const int *p = memory, *end = p + 8; p != end; p += 2) ;", 4),
    ("const int *p = memory, *end; end = p + a; while (p < end) { p++; }", 3),
    ("for (const int *p = memory, *end = p + 8; p != end; p += 3) ;", None),
    ("const int *p = memory, *end = p + 8; p = memory; for (; p < end; p++) ;", None),
    # Conditions narrow ranges; a choice may have the value of equal sides.
    ("const int k = memory[0]; const int m = k < 7 ? k : 7; for (int i = 0; i < m; i++) ;", 7),
    ("const int k = memory[0]; const int m = k > 0 ? k : 0; for (int i = m; i < 6; i++) ;", 6),
    ("const int *p = memory; const int n = p[0] < 0 ? 0 : p[0] > 5 ? 5 : p[0]; for (int i = 0; i < n; i++) ;", 5),
    ("int n = memory[0]; if (n > 8) { return; } for (int i = 0; i < n; i++) ;", 8),
    ("int n = memory[0]; if (n < 0 || n >= 8) { n = 3; } for (int i = n; i < 8; i++) ;", 8),
    ("int n = memory[0]; if (!(n < 8)) { g(&n); } for (int i = 0; i < n; i++) ;", None),
    ("int n = memory[0]; if (n == 4) { for (int i = 0; i < n; i++) ; }", 4),
    ("uint32_t n = memory[0]; if (n != 0 && n < 4) { for (uint32_t i = 0; i < n; i++) ; }", 3),
    ("int n = memory[0]; uint32_t m = 4; if (n < m) { for (int i = n; i < 4; i++) ; }", None),
    ("for (int i = 0; i < 5 || i == 0; i++) ;", 5), ("for (int i = 0; i < 5 || memory[i]; i++) ;", None),
    ("float x = memory[0]; if (x < 5) { int n = x; for (int i = 0; i < n; i++) ; }", None),
    # Steps that are not constant, but never 0.
    ("for (int i = 0; i < 10; i += memory[0] ? 2 : 5) ;", 5),
    ("for (int i = 0; i < 10; i += memory[0] ? 0 : 5) ;", None),
    ("for (int i = 0; i < 10; i += 10 - i < 3 ? 10 - i : 3) ;", 10),
    # Constant tables.
    ("static const int t[] = { 3, -1, 7 }; for (int i = 0; i < t[b]; i++) ;", 7),
    ("static const int t[][2] = { { 3, 9 }, { 5, 8 } }; for (int i = 0; i < t[b][0]; i++) ;", 5),
    ("static const int t[4] = { -2 }; for (int i = t[b]; i < 3; i++) ;", 5),
    ("static int t[] = { 3 }; for (int i = 0; i < t[0]; i++) ;", None),
    ("enum { FEW = 6 }; for (int i = 0; i < FEW; i++) ;", 6),
    # What is not known: memory, a step that is not constant or not in one direction, a limit that moves.
    ("for (int i = 0; i < memory[0]; i++) ;", None), ("for (int i = 0; i < 10; i += memory[0]) ;", None),
    ("for (int i = 0; i < 10; i++) { if (memory[i]) i--; }", None), ("while (memory[0]) ;", None),
    ("int n = 9; for (int i = 0; i < n; i++) { n++; }", None), ("for (int i = 0; i != 5; i += 2) ;", None),
    ("int n = 3; if (memory[0]) { n = memory[1]; } for (int i = 0; i < n; i++) ;", None),
    ("int n = 3; g(&n); for (int i = 0; i < n; i++) ;", None),
    ("for (unsigned i = 0; i < (unsigned)(a - 20); i++) ;", None),
    # Steps that an iteration may leave out.
    ("int i = 0; while (i < 10) { if (memory[i]) i++; }", None),
    ("int i = 0; while (i < 10) { if (memory[i]) continue; i++; }", None),
    ("int i = 0; while (i < 10) { if (memory[i]) i++; else i += 2; }", 10),
    ("int i = 0; while (i < 10) { if (memory[i]) { i++; } else { a++; } }", None),
    ("int i = 0; while (i < 10) { if (memory[i]) break; i++; }", 10),
    ("int n = 4, sum = 0; while (n > 0) { sum = sum + memory[--n]; }", 4),
    ("int i = 0; while (i < 10) { memory[0] ? i++ : 0; }", None),
    ("int i = 0; while (i < 10) { if (memory[i]) { i += 4; continue; } i++; }", 10),
    ("int i = 10; while (memory[0] && i-- > 0) ;", None), ("int i = 10; while (i-- > 0) ;", 10),
    ("int i = 0; while (i < 10) { i++; if (memory[i]) continue; i++; }", 10),
    # Unsigned numbers wrap.
    ("uint32_t n = 3; n = n - 5; for (uint32_t i = 0; i < n; i++) ;", None),
    ("uint32_t n = 3; n -= 5; for (uint32_t i = 0; i < n; i++) ;", None),
    ("uint32_t n = 3; for (uint32_t i = 0; i < n - 5; i++) ;", None),
    ("for (uint32_t i = 3; i >= 0; i--) ;", None), ("for (uint32_t i = 3; i > 0; i -= 2) ;", None),
    ("for (uint32_t i = 3; i > 0; i--) ;", 3), ("uint8_t n = 3; n = n - 5; for (int i = 0; i < n; i++) ;", None),
    ("int m = a - 20; uint32_t n = m; for (uint32_t i = 0; i < n; i++) ;", None),
    ("int m = a - 20; for (uint32_t i = 9; i > m; i--) ;", None),
    # A counter that begins beyond the limit never is the limit. Labels and floats do not hide anything.
    ("for (int i = 5; i != 3; i++) ;", None), ("for (int i = 3; i != 5; i--) ;", None),
    ("for (int i = 5; i != 3; i--) ;", 2), ("for (int i = 0; i + 2 != 5; i++) ;", 3),
    ("int i = 5; do { i++; } while (i != 5);", None), ("int i = 4; do { i++; } while (i != 5);", 2),
    ("const int *p = memory, *end = p + 0; do { p++; } while (p != end);", None),
    ("int i = 0; while (i < 10) { step: if (memory[i]) i++; }", None),
    ("int i = 0; while (i < 10) { step: i++; }", 10),
    ("float x = 3; int n = x / 2 * 2; for (int i = 0; i < n; i++) ;", None),
    ("int i = 10, j = -5; i = j + i; while (j < i) j++;", 10),
    ("int n = 3; if (a - 9) { n = 9; } for (int i = 0; i < n; i++) ;", 9),
    ("int n = 3; if (a - 3) { n = 9; } for (int i = 0; i < n; i++) ;", 9),
    ("int n = 3; if (0) { n = 9; } for (int i = 0; i < n; i++) ;", 3),
    # Changes through pointers, and in parts of expressions that are not always computed.
    ("int n = 3, *p = &n; *p = 9; for (int i = 0; i < n; i++) ;", None),
    ("int i = 0, *p = &i; for (; i < 5; i++) { *p = 0; }", None),
    ("int n = 9; (void)(memory[0] && (n = 3)); for (int i = 0; i < n; i++) ;", None),
    ("int n = 9; memory[0] ? (n = 3) : 0; for (int i = 0; i < n; i++) ;", None),
])
def test_bounds_of_loops(head, most):
    text = f"""typedef unsigned char uint8_t; typedef unsigned int uint32_t; int memory[9]; void g(int *p);
               void f(int a, int b) {{ {head} }}"""
    assert bounds(text, a=(1, 3), b=(0, 10)) == [most]


@pytest.mark.parametrize("first, second", [
    ("int i = 0; while (i < 10) { i += 3; if (memory[i]) i += 4; }", 16), ("int i = 0; while (i++ < 10) { }", 11),
    ("int i = 20; do { i++; } while (i < 10);", 21), ("int i = 0; do { } while (i++ < 10);", 11),
    ("int i = 0; while (i < 10) { i++; while (memory[0]) i++; }", None), ("int i = 0; while (i < 10) { i++; }", 10),
    ("int i = 0; while (++i < 10) { }", 10),
])
def test_the_counter_after_a_loop(first, second):
    """Every step counts that the last iteration may take, and those of a condition that fails."""
    text = f"int memory[9]; void f(void) {{ {first} for (int j = 0; j < i; j++) ; }}"
    assert bounds(text)[-1] == second
    falling = first.translate(str.maketrans("+<", "->")).replace("20", "-20").replace("10", "-10")
    assert bounds(f"int memory[9]; void f(void) {{ {falling} for (int j = 0; j > i; j--) ; }}")[-1] == second


@pytest.mark.parametrize("first, second", [
    ("int n = 0; for (int i = 0; i < 4; i++) { if (memory[i]) n++; }", 4),
    ("int n = 2; for (int i = 0; i < 4; i++) { for (int j = 0; j < 3; j++) { n += memory[j] ? 2 : 0; } }", 26),
    ("int n = 0; for (int i = 0; i < 40 && n < 6; i++) { if (memory[i]) n++; }", 6),
    ("int n = 0; for (int i = 0; i < 40; i++) { if (memory[i] && n < 6) n++; }", 40),
    ("int n = 0; for (int i = 0; i < 4; i++) { n += memory[i]; }", None),
    ("int n = 9; for (int i = 0; i < 4; i++) { n--; }", 9), ("int n = 0; while (memory[0]) { n++; }", None),
    ("int n = 0; for (int i = 0; i < 4 && n++ < 9; i++) { }", 5),
    ("int n = 0; again: n++; if (memory[0]) goto again;", None),
    ("int n = 0; for (int i = 0; i < 4; i++) { while (memory[0]) n++; }", None),
    ("int n = 0, *p = &n; for (int i = 0; i < 4; i++) { n++; *p = 9; }", None),
    ("int n = 0; for (int i = 0; i < 4; i++) { n++; n = n * 2; }", None),
])
def test_numbers_that_a_loop_counts(first, second):
    """Of a variable that a loop only adds to, by its steps and iterations."""
    assert bounds(f"int memory[9]; void f(void) {{ {first} for (int j = 0; j < n; j++) ; }}")[-1] == second


def test_the_first_iteration_of_do_is_certain():
    assert bounds("void f(void) { int i = 20; do { for (int j = 0; j < i; j++) ; i++; } while (i < 10); }") == [1, 20]
    text = "void f(void) { int i = 0; do { for (int j = 9; j > i; j--) ; } while (i++ < 5); }"
    assert bounds(text) == [6, 9]


def test_what_a_loop_changes_has_no_known_distance():
    """Of a parameter too, whose own value is unknown."""
    text = """void f(const int *p) { const int *end = p + 4; for (int i = 0; i < 9; i++) p--; while (p < end) p++; }"""
    assert bounds(text) == [9, None]


def test_a_goto_is_a_loop_without_a_bound():
    found = loops("void f(int n) { again: if (n-- > 0) goto again; }", "f", {"n": (0, 5)})
    assert [(loop.head, loop.at_most) for loop in found] == [("goto again", None)]


def test_loops_of_functions_that_are_called():
    """With the ranges of the arguments, the most of all calls; a recursive one is walked once."""
    text = """void inner(int n) { for (int i = 0; i < n; i++) { } }
              int twice(int n) { return 2 * n; }
              void f(int n) { inner(3); inner(twice(n)); }"""
    assert bounds(text, n=(0, 5)) == [10]
    assert bounds("void f(int n) { for (int i = 0; i < n; i++) { f(n); } }", n=(0, 5)) == [5]


def test_loops_in_assembler():
    text = r"""static __attribute__((naked)) void tile(const int *x, int n) {
        __asm__ volatile("1:\n\tsubs r1, #1\n\tbne 1b\n\tbx lr" ::: "memory"); }
        void f(const int *x) { tile(x, 12); }"""
    assert [(loop.head, loop.at_most) for loop in loops(text, "f", {})] == [("loop in assembler", 12)]
    assigned = """void f(int n) { __asm__("mov %0, #3" : "=r"(n)); for (int i = 0; i < n; i++) { } }"""
    assert bounds(assigned, n=(2, 2)) == [None]


def test_loops_of_calls_that_are_too_deep_are_unknown():
    """The walk follows 12 calls."""
    chain = "".join(f"void g{k}(int n) {{ g{k - 1}(n); }}\n" for k in range(1, 20))
    text = f"void g0(int n) {{ for (int i = 0; i < n; i++) {{ }} }}\n{chain}void f(void) {{ g19(3); }}"
    assert [loop.at_most for loop in loops(text, "f", {})] == [None]


def test_the_statement_of_a_macro_is_no_loop():
    """It ends early by `continue`, too; what it tests holds after it."""
    text = """int memory[9]; void f(void) { int n = memory[0]; do { if (n > 8) { return; } } while (0);
              do { if (memory[0]) { continue; } n++; } while (0); for (int i = 0; i < n; i++) ; }"""
    assert bounds(text) == [None] and bounds(text.replace("n++;", "")) == [8]


def test_loops_over_vectors_of_a_container():
    """With the counts that the caller gives, by the end of the expression; of several functions."""
    text = """struct rows { const int *data; int count; }; struct program { struct rows rows[2]; struct rows other; };
              int many(void); int least(const struct program *p);
              void f(const struct program *p) { for (int i = 0; i < p->rows[1].count; i++) ;
                                                for (int i = 0; i < p->other.count; i++) ; }
              void g(struct program q) { for (int i = 0; i < q.rows[1].count; i++) ;
                                         for (int i = 0; i < many(); i++) ; }
              int many(void) { return least(0); }"""
    found = loops(text, ["f", "g"], {}, {"rows[1].count": (0, 7), "many()": (3, 4)})
    assert [(loop.function, loop.at_most) for loop in found] == [("f", 7), ("f", None), ("g", 7), ("g", 4)]


@pytest.mark.slow
def test_counted_iterations_never_exceed_the_bounds(tmp_path):
    """gcov counts what a run of the compiled code does."""
    folder = compiled(integers, "c", tmp_path / "net", profile="safety")
    facts = evidence(folder)
    rows = [*(row for row in facts["loops"] if row["function"] == row["kernel"]), *facts["runtime_loops"]]
    sources = [*folder.glob("*.c"), *folder.glob("kernels/*.c"), *folder.glob("runtime/src/*.c")]
    subprocess.run(["gcc", "-O0", "--coverage", f"-I{folder}", f"-I{folder / 'runtime' / 'include'}",
                    *map(str, sources), "-o", "run"], cwd=tmp_path, check=True)
    subprocess.run(["./run"], cwd=tmp_path, check=True, capture_output=True)
    compared = {"kernels": 0, "runtime": 0}
    for row in rows:
        if row["place"].startswith(("kernels/", "runtime/src/")):
            name, line = Path(row["place"].rpartition(":")[0]), int(row["place"].rpartition(":")[2])
            text = subprocess.run(["gcov", "-t", "-o", str(tmp_path / f"run-{name.stem}.gcda"), str(folder / name)],
                                  cwd=tmp_path, capture_output=True, text=True).stdout
            counts = {int(parts[1]): parts[0].strip().rstrip("*") for parts in
                      (found.split(":", 2) for found in text.splitlines()) if len(parts) > 2}
            before = next((int(counts[n]) for n in range(line - 1, 0, -1) if counts.get(n, "-").isdigit()), None)
            if before and counts.get(line, "-").isdigit():  # the head is reached once more than the body
                assert int(counts[line]) <= before * (row["at_most"] + 1)
                compared[row["place"].partition("/")[0]] += 1
    assert min(compared.values()) > 10


# --- stack ----------------------------------------------------------------------------------------------------------

def test_stacks_by_instructions():
    """Of a library function with what it calls, and of a naked function."""
    code = Disassembly((0, 2, 4, 6, 8, 10, 12, 14), (
        ("push", "{r4, r5-r7, lr}"), ("sub", "sp, #12"), ("bl", "8 <inner>"), ("pop", "{r4, r5-r7, pc}"),
        ("strd", "ip, lr, [sp, #-16]!"), ("bx", "lr"), ("stmdb", "sp!, {r4, lr}"), ("bx", "lr")),
        {"outer": 0, "inner": 8, "tile": 12})
    assert library_stacks(code, ["outer", "inner", "absent"]) == {"outer": 48, "inner": 16}
    graph = completed(CallGraph({"run": 8, "k.c:tile": 0}, {"run": {"k.c:tile", "outer"}}), code)
    assert graph.deepest("run").bytes == 56 and graph.stack["k.c:tile"] == 8
    assert library_stacks(Disassembly((0,), (("sub", "sp, sp, r3"),), {"alloca": 0}), ["alloca"]) == {}


# --- trace ----------------------------------------------------------------------------------------------------------

def test_every_operator_of_the_graph_is_in_the_trace():
    """Those that become constants, views and parts of others too."""
    artifact = tvm_megcc.compile(floats(), "c", profile="safety", name="net")
    (program,) = artifact.manifest["programs"]
    graph = checked(*import_model(floats())[:2], {})
    rows = program["trace"]["operators"]
    assert [row["kind"] for row in rows] == [op.kind for op in graph.ops]
    assert {call for row in rows for call in row["calls"]} | {row["call"] for row in program["trace"]["inserted"]} \
        == set(range(len(program["calls"])))
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["reshape"]["end"] == "a view: no code"
    conv, relu = by_kind["conv2d"], next(row for row in rows if row["kind"] in ("relu", "elementwise"))
    assert conv["calls"] == relu["calls"] and "fuse_epilogues" in conv["passes"]


def test_without_the_profile_there_is_no_trace():
    assert "trace" not in tvm_megcc.compile(floats(), "c", name="net").manifest["programs"][0]


@pytest.mark.parametrize("target", ["c", "cortex-m0plus", "cortex-m3", "cortex-m33", "cortex-m55", "riscv32"])
def test_the_tests_that_the_trace_names(target):
    """Each exists: its words select at least one case."""
    ids = [param.id for param in kernel_tests.WORK]
    for kind in ("conv2d", "conv2d_integer", "softmax_fixed", "gru", "matmul", "elementwise", "relayout"):
        mode = kernel_test(kind, target).rpartition(" and ")[2].rstrip("'")
        assert any(kind in name and mode in name for name in ids), (kind, mode)


# --- the command ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target", ["c", pytest.param("cortex-m4", marks=pytest.mark.slow),
                                    pytest.param("riscv32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", [floats, integers])
def test_evidence(network, target, tmp_path, capsys):
    folder = compiled(network, target, tmp_path / "net", profile="safety")
    try:
        status = main(["evidence", str(folder), "-o", str(tmp_path / "evidence"), "--runs", "1"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert status == 0 and "the evidence is complete" in capsys.readouterr().out
    facts = json.loads((tmp_path / "evidence" / "evidence.json").read_text())
    assert complete(facts) and not facts["gaps"]
    for name, rows in (("operators", facts["operators"]), ("functions", facts["functions"])):
        with open(tmp_path / "evidence" / f"{name}.csv", newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 5
    stack = {row["entry"]: row["bytes"] for row in facts["stack"]["entries"]}
    assert stack["megcc_session_step"] > 0
    if TARGETS[target].bare_metal:
        assert 0 < facts["stack"]["painted"] <= stack["reset"]
        assert all(0 < row["least"] <= row["most"] <= row["at_most"] for row in facts["calls"]["rows"])
        assert facts["calls"]["most"] <= facts["calls"]["at_most"] < 2 * facts["calls"]["most"]
    arena = facts["memory"]["arena"]
    operands = [part for row in facts["operators"] for part in row.get("memory", ())]
    assert all(part["offset"] + part["bytes"] <= arena for part in operands if part["memory"] == "arena")


@pytest.mark.slow
def test_texts_of_a_model_are_escaped(tmp_path):
    folder = compiled(floats, "c", tmp_path / "net", profile="safety")
    facts = evidence(folder)
    facts["operators"][0]["operator"] = "<script>alert(1)</script>"
    assert "<script>" not in page(facts) and b"alert(1)" in files(facts)["operators.csv"]


def test_what_it_refuses(tmp_path, capsys):
    plain = compiled(floats, "c", tmp_path / "plain")
    assert main(["evidence", str(plain), "-o", str(tmp_path / "e")]) == REFUSED
    assert "has no safety profile" in capsys.readouterr().err
    folder = compiled(floats, "c", tmp_path / "net", profile="safety")
    kernel = next(folder.glob("kernels/*.c"))
    kernel.write_text(kernel.read_text() + "\n")
    with pytest.raises(MegccError, match=f"'kernels/{kernel.name}' is not as the compiler wrote it"):
        evidence(folder)


@pytest.mark.slow
def test_a_gap_and_a_property_that_fails_are_shown(tmp_path):
    """A page that says complete has to be able to say that it is not."""
    facts = evidence(compiled(floats, "c", tmp_path / "net", profile="safety"))
    assert complete(facts)
    for change in ({"gaps": ["call 0 has no file"]}, {"loops": [{**facts["loops"][0], "at_most": None}]},
                   {"runtime_loops": [{**facts["runtime_loops"][0], "at_most": None}]},
                   {"properties": [{**facts["properties"][0], "holds": False, "against": ["malloc"]}]}):
        changed = {**facts, **change}
        assert not complete(changed) and 'class="no"' in page(changed)


@pytest.mark.parametrize("dtype, limits", [
    ("float16", (-65504, 65504)), ("float32", (np.finfo(np.float32).min, np.finfo(np.float32).max)),
    ("int8", (-128, 127)), ("uint64", (0, 2**64 - 1)), ("bool", (False, True))])
def test_extreme_inputs_are_finite(dtype, limits):
    assert timing.limits(np.dtype(dtype)) == limits


def disassembled(text: str) -> Disassembly:
    """Instructions of two bytes, from address 0 on, of functions whose names end with a colon."""
    rows, names = [], {}
    for row in text.strip().splitlines():
        name, _, operands = row.strip().partition(" ")
        if name.endswith(":"):
            names[2 * len(rows)] = name[:-1]
        else:
            rows.append((name, re.sub(r"@(\d+)", lambda found: f"{2 * int(found[1]):x} <f>", operands)))
    return Disassembly(tuple(range(0, 2 * len(rows), 2)), tuple(rows), {name: at for at, name in names.items()}, names)


BRANCHES = """f:
    cmp r0, #0
    beq.n @6
    adds r1, #1
    adds r1, #1
    adds r1, #1
    b.n @7
    adds r2, #1
    subs r3, #1
    bne.n @0
    bx lr
    g:
    bx lr"""


def bounded(text: str, runs: list, iterations: int | None = 9) -> timing.Bounds:
    found = timing.Bounds(disassembled(text), [iterations])
    for run in runs:
        found.add([run])
    return found


def test_the_bound_of_a_function_is_that_of_its_longest_path():
    """Both ways of a branch in a loop of eight iterations: a run may take the long one each time. A loop whose count
    depends on data has the iterations that the text of the kernel says."""
    def run(long: int, most: int = 8) -> list[Block]:
        return [Block(20, 1, 1, 1), Block(0, 2, most, most - long), Block(4, 4, long, long),
                Block(12, 1, most - long, 0), Block(14, 2, most, most - 1), Block(18, 1, 1, 1)]

    entered = "f:\n    movs r3, #8\n" + BRANCHES.partition("\n")[2].replace("@7", "@8").replace("@6", "@7").replace(
        "@0", "@1")

    def moved(blocks: list[Block]) -> list[Block]:
        return [Block(0, 1, 1, 0), *(Block(row.begin + 2, row.instructions, row.times, row.jumps) for row in blocks)]

    found = bounded(entered, [moved(run(1)), moved(run(2))])
    assert found.functions(0) == ["f"] and found.varying == [{2, 6, 14}]
    assert found.instructions(0) == 1 + 1 + 8 * 8 + 1     # g; the block before the loop; eight iterations; the return
    assert bounded(entered, [moved(run(1)), moved(run(2, 5))]).instructions(0) == 1 + 1 + 10 * 8 + 1
    unknown = bounded(entered, [moved(run(1)), moved(run(2, 5))], None)
    assert unknown.instructions(0) == 1 + 1 + 8 * 2 + 2 * 4 + 7 + 8 * 2 + 1, "the most executions of each block"
    core = CORES["cortex-m33"]
    assert found.cycles(0, core) > max(cycles(core, found.code, moved(run(long))) for long in range(9))


def test_functions_whose_paths_are_not_known():
    assert paths.Function.read(disassembled("f:\n tbb [pc, r0]\n bx lr"), 0, 4) is None
    two_entries = "f:\n cbz r0, @3\n nop\n nop\n nop\n bne.n @1\n bx lr"
    assert paths.Function.read(disassembled(two_entries.replace("cbz r0, @3", "beq.n @2").replace("@1", "@1")), 0, 12) \
        is None
    predicated = paths.blocks_of(disassembled("f:\n it ne\n bxne lr\n bl @6\n pop {r4, pc}\n .word 0x1\n nop"), 0, 12)
    assert [(row.begin, row.falls, row.leaves) for row in predicated.values()] == [
        (0, True, True), (4, True, True), (6, False, True), (10, True, False)]


def test_blocks_end_where_pages_do():
    """There the emulator ends them, so an instruction after the end of a page does not follow another one."""
    far = Disassembly((1018, 1020, 1022, 1026), (("nop", ""),) * 4, {"f": 1018})
    assert list(paths.blocks_of(far, 1018, 1028)) == [1018, 1022, 1026]
