# SPDX-License-Identifier: Apache-2.0
"""Quantised inputs and outputs: scale and zero point in the header, the manifest and the runtime."""

import json
import subprocess

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MegccError, ShapeError

SCALE, ZERO = np.float32(1 / 3), -7


def network(*nodes, scale=SCALE, inputs=("x",)) -> bytes:
    """From int8[2,3] to y: int8[2,3]. s, z: scale and zero point; t, u: others; v: three zeros."""
    zero = np.array(ZERO, np.int8)
    constants = {"s": np.asarray(scale, np.float32), "z": zero, "t": np.float32(0.5), "u": zero + np.int8(2),
                 "v": np.zeros(3, np.int8)}
    type_ = "int8", [2, 3]
    made = model(nodes, dict.fromkeys(inputs, type_), {"y": type_}, constants)
    onnx.checker.check_model(made)
    return made.SerializeToString()


BODY = (node("DequantizeLinear", "x s z", "a"), node("Neg", "a", "b"), node("QuantizeLinear", "b t u", "y"))
THERE = ({"scale": float(SCALE), "zero_point": ZERO}, {"scale": 0.5, "zero_point": ZERO + 2})


def quants(data: bytes) -> list:
    facts = tvm_megcc.compile(data, "c").manifest
    return [row.get("quant") for row in (*facts["inputs"], *facts["outputs"])]


def test_both_ends():
    assert quants(network(*BODY)) == list(THERE)


def test_behind_operators_that_only_move():
    body = (node("Transpose", "x", "m"), node("DequantizeLinear", "m s z", "a"), node("Neg", "a", "b"),
            node("QuantizeLinear", "b t u", "c"), node("Transpose", "c", "y"))
    assert quants(network(*body)) == list(THERE)


@pytest.mark.parametrize("body", [
    (node("DequantizeLinear", "x s z", "a"), node("DequantizeLinear", "x t u", "c"), node("Add", "a c", "b"),
     node("QuantizeLinear", "b t u", "y")),
    (node("DequantizeLinear", "x s z", "a"), node("QuantizeLinear", "a t u", "b"), node("Max", "b x", "y")),
], ids=["two scales", "also an integer"])
def test_what_has_no_one_meaning(body):
    assert quants(network(*body))[0] is None


def test_scales_of_channels():
    per_axis = network(node("DequantizeLinear", "x s v", "a", axis=1), *BODY[1:], scale=[1, 2, 3])
    assert quants(per_axis) == [None, THERE[1]]


PROGRAM = """
#include <stdio.h>
#include "net.h"
static unsigned char block[NET_MEMORY_BYTES + NET_ALIGN];
static int same(const megcc_tensor *t, float scale, int zero)
{
    return t->quants == 1 && t->quant_axis == -1 && t->quant->scale == scale && t->quant->zero_point == zero;
}
int main(void)
{
    megcc_model model;
    megcc_session *session;
    megcc_tensor x, y;
    void *memory = block + NET_ALIGN - (uintptr_t)block % NET_ALIGN;
    if (megcc_model_open(&model, &net_module, net_data, NET_CONTAINER_BYTES, NULL, NULL)
        || megcc_session_open(&session, &model, memory, NET_MEMORY_BYTES, NULL, NULL))
        return 1;
    megcc_session_input(session, NET_IN_X, &x);
    megcc_session_output(session, NET_OUT_Y, &y);
    printf("%.9g %d %.9g %d\\n", (double)NET_IN_X_SCALE, NET_IN_X_ZERO_POINT,
           (double)NET_OUT_Y_SCALE, NET_OUT_Y_ZERO_POINT);
    return same(&x, NET_IN_X_SCALE, NET_IN_X_ZERO_POINT) && same(&y, NET_OUT_Y_SCALE, NET_OUT_Y_ZERO_POINT) ? 0 : 2;
}
"""


def test_in_c(tmp_path):
    compiler = native_compiler().command
    folder = tvm_megcc.compile(network(*BODY), "c", name="net").save(tmp_path / "net_megcc", embed=True)
    assert json.loads((folder / "manifest.json").read_text())["models"][0]["inputs"][0]["quant"] == THERE[0]
    (folder / "main.c").write_text(PROGRAM)
    sources = [str(path) for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c") for path in folder.glob(pattern)]
    subprocess.run([*compiler, "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Iruntime/include", "-I.",
                    *sources, "-pthread", "-o", "main"], cwd=folder, check=True)
    said = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout.split()
    assert [np.float32(said[0]), int(said[1]), float(said[2]), int(said[3])] == [SCALE, ZERO, 0.5, ZERO + 2]


def test_names_do_not_meet():
    """An input called "x_scale" beside a quantised one called "x"."""
    body = (*BODY[:2], node("DequantizeLinear", "x_scale s z", "c"), node("Add", "b c", "d"),
            node("QuantizeLinear", "d t u", "y"))
    artifact = tvm_megcc.compile(network(*body, inputs=("x", "x_scale")), "c", name="net")
    header = tvm_megcc.codegen.bundle.contents([artifact])["net.h"].decode()
    names = [line.split()[1] for line in header.splitlines() if line.startswith("#define")]
    assert len(names) == len(set(names))


def test_reals_in_and_out(tmp_path, capsys):
    """Floats become the nearest integers, halves to even, and do not leave their range; integers are taken as well."""
    folder = tvm_megcc.compile(network(*BODY), "native", name="net").save(tmp_path / "net")
    session = tvm_megcc.load(folder)
    reals = np.array([[0, 1, -1], [1e9, -np.inf, 0.5 / 3]], np.float32)
    integers = np.array([[ZERO, ZERO + 3, ZERO - 3], [127, -128, ZERO]], np.int8)
    expected = session.run({"x": integers})["y"]
    assert session.inputs[0].quant == (float(SCALE), ZERO)
    found = session.run_float([reals])
    assert found["y"].dtype == np.float32
    np.testing.assert_array_equal(found["y"], (expected.astype(np.float32) - (ZERO + 2)) * np.float32(0.5))
    np.testing.assert_array_equal(session.run_float({"x": integers})["y"], found["y"])
    with pytest.raises(ShapeError, match="run_float takes floats"):
        session.run([reals])
    with pytest.raises(ShapeError, match="no input 'other'"):
        session.run_float({"other": reals})
    np.savez(tmp_path / "in.npz", x=reals)
    command = ["run", str(folder), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert main([*command, "--float", "-q"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["y"], found["y"])
    assert main([*command, "-q"]) == 1 and "run_float" in capsys.readouterr().err


@pytest.mark.parametrize("quant", [1, {}, {"scale": "1", "zero_point": 0}, {"scale": 0.0, "zero_point": 0},
                                   {"scale": float("nan"), "zero_point": 0}, {"scale": 1.0, "zero_point": 0.5}])
def test_a_manifest_with_another_scale_is_refused(quant, tmp_path):
    folder = tvm_megcc.compile(network(*BODY), "c", name="net").save(tmp_path / "net")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["models"][0]["inputs"][0]["quant"] = quant
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MegccError, match="scale or zero point is invalid"):
        read_manifest(folder)
