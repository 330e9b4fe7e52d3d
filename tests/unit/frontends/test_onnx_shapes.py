# SPDX-License-Identifier: Apache-2.0
"""Shapes in the ONNX front end: symbols, input shapes, arithmetic on shapes, and shapes that the file declares."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import model, node, refusal
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.runtime import reference

#: (operator whose second operand determines the result's shape, shape of its first operand, declared shape of the
#: result, attributes)
STATED = [("Reshape", [2, 6], [3, 4], {}), ("Expand", [2, 1], [2, 5], {}), ("Tile", [2, 3], [2, 9], {}),
          ("Unsqueeze", [2, 3], [2, 1, 3], {}), ("Squeeze", [2, 1, 3], [2, 3], {}),
          ("ReduceSum", [2, 3, 4], [2, 1, 4], {}), ("ReduceMax", [2, 3, 4], [2, 4], {"keepdims": 0}),
          ("Split", [2, 6], [2, 6], {"axis": 1})]


@pytest.mark.parametrize(("op", "shape", "result", "attributes"), STATED, ids=[row[0] for row in STATED])
def test_the_stated_shape_of_a_result_stands_for_an_operand_of_the_run(op, shape, result, attributes):
    inputs = {"x": shape, "s": ("int64", [len(result)])}
    nodes = [node(op, "x s", "y", **attributes)]
    assert import_onnx(model(nodes, inputs, {"y": result}, opset=18)).types["y"].shape == tuple(result)
    if op not in ("Unsqueeze", "Squeeze", "ReduceSum", "ReduceMax"):    # axes are no extents
        assert import_onnx(model(nodes, inputs, ["y"], opset=18)).types["y"].rank == len(result)


def test_a_stated_shape_that_leaves_axes_open_is_refused():
    """The number of reduced axes is not known, and neither is the rank of the result."""
    inputs = {"x": [2, 3, 3], "s": ("int64", ["n"])}
    proto = model([node("ReduceSum", "x s", "y", keepdims=0)], inputs, {"y": [2, 3]})
    assert "does not tell how many they are" in str(refusal(proto))


def test_symbols_stay():
    graph = import_onnx(model([node("Relu", "x", "y")], {"x": ["batch", 3, 0, None]}, ["y"]))
    expected = (Symbol("batch"), 3, Symbol("x_2"), Symbol("x_3"))
    assert graph.types["x"].shape == graph.types["y"].shape == expected


def test_extents_that_exporters_do_not_know_have_no_name():
    graph = import_onnx(model([node("Relu", "x", "y")], {"x": ["?", 3, "?", "None"]}, ["y"]))
    assert graph.types["y"].shape == (Symbol("x_0"), 3, Symbol("x_2"), Symbol("x_3"))
    proto = model([node("Relu", "x", "y")], {"x": ["?", 3, "?", "?"]}, ["y"])
    assert import_onnx(proto, {"x": (1, 3, 4, 5)}).types["y"].shape == (1, 3, 4, 5)


def test_input_shapes_bind_symbols_everywhere():
    proto = model([node("Add", "a b", "y")], {"a": ["n", 4], "b": ["n", 4]}, ["y"])
    graph = import_onnx(proto, {"a": (3, 4)})
    assert graph.types["b"].shape == graph.types["y"].shape == (3, 4)
    assert import_onnx(proto, {"a": ("rows", 4), "b": ("rows", 4)}).types["y"].shape == (Symbol("rows"), 4)
    assert import_onnx(proto, {"a": (None, 4)}).types["y"].shape == (Symbol("n"), 4)


def test_wrong_input_shapes():
    proto = model([node("Add", "a b", "y")], {"a": ["n"], "b": ["n"]}, ["y"])
    for shapes, message in (({"c": (1,)}, "inputs are: a, b"), ({"a": (1, 2)}, "1 axes"),
                            ({"a": (2,), "b": (3,)}, "gives as 2 and as 3"), ({"a": (-1,)}, "0 or more")):
        with pytest.raises(ModelError, match=message):
            import_onnx(proto, shapes)


def test_shape_arithmetic_disappears():
    """The idiom of PyTorch exports: view(x.size(0), -1) with a symbolic batch."""
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape zero", "batch", axis=0),
             node("Unsqueeze", "batch axis", "batch1"), node("Mul", "batch1 two", "double"),
             node("Concat", "double minus", "target", axis=0), node("Reshape", "x target", "y")]
    constants = {"zero": np.array(0), "axis": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    graph = import_onnx(model(nodes, {"x": ["batch", 6, 4]}, ["y"], constants))
    assert [op.kind for op in graph.ops] == ["reshape"]
    assert graph.types["y"].shape == (2 * Symbol("batch"), 12)
    graph = import_onnx(model(nodes, {"x": ["batch", 6, 4]}, ["y"], constants), {"x": (5, 6, 4)})
    assert graph.types["y"].shape == (10, 12)


def test_shapes_as_data():
    graph = import_onnx(model([node("Shape", "x", "s"), node("Add", "s v", "y")],
                              {"x": ["n", 3], "v": ("int64", [2])}, ["y"]))
    assert [op.kind for op in graph.ops] == ["dims", "add"]
    x, v = np.zeros((7, 3), np.float32), np.array([1, 1])
    assert reference.run(graph, {"x": x, "v": v})["y"].tolist() == [8, 4]


@pytest.mark.parametrize(("subtracted", "kinds"), [(5, ["dims", "sub"]), (1, ["dims"])])
def test_a_shape_as_data_may_be_negative(subtracted: int, kinds: list[str]):
    """The operator `dims` gives extents only: the shape function refuses a negative one."""
    graph = import_onnx(model([node("Shape", "x", "s"), node("Sub", "s v", "y")],
                              {"x": ["n"]}, ["y"], {"v": np.array([subtracted])}))
    assert [op.kind for op in graph.ops] == kinds
    assert reference.run(graph, {"x": np.zeros(3, np.float32)})["y"].tolist() == [3 - subtracted]


@pytest.mark.parametrize(("number", "divisor"), [("n", -2), (2**62 + 1, 1), (-7, 2), (-7, -2), (7, -2)])
def test_division_of_shapes_rounds_towards_zero(number: int | str, divisor: int):
    """Also of numbers that no float64 holds, beside a symbolic extent."""
    nodes = [node("Shape", "x", "s"), node("Concat", "s v", "c", axis=0), node("Div", "c d", "y")]
    given = 1 if number == "n" else number
    constants = {"v": np.array([given]), "d": np.array([divisor, divisor])}
    graph = import_onnx(model(nodes, {"x": ["n"]}, ["y"], constants))
    found = reference.run(graph, {"x": np.zeros(7, np.float32)})["y"].tolist()
    assert found == [-(7 // -divisor) if divisor < 0 else 7 // divisor,
                     abs(given) // abs(divisor) * (1 if given * divisor > 0 else -1)]


def test_constants_fold():
    nodes = [node("Mul", "a b", "c"), node("Transpose", "c", "d"), node("Add", "x d", "y")]
    graph = import_onnx(model(nodes, {"x": [2]}, ["y"], {"a": np.ones((2, 1), np.float32), "b": np.float32(3)}))
    assert [op.kind for op in graph.ops] == ["add"]


@pytest.mark.parametrize(("start", "delta", "count"), [(0, 1, 5), (0, 2, 3), (1, 1, 4), (7, 1, 0), (7, -1, 2)])
def test_a_range_up_to_an_extent(start: int, delta: int, count: int):
    source = model([node("Shape", "x", "s"), node("Squeeze", "s", "n"), node("Range", "a n d", "y")],
                   {"x": ["n"]}, ["y"], {"a": np.int64(start), "d": np.int64(delta)})
    graph = import_onnx(source)
    result = reference.run(graph, {"x": np.zeros(5, np.float32)})["y"]
    np.testing.assert_array_equal(result, np.arange(start, 5, delta))
    assert len(result) == count
