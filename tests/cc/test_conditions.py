# SPDX-License-Identifier: Apache-2.0
"""Shapes that an operator cannot have are refused when they are set, before a kernel sees them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tests.opened import opened
from tvm_megcc.codegen.shapefn import PUT, ShapeTable
from tvm_megcc.errors import ShapeError
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native

HERE = Path(__file__).parent
C_RUNTIME = HERE.parents[1] / "c_runtime"


def test_shape_functions_refuse_what_the_rules_refuse(tmp_path: Path):
    """Those of all operators' cases, printed as C, on shapes of which many violate a condition."""
    functions: list[str] = []
    calls: list[str] = []
    refused = 0
    for kind, declaration in sorted(OPERATORS.items()):
        for index, case in enumerate(declaration.cases):
            for some in opened(kind, case):
                values = tuple(dict.fromkeys(dim for t in some.results for dim in t.shape if not isinstance(dim, int)))
                table = ShapeTable(tuple(some.symbols), values, some.conditions)
                name = f"f{len(functions)}"
                functions.append("\n".join(table.function(name)))
                for drawn in some.drawn(12, index):
                    accepted = some.accepts(drawn)
                    refused += not accepted
                    numbers = ", ".join(map(str, drawn.values()))
                    calls.append(f"    differs += (f = {name}, at = \"{kind} {index}: {numbers}\", "
                                 f"is_wrong((int32_t[]){{ {numbers} }}, {int(accepted)}));")
    source = tmp_path / "conditions.c"
    source.write_text("\n".join(['#include <stdio.h>', '#include "megcc_kernel.h"', PUT, *functions, """
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


def model(op_type: str, inputs: dict, outputs: dict, **attrs):
    """A model of one node. inputs, outputs: name -> (element type, shape)."""
    def values(described):
        return [helper.make_tensor_value_info(name, *type_) for name, type_ in described.items()]

    node = helper.make_node(op_type, list(inputs), list(outputs), "the_node", **attrs)
    graph = helper.make_graph([node], "net", values(inputs), values(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_weights(network, *shape: int):
    """The model with a constant as a further operand of its node."""
    network.graph.node[0].input.append("w")
    network.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), "w"))
    return network


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

REFUSED = {
    "indices wider than the data": (
        model("ScatterElements", {"x": (FLOAT, ["N", 5, "C"]), "i": (INT64, ["K", 2, "D"]),
                                  "u": (FLOAT, ["K", 2, "D"])}, {"y": (FLOAT, ["N", 5, "C"])}, axis=1),
        "x[0]=1..*;x[2]=1..*;i[0]=1..*;i[2]=1..*", {"x": (1, 5, 2), "i": (1, 2, 70), "u": (1, 2, 70)},
        {"x": (2, 5, 3), "i": (1, 2, 3), "u": (1, 2, 3)}, "reach beyond .* on axis 2: D <= C"),
    "operands that do not broadcast": (
        model("Add", {"a": (FLOAT, ["N", 4]), "b": (FLOAT, ["M", 4])}, {"y": (FLOAT, ["N", 4])}),
        "a[0]=1..8;b[0]=1..8", {"a": (1, 4), "b": (3, 4)}, {"a": (3, 4), "b": (3, 4)}, "do not broadcast: N == M"),
    "sums over two extents": (
        model("MatMul", {"a": (FLOAT, [2, "K"]), "b": (FLOAT, ["L", 3])}, {"y": (FLOAT, [2, 3])}),
        "a[1]=1..*;b[0]=1..*", {"a": (2, 5), "b": (4, 3)}, {"a": (2, 5), "b": (5, 3)}, "do not match.*: K == L"),
    "rows that weights do not fit": (
        with_weights(model("MatMul", {"a": (FLOAT, ["N", "K"])}, {"y": (FLOAT, ["N", 3])}), 5, 3),
        "a[0]=1..*;a[1]=1..*", {"a": (2, 6)}, {"a": (2, 5)}, "do not match.*: K == 5"),
    "a window beside the image": (
        model("MaxPool", {"x": (FLOAT, [1, 1, "H", 8])}, {"y": (FLOAT, [1, 1, "P", 4])}, kernel_shape=[5, 2],
              strides=[2, 2]),
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
    network = model("Abs", {"x": (TensorProto.INT8, ["N"])}, {"y": (TensorProto.INT8, ["N"])})
    session = tvm_megcc.load(compiled(network, "x[0]=1..*", tmp_path))
    with pytest.raises(ShapeError, match="2147483647"):
        session.run({"x": np.zeros(2**31 - 1, np.int8)})
    session.run({"x": np.zeros(3, np.int8)})


def test_mirrored_axes_of_two_gigabytes(tmp_path: Path):
    """Where a pad reads, for axes of any extent and borders of any width."""
    network = model("Pad", {"x": (TensorProto.UINT8, ["N"])}, {"y": (TensorProto.UINT8, ["M"])}, mode="reflect")
    network.graph.node[0].input.append("w")
    network.graph.initializer.append(numpy_helper.from_array(np.array([3, 3]), "w"))
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


def test_bounds_that_decide_a_condition_leave_nothing_to_check(tmp_path: Path):
    network, _, _, _, _ = REFUSED["a window beside the image"]
    assert "does not fit" not in (compiled(network, "x[2]=5..8", tmp_path) / "kernels.c").read_text()
