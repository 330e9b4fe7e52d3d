# SPDX-License-Identifier: Apache-2.0
"""States that grow by Concat: what becomes of the graph, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests import decoders
from tests.onnx_models import model, node
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.graph import CacheInput, Graph
from tvm_megcc.passes.canonicalize.check import checked
from tvm_megcc.passes.streaming.states import expanded
from tvm_megcc.target import TARGETS

STATES = {"present": "past"}


def imported(proto, states=None, rooms=None, **options) -> Graph:
    graph, buckets = import_model(proto, states=states or STATES, bounds={"length": 9} if rooms is None else rooms,
                                  **options)
    return checked(graph, buckets, states or STATES)


def growing(*nodes, present=("past", "x"), results=("present",), inputs=None):
    made = [node("Concat", " ".join(present), "present", axis=1), *nodes]
    return model(made, {"past": [2, "length", 3], "x": [2, 2, 3], **(inputs or {})}, results,
                 {"axes": np.array([1])}, opset=18)


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def test_a_state_that_grows():
    """Room for 9 rows, a count of them, and the first ones of the room for what reads the output."""
    graph = imported(growing(node("ReduceSum", "present axes", "y"), results=("present", "y")))
    assert [str(graph.types[name]) for name in graph.inputs] == ["float32[2,9,3]", "float32[2,2,3]", "int64[1]"]
    assert graph.states == (("length.next", "length"), ("present", "past")) and graph.cache_capacities == {"length": 9}
    assert kinds(graph) == ["extent", "dims", "append", "slice", "reduce_sum"]
    assert graph.ops[0].attrs.bound == 7 and graph.ops[1].attrs.extents == (Symbol("length") + 2,)
    assert any(str(c.lhs) == "length + 2" and c.rhs == 9 for c in graph.conditions)


def test_what_reads_the_past_too():
    graph = imported(growing(node("ReduceSum", "past axes", "y"), results=("present", "y")))
    rows = next(op for op in graph.ops if op.kind == "slice" and op.inputs == ("past",))
    assert rows.attrs.ends == (Symbol("length"),) and graph.types["past.rows"].shape == (2, Symbol("length"), 3)


def test_inputs_that_grow_with_it():
    """Of the name that the extent has, or another one that has to be the sum of both."""
    for total in ("total", "length + 2"):
        graph = imported(growing(node("Add", "present mask", "y"), results=("present", "y"),
                                 inputs={"mask": [2, total, 3]}))
        assert graph.types["mask"].shape == (2, 9, 3) and graph.cache_inputs == {"mask": CacheInput(1, "length", 2)}


def test_names_that_are_taken():
    graph = imported(growing(node("Identity", "x", "length"), results=("present", "length")))
    assert graph.cache_capacities == {"length'": 9} and graph.states[0] == ("length'.next", "length'")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_attention_reads_the_room(name):
    """No copy of the first rows, nor of heads that are repeated."""
    proto = getattr(decoders, name)(layers=1)
    states = {"present.*": "past_key_values.*"}
    graph = imported(proto, states, {"past_sequence_length": 32}, input_shapes={"input_ids": (1, 1)})
    graph = lower(graph, Context(TARGETS["x86-64-v3"])).plan.graph
    (attention,) = (op for op in graph.ops if op.kind == "attention")
    assert attention.inputs[1:3] == ("present.0.key", "present.0.value")
    assert attention.attrs.seen == Symbol("past_sequence_length") + 1
    assert attention.attrs.shared == (2 if name == "llama" else 1)
    assert not any(set(op.inputs) & {"present.0.key", "present.0.value"} for op in graph.ops if op.kind == "slice")


REFUSED = {
    "is computed": (growing(node("Neg", "x", "y"), present=("y", "past")), "not Concat('past', new) along axis 1"),
    "has three operands": (growing(present=("past", "x", "x")), "not Concat"),
    "grows in an extent of its own": (growing(present=("past", "past")), "grows by length, and not by"),
    "has other open extents": (model([node("Concat", "past x", "present", axis=1)], {
        "past": ["batch", "length", 3], "x": ["batch", 2, 3]}, ["present"]), "its other extents are not known"),
    "grows in two ways": (model([node("Concat", "past x", "present", axis=0),
                                 node("Concat", "keys k", "more", axis=0)], {
        "past": ["length"], "x": [1], "keys": ["length"], "k": [2]}, ["present", "more"]), "and by 2 elsewhere"),
    "is as long in another input": (growing(node("ReduceSum", "other axes", "y"), results=("present", "y"), inputs={
        "other": [1, "length", 1]}), "only one axis may grow with length, by 2"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    proto, said = REFUSED[what]
    states = {**STATES, **({"more": "keys"} if "two ways" in what else {})}
    with pytest.raises(ModelError) as error:
        imported(proto, states)
    assert said in str(error.value)


def test_without_room():
    with pytest.raises(ModelError, match='give the capacity with bounds="length=1024"'):
        imported(growing(), rooms={})
    with pytest.raises(MegccError, match="bound of 'other'"):
        imported(growing(), rooms={"length": 9, "other": 3})


def test_a_wrong_input_is_said_before_its_bound():
    """Not that the extent is no row of a state."""
    for states in ({"present": "pst"}, {"pres*": "pst*"}):
        with pytest.raises(MegccError, match=r"the model has no input 'pst.*; its inputs are past, x"):
            imported(growing(), states)


def test_forms_of_names():
    inputs = ["past.0.k", "past.10.v", "past.", "x"]
    assert expanded({"present.*": "past.*"}, inputs) == {"present.0.k": "past.0.k", "present.10.v": "past.10.v",
                                                         "present.": "past."}
    assert expanded({"a*": "y*"}, inputs) == {"a*": "y*"}
    assert expanded({"y": "x"}, inputs) == {"y": "x"}
    assert expanded({"*.new": "*.0.k"}, inputs) == {"past.new": "past.0.k"}
