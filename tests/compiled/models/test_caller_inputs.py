# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs that have no place in a session's memory."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_megcc
from tests.graphs import Builder
from tests.rows_graphs import fed, separable
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MegccError, MissingTool, ShapeError
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, parse_targets
from tvm_megcc.tools.export.packages import export

#: What OPEN stands for in a main program.
OPEN = r"""
#define OPEN \
    megcc_model model; \
    megcc_session *session; \
    megcc_error error; \
    if (megcc_model_open(&model, &test_module, test_data, TEST_CONTAINER_BYTES, NULL, &error) \
        || megcc_session_open(&session, &model, memory, sizeof memory, NULL, &error)) \
        return 1;
"""

MAIN = """
#include "test.h"
#include <string.h>
static _Alignas(TEST_ALIGN) unsigned char memory[TEST_MEMORY_BYTES];
static int8_t x[TEST_IN_X_ELEMENTS];
int main(void)
{
    OPEN
    if (megcc_session_input(session, 0, NULL) != NULL)
        return 2;
    if (megcc_session_run(session, &error) != MEGCC_E_ORDER || strcmp(error.where, "megcc_session_bind_input"))
        return 3;
    if (megcc_session_bind_input(session, 0, x, sizeof x - 1) != MEGCC_E_ARGUMENT
        || megcc_session_run(session, NULL) != MEGCC_E_ORDER)
        return 4;
    for (int i = 0; i < (int)sizeof x; i++)
        x[i] = (int8_t)i;
    if (megcc_session_bind_input(session, 0, x, sizeof x) || megcc_session_run(session, &error))
        return 5;
    for (int i = 0; i < (int)sizeof x; i++)
        if (x[i] != (int8_t)i)
            return 6;
    if (megcc_session_bind_input(session, 0, NULL, 0) || megcc_session_run(session, NULL) != MEGCC_E_ORDER)
        return 7;
    return 0;
}
"""


#: An output at the end of a block of its own size.
OUTPUT_MAIN = """
#include "test.h"
#include <string.h>
static _Alignas(TEST_ALIGN) unsigned char memory[TEST_MEMORY_BYTES];
static float y[TEST_OUT_Y_ELEMENTS + 1];
int main(void)
{
    OPEN
    if (megcc_session_output(session, 0, NULL) != NULL)
        return 2;
    if (megcc_session_run(session, &error) != MEGCC_E_ORDER || strcmp(error.where, "megcc_session_bind_output"))
        return 3;
    if (megcc_session_bind_output(session, 0, y, sizeof y - sizeof *y - 1) != MEGCC_E_ARGUMENT)
        return 4;
    y[TEST_OUT_Y_ELEMENTS] = 5;
    if (megcc_session_bind_output(session, 0, y, sizeof y - sizeof *y) || megcc_session_run(session, &error))
        return 5;
    for (int i = 0; i < TEST_OUT_Y_ELEMENTS; i++)
        if (y[i] != 1.0f) /* exp(relu(0)) */
            return 6;
    return y[TEST_OUT_Y_ELEMENTS] == 5 ? 0 : 7;
}
"""


def test_runs_want_outputs_bound(tmp_path):
    b = Builder()
    graph = b.graph(b.op("exp", b.op("relu", b.input("x", 1000)), name="y"))
    artifacts = [compile_graph(made, parse_targets("c"), name="test") for made in (
        graph, graph.with_(caller_outputs=frozenset(graph.outputs)))]
    before, after = (artifact.manifest["programs"][0]["arena_bytes"] for artifact in artifacts)
    assert after < before
    run_probe(artifacts[1].save(tmp_path / "made", embed=True), OUTPUT_MAIN)


def test_runs_want_them_bound(tmp_path):
    folder = compile_graph(separable(), parse_targets("c"), caller_inputs=True).save(tmp_path / "made", embed=True)
    run_probe(folder, MAIN)


def run_probe(folder, text: str) -> None:
    """Compiles a folder for `c` with this main program, which ends with 0."""
    (folder / "probe.c").write_text(OPEN + text)
    try:
        compiler = find_compiler(TARGETS["c"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    sources = [str(path) for path in sorted(folder.rglob("*.c")) if path.name not in ("main.c", "megcc_run.c")]
    command = [*compiler.command, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-I.", "-Iruntime/include", *sources, "-o",
               "probe", "-lm", "-pthread"]
    subprocess.run(command, cwd=folder, check=True)
    assert subprocess.run(["./probe"], cwd=folder, check=False).returncode == 0


@pytest.mark.parametrize("target", ["c", pytest.param("cortex-m4", marks=pytest.mark.slow)])
def test_same_bits_without_their_memory(target, tmp_path):
    graph, results = separable(), []
    for caller in (False, True):
        artifact = compile_graph(graph, parse_targets(target), caller_inputs=caller)
        (program,) = container.read(artifact.container).programs
        assert (program.tensors[0].storage == container.Storage.caller) == caller
        try:
            session = load(artifact.save(tmp_path / str(caller)))
        except MissingTool as missing:
            pytest.skip(str(missing))
        results.append(session.run(fed(graph)))
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])
    if session.target.bare_metal:
        sizes = firmware.sizes(session.firmware)
        assert sizes["given"] == -(-3 * 20 * 10 // 64) * 64


def test_where_they_cannot_be(tmp_path):
    folder = compile_graph(separable(), parse_targets("cortex-m4"), caller_inputs=True).save(tmp_path / "made")
    with pytest.raises(MegccError, match="without caller_inputs"):
        export(folder, "zephyr", tmp_path / "package")
    b = Builder()
    graph = b.graph(b.op("relu", b.input("x", Symbol("N"), 3)))
    with pytest.raises(ShapeError, match="leave out caller_inputs"):
        compile_graph(graph, parse_targets("c"), buckets=[Bucket((("N", 1, 4),))], caller_inputs=True)


#: A container from a file whose output, which a run decides the size of, is to be in the caller's memory.
DECIDED_MAIN = """
#include "test.h"
#include <stdio.h>
static _Alignas(64) unsigned char data[1 << 16];
static _Alignas(TEST_ALIGN) unsigned char memory[TEST_MEMORY_BYTES];
static int64_t y[1];
int main(void)
{
    megcc_model model;
    megcc_session *session;
    megcc_error error;
    FILE *file = fopen("hostile.megcc", "rb");
    const size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    if (megcc_model_open(&model, &test_module, data, size, NULL, &error)
        || megcc_session_open(&session, &model, memory, sizeof memory, NULL, &error))
        return 0; /* refused */
    if (megcc_session_bind_output(session, 0, y, sizeof y) != MEGCC_E_ARGUMENT)
        return 1;
    return megcc_session_run(session, &error) == MEGCC_E_ORDER ? 0 : 2;
}
"""


def test_a_size_that_the_run_decides(tmp_path):
    """No slot tells how large such an output gets, so no memory is large enough."""
    node = helper.make_node("NonZero", ["x"], ["y"])
    ports = ([helper.make_tensor_value_info("x", TensorProto.FLOAT, (8,))],
             [helper.make_tensor_value_info("y", TensorProto.INT64, (1, None))])
    proto = helper.make_model(helper.make_graph([node], "test", *ports), opset_imports=[helper.make_opsetid("", 17)])
    folder = tvm_megcc.compile(proto, "c", name="test").save(tmp_path / "made")
    model = container.read((folder / "test.megcc").read_bytes())
    (program,) = model.programs
    at = len(program.inputs)
    tensors = (*program.tensors[:at], replace(program.tensors[at], storage=container.Storage.caller),
               *program.tensors[at + 1:])
    memories = tuple(replace(memory, tensors=(*memory.tensors[:at], container.TensorSlot(0, 0),
                                              *memory.tensors[at + 1:])) for memory in program.device_models)
    hostile = replace(model, programs=(replace(program, tensors=tensors, device_models=memories),))
    (folder / "hostile.megcc").write_bytes(container.write(hostile))
    run_probe(folder, DECIDED_MAIN)
