# SPDX-License-Identifier: Apache-2.0
"""What prints microkernels: loops of C, statements of assembler, and the taps of a window."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from tests.kernels.kernel_harness import jobs_of
from tests.unit.kernels.test_assembler import statements, written_early
from tvm_megcc.codegen.c_source.render import render_kernel
from tvm_megcc.kernels.microkernel.assembler import Assembler, asm_inout, asm_input, asm_output, registers
from tvm_megcc.kernels.microkernel.panel_tile import PanelTile
from tvm_megcc.kernels.microkernel.printer import Printer
from tvm_megcc.kernels.microkernel.tile import Multiply, Tile, quotient, remainder
from tvm_megcc.kernels.microkernel.window import Taps
from tvm_megcc.kernels.tiling import Tiling
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS


def test_a_loop_of_one_iteration_is_none():
    c = Printer()
    with c.function("static int f(void)"), c.loop("i", 3), c.loop("j", 1):
        c("x++;")
    assert c.text == "static int f(void)\n{\nfor (int32_t i = 0; i < 3; i++) {\nx++;\n}\n}\n"


def test_a_statement():
    asm = Assembler()
    with asm.loop_of(1, "x8", 2), asm.loop_of(2, "x9", 1):
        asm("ldr q0, [%[x]], #16")
    assert asm.instructions == ["mov x8, #2", "1:", "ldr q0, [%[x]], #16", "subs x8, x8, #1", "b.ne 1b"]
    statement = asm.statement([asm_output("a"), asm_inout("x")], [asm_input("n", "2 * n")], ["cc", *registers("v", 1)])
    assert statement[-3:] == [
        ': [a] "=&w"(a), [x] "+&r"(x)', ': [n] "r"(2 * n)', ': "cc", "v0");']
    with pytest.raises(ValueError, match="needs &"):
        asm.statement(['[a] "=w"(a)'], [], [])


@pytest.mark.parametrize("taps", [Taps(3, 1, 1), Taps(3, 2, 1), Taps(2, 3, 2), Taps(1, 2, 1), Taps(5, 1, 3)])
@pytest.mark.parametrize("results", [1, 2, 5])
def test_reads_are_every_product_once(taps: Taps, results: int):
    found = [(element, result, tap) for element, uses in taps.reads(results, {1, 4}) for result, tap in uses]
    every = {(result * taps.stride + tap * taps.dilation, result, tap)
             for result in range(results) for tap in range(taps.count)}
    assert len(found) == len(set(found)) and set(found) == {each for each in every if each[0] not in (1, 4)}
    assert found == sorted(found) and max(every)[0] < taps.extent(results)
    assert taps.used(results, {1, 4}) == {tap for _, _, tap in found}


@pytest.mark.parametrize("taps", [Taps(3, 1, 1), Taps(2, 1, 3)])
def test_taps_inside(taps: Taps):
    """The C, read as Python, for every place of a window before, in and behind short axes; also none is inside."""
    text = re.sub(r"const int32_t (\w+) = (.*) \? (.*) : (.*);", r"\1 = (\3) if \2 else (\4)",
                  taps.inside("first", "end", "at", "extent")).replace("/", "//").replace("-at", "- at")
    for extent in range(1, 5):
        for at in range(-10, 8):
            scope = {"at": at, "extent": extent}
            exec(text, scope)
            inside = [t for t in range(taps.count) if 0 <= at + t * taps.dilation < extent]
            assert list(range(scope["first"], scope["end"])) == inside


@pytest.mark.parametrize(("kind", "target"), [("conv2d", "arm64"), ("conv2d", "riscv64-v"), ("conv2d_integer", "arm64"),
                                              ("conv2d_integer", "arm64-v82"), ("conv2d_integer", "arm64-v86")])
def test_no_output_shares_a_register_with_an_input(kind: str, target: str):
    found = 0
    for case in OPERATORS[kind].cases[::3]:
        for spec in {job.bound.spec for job in jobs_of(kind, case, 0, TARGETS[target], "speed")}:
            for parts in statements(render_kernel(spec)):
                found += 1
                assert not written_early(parts)
    assert found


def test_the_shape_of_a_tile():
    """Vectors of neighbouring channels that one instruction takes lie in one block of weights."""
    tile = Tile(Tiling.of(TARGETS["riscv64-v"].isa), 2, 3, 16)
    assert tile.name == "tile_2x3" and Tile(Tiling.of(TARGETS["c"].isa), 1, 4, 4).name == "tile_1x4_w4"
    assert [v for first, part in tile.parts for v in range(first, first + part.count)] == [0, 1, 2]
    assert sorted(v for _, vectors in tile.types for v in vectors) == [first for first, _ in tile.parts]
    assert tile.rows() == 16 and tile.rows(3) == 48
    assert [Tile(Tiling.of(TARGETS["c"].isa), 1, 1, None).rows(n) for n in (1, 2)] == ["width", "2 * width"]
    assert (quotient(21, 4), remainder(21, 4), quotient("n", 4), remainder("n", 4)) == (5, 1, "n / 4", "n % 4")


def test_both_branches_of_an_if():
    c = Printer()
    with c.block("if (x > 0)"), c.block("while (y > 0)", when=False):
        c("x--;")
    with c.otherwise():
        c("x++;")
    assert c.lines == ["if (x > 0) {", "x--;", "} else {", "x++;", "}"]


def test_products_with_a_number():
    """On its own in a general register, or broadcast to a vector."""
    assert Multiply("float").load("x0", "x[1]") == "const float x0 = x[1];"
    assert Multiply("float").add("a0", "w0", "x0", "2") == "a0 = mgc_fma_by2(w0, x0, a0);"
    assert Multiply().load("x0", "x[1]") == "const mgc_v x0 = mgc_set1(x[1]);"
    assert Multiply().add("a0", "w0", "x0") == "a0 = mgc_fma(w0, x0, a0);"


def test_each_sum_of_a_panel_has_its_columns():
    tile = PanelTile(2, SimpleNamespace(isa=TARGETS["arm64"].isa))
    assert tile.begin(2, "s{p}_{v} = {at};").splitlines() == [
        "const int32_t n0 = n < 0 ? 0 : n < 4 ? n : 4;", "s0_0 = 0;", "s1_0 = 0;",
        "const int32_t n1 = n - 4 < 0 ? 0 : n - 4 < 4 ? n - 4 : 4;", "s0_1 = 4;", "s1_1 = 4;"]
    assert tile.for_each(2, "f(s{p}_{v}, {n});").split("\n")[2] == "f(s1_0, n0);"
    assert tile.products(1, "b", "a[{p}]", separate=True).splitlines() == [
        "{", "const mgc_v x = mgc_set1(a[0]);", "a0_0 = mgc_fma(b0, x, a0_0);", "a0_1 = mgc_fma(b1, x, a0_1);", "}"]


@pytest.mark.parametrize("template", ["conv2d/direct", "conv2d/pixels"])
@pytest.mark.parametrize("target", ["x86-64-v4", "c", "cortex-m55"])
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_calls_have_the_parameters_of_tiles(template: str, target: str, optimize: str):
    """Every function of a tile is called, with as many arguments as it has parameters."""
    texts = [render_kernel(job.bound.spec) for index, case in enumerate(OPERATORS["conv2d"].cases[:24])
             for job in jobs_of("conv2d", case, index, TARGETS[target], optimize)
             if job.bound.spec.template == template]
    assert texts or (template, target) == ("conv2d/pixels", "c")
    for text in texts:
        functions = dict(re.findall(r"void (tile_\w+)\(([^{]*?)\)\n\{", text))
        calls = re.findall(r"^ +(tile_\w+)\((.*?)\);$", text, re.MULTILINE | re.DOTALL)
        assert functions and {name for name, _ in calls} == functions.keys()
        for name, arguments in calls:
            assert _commas(arguments) == _commas(functions[name]), name


def _commas(text: str) -> int:
    """Commas outside all parentheses."""
    while text != (text := re.sub(r"\([^()]*\)", "", text)):
        pass
    return text.count(",")
