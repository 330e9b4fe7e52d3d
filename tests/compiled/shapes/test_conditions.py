# SPDX-License-Identifier: Apache-2.0
"""Shapes that an operator cannot have are refused when they are set, before a kernel sees them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tests.opened import opened
from tvm_megcc.codegen.shapefn import SET_VALUE, ShapeTable
from tvm_megcc.errors import ShapeError
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native

HERE = Path(__file__).parent
C_RUNTIME = HERE.parents[2] / "c_runtime"


@pytest.mark.slow
def test_shape_functions_refuse_what_the_rules_refuse(tmp_path: Path):
    """Those of all operators' cases, printed as C, on shapes of which many violate a condition."""
    functions: list[str] = []
    calls: list[str] = []
    refused = 0
    for kind, declaration in sorted(OPERATORS.items()):
        for index, case in enumerate(declaration.cases):
            for some in opened(kind, case):
                values = tuple(dict.fromkeys(dim for t in some.results for dim in t.shape if not isinstance(dim, int)))
                table = ShapeTable(tuple(some.symbols), len(some.symbols), values, some.conditions)
                name = f"f{len(functions)}"
                functions.append("\n".join(table.function(name)))
                for drawn in some.drawn(12, index):
                    accepted = some.accepts(drawn)
                    refused += not accepted
                    numbers = ", ".join(map(str, drawn.values()))
                    calls.append(f"    differs += (f = {name}, at = \"{kind} {index}: {numbers}\", "
                                 f"is_wrong((int32_t[]){{ {numbers} }}, {int(accepted)}));")
    source = tmp_path / "conditions.c"
    source.write_text("\n".join(['#include <stdio.h>', '#include "megcc_kernel.h"', SET_VALUE, *functions, """
static megcc_shapes_fn f;
static const char *at;

static int is_wrong(const int32_t *symbol, int accepted)
{
    static int32_t value[64];
    const char *why = NULL;
    const int32_t violated = f(symbol, value, &why);
    if ((violated == 0) == accepted && (violated > 0) == (why != NULL))
        return 0;
    printf("%s: %d, %s\\n", at, (int)violated, why == NULL ? "" : why);
    return 1;
}

int main(void)
{
    int differs = 0;""", *calls, "    return differs != 0;", "}", ""]))
    compiler = find_compiler(native())
    subprocess.run([*compiler.command, "-std=c99", "-O0", "-Wall", "-Wextra", "-Werror", "-I",
                    str(C_RUNTIME / "include"), str(source), "-o", str(tmp_path / "conditions")], check=True)
    result = subprocess.run([tmp_path / "conditions"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert refused > 500


def one_node(kind: str, inputs: dict, outputs: dict, constants=None, **attributes):
    """A model of one node, whose last operands are the constants."""
    only = node(kind, " ".join([*inputs, *(constants or {})]), " ".join(outputs), "the_node", **attributes)
    return model([only], inputs, outputs, constants, opset=21)


REFUSED = {
    "indices wider than the data": (
        one_node("ScatterElements", {"x": ["N", 5, "C"], "i": ("int64", ["K", 2, "D"]), "u": ["K", 2, "D"]},
                 {"y": ["N", 5, "C"]}, axis=1),
        "x[0]=1..*;x[2]=1..*;i[0]=1..*;i[2]=1..*", {"x": (1, 5, 2), "i": (1, 2, 70), "u": (1, 2, 70)},
        {"x": (2, 5, 3), "i": (1, 2, 3), "u": (1, 2, 3)}, "reach beyond .* on axis 2: D <= C"),
    "operands that do not broadcast": (
        one_node("Add", {"a": ["N", 4], "b": ["M", 4]}, {"y": ["N", 4]}),
        "a[0]=1..8;b[0]=1..8", {"a": (1, 4), "b": (3, 4)}, {"a": (3, 4), "b": (3, 4)}, "do not broadcast: N == M"),
    "sums over two extents": (
        one_node("MatMul", {"a": [2, "K"], "b": ["L", 3]}, {"y": [2, 3]}),
        "a[1]=1..*;b[0]=1..*", {"a": (2, 5), "b": (4, 3)}, {"a": (2, 5), "b": (5, 3)}, "do not match.*: K == L"),
    "rows that weights do not fit": (
        one_node("MatMul", {"a": ["N", "K"]}, {"y": ["N", 3]}, {"w": np.ones((5, 3), np.float32)}),
        "a[0]=1..*;a[1]=1..*", {"a": (2, 6)}, {"a": (2, 5)}, "do not match.*: K == 5"),
    "a window beside the image": (
        one_node("MaxPool", {"x": [1, 1, "H", 8]}, {"y": [1, 1, "P", 4]}, kernel_shape=[5, 2], strides=[2, 2]),
        "x[2]=1..*", {"x": (1, 1, 4, 8)}, {"x": (1, 1, 5, 8)}, "a window of 5 .* does not fit"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_shapes_that_violate_a_condition_are_refused_with_the_reason(what: str, tmp_path: Path):
    network, dispatch, wrong, right, reason = REFUSED[what]
    session = tvm_megcc.load(compiled(network, dispatch, tmp_path))

    def arrays(shapes):
        return {port.name: np.zeros(shapes[port.name], port.dtype) for port in session.inputs}

    session.run(arrays(right))
    with pytest.raises(ShapeError, match=f"'the_node'.*{reason}"):
        session.run(arrays(wrong))
    session.run(arrays(right))


def test_no_tensor_reaches_2_gb(tmp_path: Path):
    """Kernels count in int32_t, a vector beyond the end of what they read."""
    network = one_node("Abs", {"x": ("int8", ["N"])}, {"y": ("int8", ["N"])})
    session = tvm_megcc.load(compiled(network, "x[0]=1..*", tmp_path))
    with pytest.raises(ShapeError, match="2147483647"):
        session.run({"x": np.zeros(2**31 - 1, np.int8)})
    session.run({"x": np.zeros(3, np.int8)})


def test_mirrored_axes_of_two_gigabytes(tmp_path: Path):
    """Where a pad reads, for axes of any extent and borders of any width."""
    network = one_node("Pad", {"x": ("uint8", ["N"])}, {"y": ("uint8", ["M"])}, {"w": np.array([3, 3])},
                       mode="reflect")
    (kernel,) = (compiled(network, "x[0]=1..*", tmp_path) / "kernels").glob("*.c")
    function = re.search(r"static MGC_INLINE (int32_t source\(.*?\n}\n)", kernel.read_text(), re.DOTALL)[1]
    places = [(i, n) for n in (1, 2, 5, 2**30, 2**30 + 1, 2**30 + 9, 2**31 - 2**16)
              for i in (-2**31 + 2**16, -n - 3, -9, -1, 0, 3, n - 1, n, n + 5, n + 2**15) if abs(i) < 2**31]
    wrong = " || ".join(f"source({i}, {n}) != {np.abs((i + n - 1) % max(2 * n - 2, 1) - (n - 1))}" for i, n in places)
    source = tmp_path / "places.c"
    source.write_text(f"#include <stdint.h>\n{function}\nint main(void) {{ return {wrong}; }}\n")
    command = find_compiler(native()).command
    subprocess.run([*command, "-std=c99", str(source), "-o", str(tmp_path / "places")], check=True)
    subprocess.run([tmp_path / "places"], check=True)


def compiled(network, dispatch: str, folder: Path) -> Path:
    tvm_megcc.compile(network, dispatch=dispatch).save(folder / "net")
    return folder / "net"


def test_bounds_that_no_shape_of_the_model_fits_are_an_error(tmp_path: Path):
    network, _, _, _, _ = REFUSED["a window beside the image"]
    with pytest.raises(ShapeError, match="none of the shapes asked for fits the model"):
        compiled(network, "x[2]=1..4", tmp_path)


def test_a_range_of_which_no_shape_fits_beside_ranges_that_do(tmp_path: Path):
    network, _, _, _, reason = REFUSED["a window beside the image"]
    session = tvm_megcc.load(compiled(network, "x[2]=1..4,8..*", tmp_path), "native")
    for extent in (8, 11):
        x = np.arange(8 * extent, dtype=np.float32).reshape(1, 1, extent, 8)
        np.testing.assert_array_equal(session.run({"x": x})["y"], maximum_of_windows(x))
    with pytest.raises(ShapeError, match=reason):
        session.run({"x": np.zeros((1, 1, 4, 8), np.float32)})


def maximum_of_windows(x: np.ndarray) -> np.ndarray:
    """MaxPool 5x2 by 2."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (5, 2), axis=(2, 3))[:, :, ::2, ::2]
    return windows.max((4, 5))


def test_slices_that_end_before_they_begin_are_empty(tmp_path: Path):
    """x[-2:3] of more than five."""
    network = model([node("Slice", "x starts ends", "v"), node("Neg", "v", "y")], {"x": ["n"]}, ["y"],
                    {"starts": np.array([-2]), "ends": np.array([3])})
    session = tvm_megcc.load(compiled(network, "x[0]=1..5,8..*", tmp_path), "native")
    for extent in (1, 2, 4, 5, 8, 16):
        x = np.arange(extent, dtype=np.float32)
        np.testing.assert_array_equal(session.run({"x": x})["y"], -x[-2:3])


def test_bounds_that_decide_a_condition_leave_nothing_to_check(tmp_path: Path):
    network, _, _, _, _ = REFUSED["a window beside the image"]
    assert "does not fit" not in (compiled(network, "x[2]=5..8", tmp_path) / "kernels.c").read_text()


@pytest.mark.parametrize("start, end", [(-5, 2**62), (-5, -2), (-5, -4), (-5, 100), (-5, 3), (-1, 2**62), (3, 2**62)])
def test_slices_from_the_end_of_a_shorter_axis_begin_where_it_does(start: int, end: int, tmp_path):
    proto = model([node("Slice", "x starts ends axes", "part"), node("Relu", "part", "y")],
                  {"x": ("float32", ["n", 3])}, {"y": ("float32", None)},
                  {"starts": np.array([start]), "ends": np.array([end]), "axes": np.array([0])})
    artifact = tvm_megcc.compile(proto, name="net", dims="n=1..64")
    with tvm_megcc.load(artifact.save(tmp_path / "net_megcc")) as session:
        for rows in (1, 2, 3, 4, 5, 6, 9, 64):
            x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
            np.testing.assert_array_equal(session.run({"x": x})["y"], x[start:end])
