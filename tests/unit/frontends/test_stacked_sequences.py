# SPDX-License-Identifier: Apache-2.0
"""Sequences whose length is known only at run time: of loops, branches and open extents."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_models import graph_proto, model, node
from tests.sequence_models import bags, embedding_bag, looped, sequence
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime.reference import run

X = np.arange(12, dtype=np.float32).reshape(3, 4)
ROW = [node("Gather", "x i", "row")]


@pytest.mark.parametrize("turns", [3, 1, 0])
def test_what_turns_add_to_a_sequence(turns):
    """Behind one that was there, too; a length that limits nothing needs a bound."""
    made = looped([*ROW, node("SequenceInsert", "s row", "t")],
                  [node("ConcatFromSequence", "r", "y", axis=1, new_axis=1), node("SequenceLength", "r", "l")],
                  {"x": [3, 4]}, ["y", "l"])
    results = run(import_onnx(made, bounds={"n": 3}), {"x": X, "n": np.array(turns)})
    np.testing.assert_array_equal(results["y"], X[:turns].T)
    assert results["l"] == turns
    before = [node("Gather", "x one", "g"), node("SequenceConstruct", "g g", "s0")]
    made = looped([*ROW, node("SequenceInsert", "s row", "t")], [node("ConcatFromSequence", "r", "y", axis=0)],
                  {"x": [3, 4]}, ["y"], before=before)
    results = run(import_onnx(made, bounds={"n": 3}), {"x": X, "n": np.array(turns)})
    np.testing.assert_array_equal(results["y"], np.concatenate([X[1], X[1], *X[:turns]]))


@pytest.mark.parametrize("place", [-3, -1, 0, 2])
def test_sequences_that_turns_read_and_change(place):
    """By their length, in front of others; then tensors are taken out and put in where a run says."""
    inside = [*ROW, node("SequenceLength", "s", "l"), node("Cast", "l", "lf", to=1), node("Add", "row lf", "more"),
              node("SequenceInsert", "s more zero", "t")]
    behind = [node("SequenceErase", "r p", "fewer"), node("ConcatFromSequence", "fewer", "f", axis=0, new_axis=1),
              node("SequenceInsert", "r v p", "longer"), node("ConcatFromSequence", "longer", "m", axis=0, new_axis=1),
              node("SequenceAt", "r p", "a"), node("SequenceErase", "r", "front"), node("SequenceLength", "front", "l")]
    made = looped(inside, behind, {"x": [3, 4], "p": ("int64", []), "v": [4]}, ["f", "m", "a", "l"])
    graph = import_onnx(made, bounds={"n": 3})
    given = {"x": X, "n": np.array(3), "p": np.array(place), "v": np.full(4, -5, np.float32)}
    rows = [X[i] + i for i in (2, 1, 0)]
    fewer, more = rows[:], rows[:]
    fewer.pop(place)
    more.insert(place, given["v"])
    for name, expected in (("f", fewer), ("m", more), ("a", rows[place]), ("l", 2)):
        np.testing.assert_array_equal(run(graph, given)[name], expected)
    for output in ("f", "m", "a"):
        graph = import_onnx(made, bounds={"n": 3}, output_names=[output])
        for beyond in (5, -4):
            with pytest.raises((ShapeError, IndexError)):
                run(graph, {**{name: given[name] for name in graph.inputs}, "p": np.array(beyond)})


@pytest.mark.parametrize("keepdims", [0, 1])
def test_slices_of_an_open_axis(keepdims):
    made = model([node("SplitToSequence", "x", "s", axis=1, keepdims=keepdims), node("SequenceAt", "s p", "a"),
                  node("ConcatFromSequence", "s", "y", axis=1, new_axis=1 - keepdims)],
                 {"x": [3, "n"], "p": ("int64", [])}, ["a", "y"])
    for extent, place in ((4, 1), (3, -1), (1, 0)):
        results = run(import_onnx(made), {"x": X[:, :extent], "p": np.array(place)})
        np.testing.assert_array_equal(results["y"], X[:, :extent])
        column = X[:, :extent][:, place]
        np.testing.assert_array_equal(results["a"], column[:, None] if keepdims else column)


@pytest.mark.parametrize(("yes", "no", "behind", "expected"), [
    ([node("SequenceConstruct", "x z", "a")], [node("SequenceConstruct", "z x", "b")], node("SequenceAt", "s one", "y"),
     (-X, X)),
    ([node("SequenceConstruct", "x x", "a")], [node("SequenceConstruct", "x", "b")],
     node("ConcatFromSequence", "s", "y", axis=0), (np.concatenate([X, X]), X)),
    ([node("SequenceConstruct", "x x", "a")], [node("SequenceEmpty", "", "b")], node("SequenceLength", "s", "y"),
     (2, 0)),
], ids=["tensors", "lengths", "empty"])
def test_sequences_that_branches_give(yes, no, behind, expected):
    made = model([node("If", "c", "s", then_branch=graph_proto(yes, [], [sequence("a")], name="yes"),
                       else_branch=graph_proto(no, [], [sequence("b")], name="no")), behind],
                 {"c": ("bool", []), "x": [3, 4], "z": [3, 4]}, ["y"], {"one": np.array(1)})
    for condition, result in zip((True, False), expected, strict=True):
        found = run(import_onnx(made), {"c": np.array(condition), "x": X, "z": -X})["y"]
        np.testing.assert_array_equal(found, result)


@pytest.mark.parametrize("by_sequence", [True, False])
@pytest.mark.parametrize("offsets", [True, False])
def test_bags_of_rows(by_sequence, offsets):
    graph = import_onnx(embedding_bag(by_sequence, offsets))
    ids = np.array([3, 1, 1, 6, 0, 2])
    for borders in ((0, 2, 4), (0, 0, 5)) if offsets else ((0, 2, 4),):
        given = {"ids": ids} | ({"offsets": np.array(borders)} if offsets else {})
        np.testing.assert_allclose(run(graph, given)["y"], bags(ids, borders), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("inside", "behind", "why"), [
    ([*ROW, node("SequenceInsert", "s row", "t")], node("Identity", "r", "y"),
     "a sequence whose length is known only at run time; join"),
    ([*ROW, node("SequenceInsert", "s row", "t")], node("Relu", "r", "y"), "an operand is a sequence"),
    ([node("SequenceAt", "s zero", "e"), node("SequenceInsert", "s e", "t")], node("SequenceLength", "r", "y"),
     "empty at first, and an iteration does not tell its type"),
    ([node("Range", "zero i one", "e"), node("SequenceInsert", "s e zero", "t")], node("SequenceLength", "r", "y"),
     "which differ from iteration to iteration"),
])
def test_what_is_refused(inside, behind, why):
    made = looped(inside, [behind], {"x": [3, 4]}, ["y"])
    if behind.op_type == "Identity":
        made.graph.output[0].CopyFrom(sequence("y"))
    with pytest.raises(ModelError, match=why):
        import_onnx(made, bounds={"n": 3})
