# SPDX-License-Identifier: Apache-2.0
"""Whatever compiles opens: the compiler knows the runtime's limits, and says which of them a model exceeds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.graphs import Builder
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.ir import limits
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.ops.control.tir import Program
from tvm_megcc.passes.canonicalize.variadic import make_trees
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

HEADERS = ("include/megcc.h", "include/megcc_kernel.h", "src/internal.h")


def test_the_numbers_are_those_of_the_runtime():
    text = "".join((Path(__file__).parents[3] / "c_runtime" / header).read_text() for header in HEADERS)
    stated = dict(re.findall(r"#define MEGCC_(MAX_\w+) +(\d+)u?\b", text))
    assert {name: int(number) for name, number in stated.items()} \
        == {name: getattr(limits, name, None) for name in stated} and len(stated) >= 3
    # The counts of an instruction are bytes, the name of a tensor is a short.
    assert (container.STRUCTS[container.Instruction], container.STRUCTS[container.Tensor]) == ("4BII", "6BH5I")


def wide(parts: int, axis: int = 1):
    b = Builder()
    names = [b.input(f"x{index}", *((2, 1 + index % 3) if axis else (1 + index % 3, 2))) for index in range(parts)]
    return b.graph(b.op("concat", *names, name="joined", axis=axis))


@pytest.mark.parametrize("parts", [2, 32, 33, 100, 1024])
def test_trees(parts: int):
    graph = wide(parts)
    tree = make_trees(graph, TARGETS["c"])
    assert max(len(op.inputs) for op in tree.ops) <= OPERATORS["concat"].fan_in
    values = {name: np.random.default_rng(1).random(graph.types[name].shape, np.float32) for name in graph.inputs}
    (expected,), (result,) = (list(run(each, values).values()) for each in (graph, tree))
    assert np.array_equal(expected, result)


def many_operands():
    """Loops of TVM's over more tensors than a kernel can have."""
    names, x = [f"x{index}" for index in range(limits.MAX_OPERANDS)], TensorType("float32", (4,))
    program = Program("wide", "example", tuple((name, x) for name in names), (("y", x),), "return 0;")
    b = Builder()
    return b.graph(b.op("tir", *(b.input(name, 4) for name in names), name="fused", program=program))


def many_ports():
    b = Builder()
    x = b.input("x", 1)
    return b.graph(*(b.op("relu", x, name=f"y{index}") for index in range(limits.MAX_NAMES)))


def nine_axes():
    b = Builder()
    return b.graph(b.op("relu", b.op("reshape", b.input("x", 512), shape=(2,) * 9, name="deep")))


@pytest.mark.parametrize("graph, message", [
    (many_operands, "tir 'fused' has 62 operands and results, a kernel has at most 61"),
    (many_ports, "it has 65,536 inputs and outputs, the runtime takes 65,535"),
    (nine_axes, "reshape 'deep' has a tensor of 9 axes, tensors have at most 8"),
])
def test_beyond_a_limit(graph, message: str):
    with pytest.raises(ModelError, match=re.escape(message)):
        compile_graph(graph(), [TARGETS["c"]])


def test_a_symbol_that_no_shape_tells():
    """Twice a length is no length: nothing could be opened that computes one from the other."""
    b = Builder()
    graph = b.graph(b.op("relu", b.input("x", 2 * Symbol("length"), 3)))
    with pytest.raises(ShapeError, match=re.escape("no input has a dimension that is length, only 2*length of x")):
        compile_graph(graph, [TARGETS["c"]], buckets=[Bucket((("length", 1, 4),))])
