# SPDX-License-Identifier: Apache-2.0
"""ONNX models with sequences whose length is only known at run time, and their results in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.onnx_models import Values, graph_proto, model, node, value


def sequence(name: str, shape=None) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, shape)))


def looped(inside: Sequence[onnx.NodeProto], behind: Sequence[onnx.NodeProto], inputs: Values, outputs: Values,
           constants=None, before: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
    """Returns a model with a Loop of n iterations that carries a sequence.

    inside: the nodes of the body, which compute the sequence `t` from the sequence `s` and the iteration number `i`.
    behind: nodes after the loop, which read its final sequence `r`. before: nodes that compute the initial sequence
    `s0`; it is empty by default.
    """
    start = before or [node("SequenceEmpty", "", "s0")]
    body = graph_proto([node("Identity", "c", "c2"), *inside],
                       [value("i", [], "int64"), value("c", [], "bool"), sequence("s")],
                       [value("c2", [], "bool"), sequence("t")], name="body")
    return model([*start, node("Loop", "n  s0", "r", body=body), *behind], {**inputs, "n": ("int64", [])}, outputs,
                 {"zero": np.array(0), "one": np.array(1), **(constants or {})})


def embedding_bag(by_sequence: bool, offsets: bool) -> onnx.ModelProto:
    """Returns torch.nn.EmbeddingBag as torch.onnx exports it: sums of the rows of `WEIGHTS` in each bag.

    by_sequence: whether the loop carries a sequence, with an If for empty bags; else it has a scan output. offsets:
    whether the offsets of the bags are an input; else bags have two rows.
    """
    inputs = {"ids": ("int64", [6]), **({"offsets": ("int64", [3])} if offsets else {})}
    constants = {"w": WEIGHTS, "one": np.array([1]), "two": np.array([2]), "axis": np.array([0]), "six": np.array([6]),
                 "three": np.array(3), "zero": np.array(0), "going": np.array(True), "step": np.array(1),
                 "none": np.zeros((1, 3), np.float32), "flat": np.array([-1])}
    if not offsets:
        constants["offsets"] = np.array([0, 2, 4])
    first = [node("Gather", "w ids", "rows"), node("Concat", "offsets six", "ends", axis=0)]
    if not by_sequence:
        body = graph_proto([
            node("Gather", "ends i", "a0"), node("Add", "i step", "j"), node("Gather", "ends j", "b0"),
            node("Unsqueeze", "a0 axis", "a"), node("Unsqueeze", "b0 axis", "b"), node("Slice", "rows a b axis", "bag"),
            node("ReduceSum", "bag axis", "sum", keepdims=0), node("Identity", "c", "c2")],
            [value("i", [], "int64"), value("c", [], "bool")], [value("c2", [], "bool"), value("sum", [3])])
        return model([*first, node("Loop", "three going", "y", body=body)], inputs, {"y": [3, 3]}, constants)
    empty = graph_proto([node("Identity", "none", "e")], [], [value("e", [1, 3])], name="empty")
    some = graph_proto([node("Slice", "rows a b", "bag"), node("ReduceSum", "bag axis", "sum")], [],
                       [value("sum")], name="some")
    body = graph_proto([
        node("Reshape", "at flat", "i1"), node("Add", "i1 one", "i2"), node("Slice", "ends i1 i2", "a"),
        node("Add", "i1 two", "i3"), node("Slice", "ends i2 i3", "b"), node("Equal", "a b", "same"),
        node("If", "same", "row", then_branch=empty, else_branch=some), node("SequenceInsert", "s row", "t"),
        node("Add", "at step", "next"), node("Less", "next three", "c2")],
        [value("i", [], "int64"), value("c", [], "bool"), value("at", [], "int64"), sequence("s")],
        [value("c2", [], "bool"), value("next", [], "int64"), sequence("t")], name="body")
    return model([*first, node("SequenceEmpty", "", "s0"), node("Loop", " going zero s0", "last r", body=body),
                  node("ConcatFromSequence", "r", "y", axis=0)], inputs, ["y"], constants)


WEIGHTS = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)


def bags(ids: np.ndarray, offsets: Sequence[int] = (0, 2, 4)) -> np.ndarray:
    """Returns the sums of the embeddings in each bag, float32 [bags, 3]. offsets: the first index of each bag."""
    borders = [*offsets, len(ids)]
    return np.stack([WEIGHTS[ids[first:last]].sum(0) for first, last in pairwise(borders)])
