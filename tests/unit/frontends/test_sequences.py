# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals, which are there only while a model is imported."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx_models import graph_proto, model, node, value
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.frontends.onnx.carried import only_appends
from tvm_megcc.runtime.reference import run

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def sequence(name: str, shape=None, optional: bool = False) -> onnx.ValueInfoProto:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))
    return helper.make_value_info(name, helper.make_optional_type_proto(kind) if optional else kind)


def test_parts_are_taken_out_put_in_and_joined():
    made = model([node("SplitToSequence", "x two", "s", axis=1), node("SequenceInsert", "s x zero", "t"),
                  node("SequenceErase", "t one", "u"), node("SequenceAt", "u minus", "last"),
                  node("SequenceConstruct", "last last", "pair"), node("ConcatFromSequence", "pair", "y", axis=1,
                                                                       new_axis=1),
                  node("SequenceLength", "t", "n")],
                 {"x": [4, 6]}, ["u", "y", "n"], {"two": 2, "zero": 0, "one": 1, "minus": -1})
    made.graph.output[0].CopyFrom(sequence("u"))
    graph = import_onnx(made)
    assert graph.outputs == ("u.0", "u.1", "u.2", "y", "n")
    results = run(graph, {"x": X})
    for name, expected in (("u.0", X), ("u.1", X[:, 2:4]), ("u.2", X[:, 4:]), ("n", 4),
                           ("y", np.stack([X[:, 4:]] * 2, 1))):
        np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize(("nodes", "outputs", "appends"), [
    ([node("SequenceInsert", "s x", "t")], ["go", "t", "x"], True),
    ([node("SequenceInsert", "s x", "t")], ["go", "t", "t"], False),
    ([node("SequenceInsert", "s x", "t")], ["go", "t", "s"], False),
    ([node("SequenceInsert", "s x zero", "t")], ["go", "t"], False),
    ([node("SequenceInsert", "s x", "t"), node("SequenceAt", "s zero", "a")], ["go", "t", "a"], False),
    ([node("SequenceInsert", "s x", "t"), node("SequenceLength", "t", "n")], ["go", "t", "n"], False),
    ([node("SequenceErase", "s zero", "t")], ["go", "t"], False)])
def test_a_loop_only_appends_if_nothing_else_reads_its_sequence(nodes, outputs, appends):
    body = onnx.GraphProto(node=nodes, output=[value(name) for name in outputs])
    assert only_appends(body, "s", "t") == appends


@pytest.mark.parametrize("place", [-3, -1, 0, 1, 2])
def test_places_that_a_run_computes(place: int):
    made = model([node("SequenceConstruct", "a b c", "s"), node("SequenceErase", "s i", "fewer"),
                  node("SequenceInsert", "s d i", "more"), node("SequenceAt", "s i", "y"),
                  node("ConcatFromSequence", "fewer", "f", axis=0), node("ConcatFromSequence", "more", "m", axis=0)],
                 {**{name: [1, 2] for name in "abcd"}, "i": ("int64", [])}, ["y", "f", "m"], opset=13)
    rows = [np.full((1, 2), number, np.float32) for number in range(4)]
    results = run(import_onnx(made), {**dict(zip("abcd", rows, strict=True)), "i": np.array(place)})
    fewer, more = rows[:3], rows[:3]
    fewer.pop(place)
    more.insert(place, rows[3])
    for name, expected in (("y", rows[:3][place]), ("f", np.concatenate(fewer)), ("m", np.concatenate(more))):
        np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize("operator", [node("SequenceAt", "s i", "y"), node("SequenceErase", "s i", "t"),
                                      node("SequenceInsert", "s d i", "t")], ids=lambda proto: proto.op_type)
@pytest.mark.parametrize("position", [-4, 4])
def test_run_time_positions_out_of_range(operator: onnx.NodeProto, position: int):
    join = [node("ConcatFromSequence", "t", "y", axis=0)] if operator.output[0] == "t" else []
    graph = import_onnx(model([node("SequenceConstruct", "a b c", "s"), operator, *join],
                              {**{name: [2] for name in "abcd"}, "i": ("int64", [])}, ["y"], opset=13))
    with pytest.raises((ShapeError, IndexError)):
        run(graph, {**{name: np.zeros(2, np.float32) for name in "abcd"}, "i": np.array(position)})


def test_inputs_and_outputs_are_their_tensors():
    body = graph_proto([node("Mul", "e w", "product"), node("Shape", "e", "shape")],
                       {"e": ["n"], "w": [1]}, ["product", "shape"])
    made = model([node("OptionalHasElement", "o", "has"), node("OptionalGetElement", "o", "s"),
                  node("SequenceMap", "s w", "y shapes", body=body), node("Identity", "y", "z")],
                 [sequence("o", ["n"], optional=True), value("w", [1])], ["z", "shapes", "has"], opset=18)
    made.graph.output[0].CopyFrom(sequence("z"))
    graph = import_onnx(made, input_shapes={"o.0": [3], "o.1": [5]})
    assert graph.inputs == ("o.0", "o.1", "w")
    results = run(graph, {"o.0": X[0, :3], "o.1": X[1, :5], "w": np.array([2], np.float32)})
    for name, expected in (("z.0", 2 * X[0, :3]), ("z.1", 2 * X[1, :5]), ("shapes.1", [5]), ("has", True)):
        np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize(("nodes", "options", "why"), [
    ([node("SequenceLength", "s", "y")], {}, "input 's': is a sequence; give the shapes"),
    ([node("Relu", "s", "y")], {"input_shapes": {"s.0": [3]}}, "an operand is a sequence"),
    ([node("SequenceAt", "s i", "y")], {"input_shapes": {"s.0": [3]}}, "position 7 of a sequence of 1"),
    ([node("SequenceAt", "i i", "y")], {"input_shapes": {"s.0": [3]}}, "its operand 0 is no sequence"),
    ([node("SequenceEmpty", "", "y")], {"input_shapes": {"s.0": [3]}}, "no tensor is left"),
    ([node("ConcatFromSequence", "s", "y", axis=0)], {"constants": {"s": None}}, "an empty sequence"),
])
def test_what_is_refused(nodes, options, why):
    made = model(nodes, [sequence("s", ["n"])], ["y"], {"i": 7}, opset=13)
    with pytest.raises(ModelError, match=why):
        import_onnx(made, **options)
