# SPDX-License-Identifier: Apache-2.0
"""What only one branch of an If reads is computed in that branch."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.onnx_models import graph_proto, model, node
from tvm_megcc.context import Context
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes.canonicalize.branches import sink_into_branches
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def conditional(before, yes, no, outputs=("y",), constants=None):
    """An If behind nodes, and one result of each branch."""
    branches = {f"{name}_branch": graph_proto([inside], [], {f"{name}_y": [3, 4]})
                for name, inside in (("then", yes), ("else", no))}
    chosen = helper.make_node("If", ["above"], ["y"], name="y", **branches)
    return import_onnx(model([*before, chosen], {"x": [3, 4], "above": ("bool", [])}, list(outputs), constants))


def sunk(graph):
    """Checks that results stay; returns the kinds of operators outside (with the reshape of the condition), in the
    first branch and in the second."""
    moved = sink_into_branches(graph, Context(TARGETS["c"]))
    verify(moved)
    for above in (True, False):
        given = {"x": X, "above": np.array(above)}
        wanted, found = run(graph, given), run(moved, given)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)
    (branch,) = (op for op in moved.ops if op.kind == "branch")
    return [sorted(op.kind for op in ops) for ops in (
        moved.ops, branch.attrs.yes.graph.ops, branch.attrs.no.graph.ops)]


def test_chains_go_into_their_branches():
    outside, yes, no = sunk(conditional(
        [node("Exp", "x", "e"), node("Neg", "e", "n"), node("Tanh", "x", "t")],
        node("Add", "n x", "then_y"), node("Mul", "t x", "else_y")))
    assert outside == ["branch", "reshape"]
    assert (yes, no) == (["add", "exp", "neg"], ["mul", "tanh"])


def test_a_branch_that_only_selects_computes():
    """As importers write it that compute both branches before the If."""
    outside, yes, no = sunk(conditional([node("Exp", "x", "e"), node("Tanh", "x", "t")],
                                        node("Identity", "e", "then_y"), node("Identity", "t", "else_y")))
    assert outside == ["branch", "reshape"] and "exp" in yes and "tanh" in no


def test_weights_go_along():
    outside, yes, _ = sunk(conditional([node("MatMul", "x w", "m")], node("Relu", "m", "then_y"),
                                       node("Identity", "x", "else_y"), constants={"w": np.eye(4, dtype=np.float32)}))
    assert outside == ["branch", "reshape"] and "matmul" in yes


@pytest.mark.parametrize("reader", ["both", "output", "after", "condition"])
def test_what_others_read_stays(reader: str):
    yes = node("Add", "e x", "then_y")
    no = node("Mul", "e x" if reader == "both" else "x x", "else_y")
    before, outputs = [node("Exp", "x", "e")], ["y"]
    if reader == "output":
        outputs.append("e")
    graph = conditional(before, yes, no, outputs)
    if reader == "after":
        proto = model([*before, helper.make_node("If", ["above"], ["y"], then_branch=graph_proto(
            [yes], [], {"then_y": [3, 4]}), else_branch=graph_proto([no], [], {"else_y": [3, 4]})),
            node("Sub", "y e", "z")], {"x": [3, 4], "above": ("bool", [])}, ["z"])
        graph = import_onnx(proto)
    if reader == "condition":
        proto = model([node("Exp", "x", "e"), node("ReduceSum", "e", "s", keepdims=0), node("Less", "s zero", "low"),
                       helper.make_node("Or", ["low", "above"], ["go"]),
                       helper.make_node("If", ["go"], ["y"], then_branch=graph_proto([yes], [], {"then_y": [3, 4]}),
                                        else_branch=graph_proto([no], [], {"else_y": [3, 4]}))],
                      {"x": [3, 4], "above": ("bool", [])}, ["y"], {"zero": np.float32(0)}, opset=13)
        graph = import_onnx(proto)
    outside, yes, _ = sunk(graph)
    assert "exp" in outside and "exp" not in yes


def test_a_branch_within_a_branch():
    """What only the inner one reads goes all the way, since bodies are compiled as graphs."""
    inner = helper.make_node("If", ["above"], ["then_y"], name="inner", then_branch=graph_proto(
        [node("Add", "e x", "a")], [], {"a": [3, 4]}),
        else_branch=graph_proto([node("Neg", "x", "b")], [], {"b": [3, 4]}))
    outside, yes, _ = sunk(conditional([node("Exp", "x", "e")], inner, node("Identity", "x", "else_y")))
    assert outside == ["branch", "reshape"] and "exp" in yes


def test_captured_constants_stay_captured():
    """A value that the body captures may have become a constant since."""
    graph = conditional([node("Exp", "x", "e"), node("Tanh", "x", "t")], node("Add", "e t", "then_y"),
                        node("Identity", "x", "else_y"))
    kept = [op for op in graph.ops if op.kind != "tanh"]
    graph = graph.with_(ops=tuple(kept), constants={**graph.constants, "t": np.tanh(X)})
    _, yes, _ = sunk(graph)
    assert "exp" in yes
