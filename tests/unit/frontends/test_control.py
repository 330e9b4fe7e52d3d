# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan: loops that are written out, and operators with graphs in them; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.onnx_models import fed, graph_proto, model, node
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx, nodes
from tvm_megcc.frontends.onnx.nodes import Importer
from tvm_megcc.ops.ranges import input_ranges
from tvm_megcc.runtime.reference import run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9


def compare(proto, inputs, bounds=None) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for output in proto.graph.output:
        output.ClearField("type")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    actual = run(import_onnx(proto, bounds=bounds), inputs)
    for value, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(actual[value.name], wanted, rtol=1e-6, err_msg=value.name)


def conditional(other: str = "a"):
    """Both branches read what is around them."""
    yes = graph_proto([node("Relu", "x", "a")], {}, {"a": [2, 3, 4]})
    no = graph_proto([node("Neg", "x", "b"), node("Flatten", "b", "f")], {}, {other: None})
    made = helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    return model([made], {"x": [2, 3, 4], "c": ("bool", [])}, ["y"])


def test_a_condition_of_the_run():
    for condition in (True, False):
        compare(conditional("b"), {"x": X, "c": np.array(condition)})
    with pytest.raises(ModelError, match="its branches give"):
        import_onnx(conditional("f"))
    odd = conditional("b")
    odd.graph.node[0].attribute[0].g.node[0].op_type = "Odd"
    with pytest.raises(ModelError, match="constants="):
        import_onnx(odd)


def looped(turns, condition: str = "k"):
    """A sum that goes round, and its double and the number of the turn from each turn."""
    body = graph_proto([node("Add", "v w", "o"), node("Add", "o o", "d"), node("Less", "i m", "k"),
                        node("ReduceMax", "d", "t", keepdims=0), node("Greater", "t z", "r"),
                        node("Add", "i one", "j")],
                       {"i": ("int64", []), "g": ("bool", []), "v": [3]},
                       {condition: ("bool", []), "o": [3], "d": [3], "j": ("int64", [])},
                       {"one": np.int64(1), "w": np.array([1, 2, 3], np.float32), "m": np.int64(4), "z": np.float32(9)})
    made = helper.make_node("Loop", ["n", "", "v0"], ["last", "all", "turns"], body=body)
    return model([made], {"v0": [3]}, ["last", "all", "turns"], {"n": np.int64(turns)})


def test_loops_of_known_turns():
    x = {"v0": np.array([0.5, -1, 2], np.float32)}
    for turns in (0, 1, 3, 9):  # the last one ends by its condition
        compare(looped(turns), x)


def test_loops_that_the_run_ends():
    """By a condition on what goes round; by their number of iterations, which is many, or an input."""
    for first in (0.5, -50, 30):
        compare(looped(3, "r"), {"v0": np.array([first, first / 2, 2], np.float32)})
    compare(looped(300), {"v0": np.zeros(3, np.float32)})
    proto = looped(3, "r")
    del proto.graph.initializer[:]
    proto.graph.input.append(helper.make_tensor_value_info("n", 7, []))
    for turns in (0, 1, 9):
        compare(proto, {"v0": np.array([9, 5, 2], np.float32), "n": np.array(turns)})
    with pytest.raises(ShapeError, match="more than 4 iterations"):
        run(import_onnx(proto, bounds={"last": 4}), {"v0": np.full(3, 5, np.float32), "n": np.array(9)})
    endless = looped(3, "r")
    endless.graph.node[0].input[0] = ""
    with pytest.raises(ModelError, match='state a bound: bounds="last=1000"'):
        import_onnx(endless)


def growing(step: list, condition: str = "k", constants: dict | None = None, **first):
    """A loop of `n` turns whose value `v` becomes `o` by these nodes, while that has less than 20 elements."""
    body = graph_proto([*step, node("Size", "o", "s"), node("Less", "s most", "k")],
                       {"i": ("int64", []), "g": ("bool", []), "v": None}, {condition: ("bool", []), "o": None},
                       {"most": np.int64(20), "two": np.array([2]), "zero": np.array([0]), **(constants or {})})
    made = helper.make_node("Loop", ["n", "", "v0"], ["last"], body=body)
    return model([made], {"v0": [3], "n": ("int64", []), **first}, ["last"])


def counting(most: int | None, first: int = 0, step: int = 1, limit: float = 7, go: bool | None = None):
    """A loop as tf2onnx writes it: it counts a value that goes round up to a limit that goes round, too."""
    body = graph_proto([node("Add", "c step", "c1"), node("Cast", "c1", "r", to=TensorProto.FLOAT),
                        node("Less", "r m", "k"), node("Identity", "m", "m1"), node("Mul", "v v", "v1"),
                        node("Tanh", "v1", "row")],
                       {"i": ("int64", []), "g": ("bool", []), "c": ("int32", []), "v": [2], "m": []},
                       {"k": ("bool", []), "c1": ("int32", []), "v1": [2], "m1": [], "row": [2]},
                       {"step": np.int32(step)})
    made = helper.make_node("Loop", ["" if most is None else "n", "" if go is None else "go", "c0", "v0", "m0"],
                            ["count", "last", "limit", "rows"], body=body)
    constants = {"c0": np.int32(first), "m0": np.float32(limit), "n": np.int64(most or 0), "go": np.array(bool(go))}
    return model([made], {"v0": [2]}, ["count", "last", "rows"], constants)


@pytest.mark.parametrize(("options", "turns"), [
    ({"most": None}, 7), ({"most": 5}, 5), ({"most": 500}, 7), ({"most": None, "limit": 2}, 2),
    ({"most": None, "limit": -3}, 1), ({"most": None, "step": 3}, 3), ({"most": None, "limit": 300}, 300),
    ({"most": None, "go": False}, 0), ({"most": -4}, 0)])
def test_loops_whose_condition_follows_from_constants(options: dict, turns: int):
    """As many turns as it is true for, without a bound."""
    proto = counting(**options)
    assert import_onnx(proto).types["rows"].shape == (turns, 2)
    compare(proto, {"v0": np.array([0.9, -1.01], np.float32)})


def body_of(proto) -> list[str]:
    """The operators of the only loop's body."""
    (loop,) = (op for op in import_onnx(proto).ops if op.kind == "loop")
    return [op.kind for op in loop.attrs.body.graph.ops]


@pytest.mark.parametrize("condition", [node("Identity", "g", "k"), helper.make_node("Equal", ["m", "m"], ["k"])])
def test_turns_that_are_counted_have_no_condition(condition):
    """One that stays as it is, is true, or holds for a known number of iterations: nothing computes or copies it."""
    body = graph_proto([node("Tanh", "v", "o"), condition], {"i": ("int64", []), "g": ("bool", []), "v": [3]},
                       {"k": ("bool", []), "o": [3]}, {"m": np.int64(4)})
    made = helper.make_node("Loop", ["n", "go", "v0"], ["last"], body=body)
    proto = model([made], {"v0": [3], "n": ("int64", []), "go": ("bool", [])}, ["last"])
    assert body_of(proto) == ["tanh"]
    for turns, go in ((0, True), (3, True), (9, True), (9, False)):
        compare(proto, {"v0": np.array([9, 5, 2], np.float32), "n": np.array(turns), "go": np.array(go)})
    assert not {"less", "cast"} & set(body_of(counting(None, limit=300)))


@pytest.mark.parametrize("going", [{"go": True}, {}])
def test_a_condition_that_stays_true_is_asked_for_once(going: dict, monkeypatch):
    """Whether it follows from its own last value or from carried values that stay as they are: asking until the limit
    of an import took five seconds."""
    asked = []
    evaluate = Importer.inline
    monkeypatch.setattr(Importer, "inline", lambda *values: asked.append(values) or evaluate(*values))
    body = graph_proto([node("Tanh", "v", "o"), node("Identity", "m", "m1"),
                        node("Identity", "g", "k") if going else node("Less", "m most", "k")],
                       {"i": ("int64", []), "g": ("bool", []), "v": [3], "m": ("int64", [])},
                       {"k": ("bool", []), "o": [3], "m1": ("int64", [])}, {"most": np.int64(4)})
    made = helper.make_node("Loop", ["n", *(going or [""]), "v0", "m0"], ["last", "end"], body=body)
    proto = model([made], {"v0": [3], "n": ("int64", [])}, ["last"], {"m0": np.int64(3), "go": np.array(True)})
    import_onnx(proto)
    assert len(asked) < 9
    for iterations in (0, 5):
        compare(proto, {"v0": np.array([9, 5, 2], np.float32), "n": np.array(iterations)})


def test_loops_that_have_no_end(monkeypatch):
    monkeypatch.setattr(nodes, "NODE_BUDGET", 500)
    with pytest.raises(ModelError, match="has no number of iterations"):
        import_onnx(counting(None, step=0))


def test_values_that_grow_from_turn_to_turn():
    """By as much as there is, which nothing limits but the user; by two elements a turn, as often as the user says; to
    what is found, which is less each time."""
    v0 = np.array([1, -2, 3], np.float32)
    doubled = growing([node("Concat", "v v", "o", axis=0)])
    with pytest.raises(ModelError, match=r"float32\[3\] at first and grows.*bounds=.last=1000"):
        import_onnx(doubled)
    for turns in (0, 1, 2, 9):
        compare(doubled, {"v0": v0, "n": np.array(turns)}, bounds={"last": 24})
    with pytest.raises(ShapeError, match=r"crop|has to be between"):
        run(import_onnx(doubled, bounds={"last": 20}), {"v0": v0, "n": np.array(9)})
    longer = growing([node("Slice", "v zero two", "t"), node("Concat", "t v", "o", axis=0)])
    for bounds in ({"last": 30}, {"n": 9}):
        assert import_onnx(longer, bounds=bounds).types["last"].rank == 1
        compare(longer, {"v0": v0, "n": np.array(9)}, bounds=bounds)
    shorter = growing([node("NonZero", "v", "at"), node("Transpose", "at", "rows"), node("GatherND", "v rows", "w"),
                       node("Mul", "w half", "h"), node("Floor", "h", "o")],
                      constants={"half": np.float32(0.4)})
    for turns in (0, 1, 2, 5):
        compare(shorter, {"v0": v0, "n": np.array(turns)})


def test_branches_that_differ_in_axes_of_one():
    """As Paddle's exporter writes them: a number here, a row of one there."""
    yes = graph_proto([node("ReduceMax", "x", "a", keepdims=0)], {}, {"a": None})
    no = graph_proto([node("ReduceMin", "x", "m", keepdims=0), node("Unsqueeze", "m axis", "b")], {}, {"b": None},
                     {"axis": np.array([0])})
    made = helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)
    proto = model([made], {"x": [2, 3, 4], "c": ("bool", [])}, ["y"])
    for condition, wanted in ((True, X.max()), (False, X.min())):
        (found,) = run(import_onnx(proto), {"x": X, "c": np.array(condition)}).values()
        assert found.reshape(-1).tolist() == [wanted] and found.shape == ()


def filled(reads: bool = False):
    """What goes round: a sum, a weight that no turn changes, a number at first that is a row behind the first turn."""
    body = graph_proto([node("MatMul", "v w", "o"), node("ReduceMax", "o", "s", keepdims=0),
                        node("Less", "s limit", "r"), node("Add", "o late" if reads else "o o", "row")],
                       {"i": ("int64", []), "g": ("bool", []), "v": [1, 3], "w": [3, 3], "late": []},
                       {"r": ("bool", []), "o": [1, 3], "w": [3, 3], "row": [1, 3]}, {"limit": np.float32(40)})
    made = helper.make_node("Loop", ["", "going", "x", "w0", "nothing"], ["last", "weight", "row"], body=body)
    return model([made], {"x": [1, 3]}, ["last", "weight", "row"],
                 {"going": np.array(True), "w0": np.diag([2, 3, 0.5]).astype(np.float32), "nothing": np.float32(7)})


def test_what_goes_round_and_what_does_not():
    proto = filled()
    compare(proto, {"x": np.array([[0.5, 0.1, 2]], np.float32)})
    (loop,) = [op for op in import_onnx(proto).ops if op.kind == "loop"]
    assert loop.attrs.carried == 2
    with pytest.raises(ModelError, match="at first and then"):
        import_onnx(filled(reads=True))


def test_branches_of_other_extents():
    """What follows has the extents of the branch that was taken."""
    yes = graph_proto([node("Concat", "x x", "a", axis=0)], {}, {"a": None})
    no = graph_proto([node("NonZero", "x", "at"), node("Transpose", "at", "t"), node("Cast", "t", "b", to=1)], {},
                     {"b": None})
    made = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no), node("Exp", "y", "z")]
    proto = model(made, {"x": [3, 2], "c": ("bool", [])}, ["y", "z"])
    x = np.array([[1, 0], [0, 0], [2, 3]], np.float32)
    for taken in (True, False):
        compare(proto, {"x": x, "c": np.array(taken)})
    expanded = graph_proto([node("ConstantOfShape", "s", "a")], {}, {"a": None})
    made = [helper.make_node("If", ["c"], ["y"], then_branch=expanded, else_branch=no)]
    proto = model(made, {"x": [3, 2], "c": ("bool", []), "s": ("int64", [2])}, ["y"])
    with pytest.raises(ModelError, match=r"nothing limits how large that is; state a bound: bounds=.y=1000"):
        import_onnx(proto)


def test_inputs_are_drawn_so_that_the_branch_that_is_there_runs():
    """Of a rate that an If compares, where one branch is impossible."""
    for kind, wanted in (("else_branch", 8), ("then_branch", None)):
        proto = conditional("b")
        index = ["then_branch", "else_branch"].index(kind)
        branch = next(each.g for each in proto.graph.node[0].attribute if each.name == kind)
        branch.node[0].CopyFrom(node("MatMul", "x x", "ab"[index]))
        proto.graph.node.insert(0, node("Equal", "rate eight", "c"))
        del proto.graph.input[1]
        proto.graph.input.append(helper.make_tensor_value_info("rate", 7, []))
        proto.graph.initializer.append(numpy_helper.from_array(np.int64(8), "eight"))
        ranges = input_ranges(import_onnx(proto))
        assert ranges.get("rate") == (wanted and (wanted, wanted))


@pytest.mark.parametrize(("axis", "backward", "stacked", "behind"), [(0, 0, 0, 0), (1, 1, 1, 0), (2, 0, -1, 1)])
def test_scans(axis: int, backward: int, stacked: int, behind: int):
    shape = [extent for index, extent in enumerate(X.shape) if index != axis]
    body = graph_proto([node("Add", "s e", "o"), node("Mul", "o e", "p")], {"s": shape, "e": shape},
                       {"o": shape, "p": shape})
    made = helper.make_node("Scan", ["s0", "x"], ["last", "all"], num_scan_inputs=1, body=body, scan_input_axes=[axis],
                            scan_input_directions=[backward], scan_output_axes=[stacked],
                            scan_output_directions=[behind])
    inputs = {"s0": np.ones(shape, np.float32), "x": X}
    compare(model([made], fed(inputs), ["last", "all"]), inputs)
    open_ = {"s0": shape, "x": [extent if index != axis else "n" for index, extent in enumerate(X.shape)]}
    compare(model([made], open_, ["last", "all"]), inputs)


def test_loops_within_loops_are_bounded(monkeypatch):
    """Five of them, of 20 turns each, are a file of a kilobyte."""
    monkeypatch.setattr(nodes, "NODE_BUDGET", 500)
    inner = [node("Neg", "v0", "w0")]
    for depth in range(5):
        body = graph_proto(inner, {f"i{depth}": ("int64", []), f"g{depth}": ("bool", []), f"v{depth}": [3]},
                           {f"g{depth}": ("bool", []), f"w{depth}": [3]}, {"n": np.int64(20)})
        inner = [helper.make_node("Loop", ["n", "", f"v{depth + 1}"], [f"w{depth + 1}"], body=body)]
    proto = model(inner, {"v5": [3]}, ["w5"], {"n": np.int64(20)})
    with pytest.raises(ModelError, match="expand to more than"):
        import_onnx(proto)


def test_a_branch_that_these_shapes_make_impossible(caplog):
    """The other one is taken; a run that asks for it fails."""
    proto = conditional("b")
    proto.graph.node[0].attribute[1].g.node[0].CopyFrom(node("MatMul", "x x", "a"))
    graph = import_onnx(proto)
    assert "a run that takes its then_branch fails" in caplog.text
    assert (run(graph, {"x": X, "c": np.array(False)})["y"] == -X).all()
    with pytest.raises(ShapeError, match="the condition of y chooses the branch that was removed"):
        run(graph, {"x": X, "c": np.array(True)})
