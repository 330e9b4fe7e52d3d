# SPDX-License-Identifier: Apache-2.0
"""What a kernel that is timed reads: copies of its weights, as far away as a network has them."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc import paths
from tvm_megcc.context import Context
from tvm_megcc.ir.dims import round_up
from tvm_megcc.ir.graph import Attrs, Graph, Op, network_bytes
from tvm_megcc.ir.types import TensorType
from tvm_megcc.kernels.site import Site
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime import timing
from tvm_megcc.runtime.build import CFLAGS
from tvm_megcc.runtime.candidates import Call, candidates_of
from tvm_megcc.runtime.timing import ALIGNMENT, MAX_WEIGHT_COPY_BYTES, copies
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native
from tvm_megcc.tools.bench.candidates import network_around

#: Its three inputs are bytes 0, 1, 2, …; the second and the third are weights. It writes what it saw as four int32:
#: calls whose x was elsewhere than that of the first; calls whose weights were where those of the call before were;
#: calls whose weights were where the first ones were; wrong weights.
PROBE = r"""
#include <string.h>
#include "megcc_kernel.h"
static int32_t probe(const megcc_call *call, int32_t begin, int32_t end, void *scratch)
{
    static const unsigned char *x, *first, *last;
    static int32_t seen[4];
    const unsigned char *w = call->in[1], *b = call->in[2];
    (void)begin, (void)end, (void)scratch;
    if (x == NULL) {
        x = call->in[0];
        first = w;
    }
    seen[0] += call->in[0] != x;
    seen[1] += w == last;
    seen[2] += w == first;
    for (int i = 0; i < 100; i++)
        seen[3] += w[i] != i || (i < 20 && b[i] != i);
    last = w;
    memcpy(call->out[0], seen, sizeof seen);
    return 0;
}
static const megcc_kernel_fn kernels[] = { probe };
"""


@pytest.mark.parametrize("weight_bytes, of_network, number", [
    (0, 10, 1), (10, 0, 1), (10, 10, 1), (10, 20, 2), (10, 21, 3), (30, 20, 1),
    (1 << 20, 1 << 40, MAX_WEIGHT_COPY_BYTES >> 20), (MAX_WEIGHT_COPY_BYTES + 1, 1 << 40, 1)])
def test_copies(weight_bytes, of_network, number):
    assert copies(weight_bytes, of_network) == number


@pytest.mark.parametrize("number", [1, 3])
def test_a_call_reads_the_next_copy(tmp_path, number):
    """With three copies every third call reads the first; what is no weight stays in its place."""
    (tmp_path / "kernels_to_measure.h").write_text(PROBE)
    source, runtime = Path(timing.__file__).with_name("measure.c"), paths.c_runtime()
    subprocess.run([*find_compiler(native()).command, *CFLAGS, "-DMEGCC_MEASURE_PROGRAM", f"-I{tmp_path}",
                    f"-I{runtime / 'include'}", f"-I{runtime / 'src'}", str(source), str(runtime / "src" / "cpu.c"),
                    "-pthread", "-o", str(tmp_path / "measure")], check=True)
    calls, inputs = 30, [bytes(range(n)) for n in (8, 100, 20)]
    # Repeats of no time have one call each; before them comes one.
    head = timing._HEAD.pack(0, 0, 0, 3, 1, 1, calls - 1, 0, 1_000_000, 0, 0, 0)
    job = head + struct.pack("<4q3i", 8, 100, 20, 16, 1, number, number) + b"".join(inputs)
    size = timing._TAIL.size + 8 * (calls - 1) + 16
    done = subprocess.run([str(tmp_path / "measure")], input=struct.pack("<2q", len(job), size) + job,
                          capture_output=True, check=True).stdout
    assert struct.unpack_from("<i", done) == (0,) and len(done) == 4 + size
    same = (calls - 1, calls) if number == 1 else (0, calls // number)
    assert struct.unpack("<4i", done[-16:]) == (0, *same, 0)


def _product() -> Graph:
    """x (1, 4) times constants (4, 6), of a table (50, 4) by constant places."""
    generator = np.random.default_rng(0)
    constants = {"table": generator.standard_normal((50, 4)).astype(np.float32), "at": np.zeros(1, np.int64),
                 "w": generator.standard_normal((4, 6)).astype(np.float32)}
    types = {**{name: TensorType(str(array.dtype), array.shape) for name, array in constants.items()},
             "row": TensorType("float32", (1, 4)), "x": TensorType("float32", (1, 4)),
             "y": TensorType("float32", (1, 6))}
    ops = (Op("gather", Attrs(axis=0), ("table", "at"), ("row",), origin="g"),
           Op("matmul", Attrs(OPERATORS["matmul"].cases[0].attrs), ("x", "w"), ("y",), origin="m"))
    return Graph("g", ("x",), ("row", "y"), ops, types, constants)


def test_bytes_of_a_network():
    """Tables of which some rows are read do not count."""
    assert network_bytes(_product()) == 4 * 6 * 4 + 8


def test_a_measurement_copies_constants_only():
    graph = _product()
    op = graph.ops[1]
    values = {"x": np.ones((1, 4), np.float32), "y": np.ones((1, 6), np.float32)}
    candidate = next(c for c in candidates_of(Site.of(graph, op, Context(native()))) if c.kernel.name == "packed")
    indices = [operand.index for operand in candidate.bound.inputs]
    (weights,) = [4 * p.size for p, index in zip(candidate.bound.spec.inputs, indices, strict=True) if index == 1]
    job = Call("", op, graph).measurement(candidate, values, 5 * round_up(weights, ALIGNMENT)).job(0)
    assert _counts(candidate, job) == [5 if index == 1 else 1 for index in indices]


def _counts(candidate, job: bytes) -> list[int]:
    inputs = len(candidate.bound.inputs)
    start = timing._HEAD.size + 4 * len(candidate.bound.extents) + 8 * (inputs + 1)
    return np.frombuffer(job, np.int32, inputs, start).tolist()


def test_copies_of_a_number_take_a_line_each():
    graph = Graph("g", ("x",), ("y",), (Op("add", Attrs(), ("x", "c"), ("y",), origin="a"),),
                  {"x": TensorType("float32", (9,)), "c": TensorType("float32", (1,)),
                   "y": TensorType("float32", (9,))}, {"c": np.ones(1, np.float32)})
    candidate = next(candidates_of(Site.of(graph, graph.ops[0], Context(native()))))
    values = {"x": np.ones(9, np.float32), "y": np.ones(9, np.float32)}
    job = Call("", graph.ops[0], graph).measurement(candidate, values, 100 * ALIGNMENT).job(0)
    assert _counts(candidate, job) == [1, 100]


def test_the_network_around_an_operator():
    """Weights within the second cache stay in the caches."""
    graph = _product()
    assert network_around(graph, native()) == network_bytes(graph)
    large = np.zeros((native().l2, 1), np.float32)
    assert network_around(graph.with_(constants={**graph.constants, "w": large}), native()) == MAX_WEIGHT_COPY_BYTES
