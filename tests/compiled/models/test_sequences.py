# SPDX-License-Identifier: Apache-2.0
"""Sequences whose length is known only at run time, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import graph_proto, model, node
from tests.sequence_models import bags, embedding_bag, looped, sequence
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference

pytestmark = pytest.mark.slow

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("target", ["native", "c"])
def test_bags_of_rows(tmp_path, target):
    ids = np.array([3, 1, 1, 6, 0, 2])
    for by_sequence in (True, False):
        artifact = tvm_megcc.compile(embedding_bag(by_sequence, offsets=True), target, name="bags")
        with tvm_megcc.load(artifact.save(tmp_path / str(by_sequence))) as session:
            for borders in ((0, 2, 4), (0, 0, 5)):
                found = session.run({"ids": ids, "offsets": np.array(borders)})["y"]
                np.testing.assert_allclose(found, bags(ids, borders), rtol=1e-5, atol=1e-6)


def read_and_changed():
    """A loop that puts rows in front of others, by how many there are; a branch that gives one more, or none."""
    inside = [node("Gather", "x i", "row"), node("SequenceLength", "s", "l"), node("Cast", "l", "lf", to=1),
              node("Add", "row lf", "more"), node("SequenceInsert", "s more zero", "t")]
    yes = graph_proto([node("SequenceErase", "r p", "a")], [], [sequence("a")], name="yes")
    no = graph_proto([node("SequenceInsert", "r v p", "b")], [], [sequence("b")], name="no")
    return looped(inside, [node("If", "c", "chosen", then_branch=yes, else_branch=no),
                           node("ConcatFromSequence", "chosen", "y", axis=0, new_axis=1),
                           node("SequenceLength", "chosen", "l")],
                  {"x": [3, 4], "p": ("int64", []), "v": [4], "c": ("bool", [])}, ["y", "l"])


@pytest.mark.parametrize("target", ["native", "c"])
def test_sequences_that_turns_read_and_change(tmp_path, target):
    source, bounds = read_and_changed(), {"n": 3}
    graph = import_onnx(source, bounds=bounds)
    artifact = tvm_megcc.compile(source, target, bounds=bounds, name="read")
    with tvm_megcc.load(artifact.save(tmp_path / "read")) as session:
        for turns, place in ((3, 1), (1, 0), (2, -1)):
            for condition in (True, False):
                given = {"x": X, "n": np.array(turns), "p": np.array(place), "v": -X[0], "c": np.array(condition)}
                expected = reference.run(graph, given)
                for name, value in session.run(given).items():
                    np.testing.assert_array_equal(value, expected[name])
        with pytest.raises(tvm_megcc.MegccError):
            session.run({**given, "p": np.array(7)})


@pytest.mark.parametrize("target", ["native", "c"])
def test_slices_of_an_axis_that_changes(tmp_path, target):
    source = model([node("SplitToSequence", "x", "s", axis=1, keepdims=0), node("SequenceAt", "s p", "y")],
                   {"x": [3, "n"], "p": ("int64", [])}, ["y"])
    artifact = tvm_megcc.compile(source, target, dims={"n": "1..4"}, name="slices")
    with tvm_megcc.load(artifact.save(tmp_path / "slices")) as session:
        for extent, place in ((4, 1), (1, 0), (3, -1)):
            x = np.ascontiguousarray(X[:, :extent])
            np.testing.assert_array_equal(session.run({"x": x, "p": np.array(place)})["y"], x[:, place])
