# SPDX-License-Identifier: Apache-2.0
"""Dimensions by the names that a model has for them, and those that are sums of others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MegccError, ModelError, ShapeError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.onnx import input_dims
from tvm_megcc.ir.dim_text import parse_dim
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.named_dims import parse_dims
from tvm_megcc.option_values import parse_shapes
from tvm_megcc.passes.canonicalize.check import checked
from tvm_megcc.runtime.session import Port
from tvm_megcc.tools.run import shapes_of

A, B = Symbol("a"), Symbol("b")


def network() -> onnx.ModelProto:
    """New rows behind those of the past, in a mask that nothing but its name says the length of."""
    nodes = [node("Concat", "past new", "present", axis=1), node("Relu", "present", "y"), node("Neg", "mask", "m")]
    return model(nodes, {"past": ["batch", "old", 3], "new": ["batch", "count", 3], "mask": ["batch", "old + count"],
                         "free": [None, 2]}, ["present", "y", "m"])


@pytest.mark.parametrize("text, wanted", [
    ("a + b", A + B), ("a+1", A + 1), ("2*a - b", 2 * A - B), ("(a + b) // 2", (A + B) // 2), ("8*(a)", 8 * A),
    ("a", A), ("7", 7), ("a + c", None), ("a b", None), ("a +", None), ("(a", None), ("", None), ("a // 0", None),
    ("a // b", None), ("batch-size", None), ("?", None), ("a/2", None), ("+".join("a" * 300), None), ("(" * 99, None)])
def test_strings(text, wanted):
    assert parse_dim(text, {"a", "b"}) == wanted


@pytest.mark.parametrize("given, wanted", [
    (["n=1", "m=1..128"], {"n": 1, "m": [(1, 129)]}), ("n=1;m=1,2..8,9..*", {"n": 1, "m": [(1, 2), (2, 9), (9, None)]}),
    (["a = b=log(1,4)"], {"a = b": [(1, 2), (2, 4), (4, 5)]}), ({"n": 3, "m": range(1, 9)}, {"n": 3, "m": [(1, 9)]}),
    ({"n": (1, 9), "m": [(1, 2), (2, None)]}, {"n": [(1, 9)], "m": [(1, 2), (2, None)]}), ({"n": "4"}, {"n": 4})])
def test_what_is_given(given, wanted):
    assert parse_dims(given) == wanted


@pytest.mark.parametrize("given", [["n"], ["n="], ["=1"], ["n=a"], ["n=-1"], ["n=1", "n=2"], {"n": 1.5}, {"n": True},
                                   {"n": range(1, 9, 2)}, {"n": [(1, 2, 3)]}, {"n": ["1"]}, {"n": -1}])
def test_what_is_no_size(given):
    with pytest.raises(MegccError, match="dimension '"):
        parse_dims(given)


def test_sizes_of_numpy():
    three = np.int64(3)
    assert parse_dims({"n": three, "m": (np.int32(1), three)}) == {"n": 3, "m": [(1, 3)]}
    assert parse_shapes({"n": three, "x": (three, 1)}) == {"n": 3, "x": (3, 1)}
    net = model([node("Add", "x y", "z")], {"x": ["n", 2], "y": ["n", 2]}, ["z"])
    for shape in ((three, 2), np.array([3, 2])):      # the other input has the same n
        graph, _ = import_model(net, input_shapes={"x": shape})
        assert checked(graph).types["y"].shape == (3, 2)


def test_a_sum_follows_from_its_parts():
    dims = input_dims(network())
    assert dims["past"] == ("batch", "old", 3) and dims["mask"] == ("batch", Symbol("old") + Symbol("count"))
    graph, buckets = import_model(network(), dims={"batch": 1, "count": "1..4", "old": (1, 17), "free_0": 2})
    assert graph.types["mask"].shape == (1, Symbol("old") + Symbol("count"))
    assert {name: limit for bucket in buckets for name, limit in bucket.limits.items()} == {
        "count": (1, 4), "old": (1, 16)}
    checked(graph, buckets)
    graph, _ = import_model(network(), dims="batch=1;count=2;old=5;free_0=1")
    assert graph.types["mask"].shape == (1, 7)
    graph, _ = import_model(network(), input_shapes={"past": (1, 5, 3), "new": (None, 2, 3)}, dims={"free_0": 1})
    assert graph.types["mask"].shape == (1, 7)


def test_a_state_grows_beside_an_input_of_the_sum():
    """As optimum 2 exports decoders: nothing else says how long the mask is."""
    states = {"present": "past"}
    graph, buckets = import_model(network(), states=states, bounds={"old": 16}, output_names=["present", "y", "m"],
                                  dims={"batch": 1, "count": "1..4", "free_0": 1})
    graph = checked(graph, buckets, states)
    assert graph.types["mask"].shape == (1, 16) and "mask" in graph.cache_inputs and graph.cache_capacities


def test_with_other_ways_to_say_it():
    both = import_model(network(), input_shapes={"past": (2, None, 3)}, dispatch={"new": {1: [(1, 5)]}},
                        dims={"old": "1..8", "free_0": 1})
    assert both[1][0].limits == {"old": (1, 8), "count": (1, 4)} and both[0].types["new"].shape[0] == 2
    with pytest.raises(MegccError, match="axis 0 of input 'past' is 'batch', which is given as 1 and as 2"):
        import_model(network(), input_shapes={"past": (2, None, 3)}, dims={"batch": 1})
    with pytest.raises(MegccError, match="leave out the dimensions"):
        import_model(network(), input_shapes=[{"past": (1, 1, 3)}, {"past": (2, 1, 3)}], dims={"batch": 1})


def test_messages_name_dimensions():
    with pytest.raises(MegccError, match="no dimension 'btach'; there are batch, old, count, free_0"):
        import_model(network(), dims={"btach": 1})
    with pytest.raises(MegccError, match=r"no dimension 'batch=1,old'; .*; several sizes are separated by ';'"):
        import_model(network(), dims="batch=1,old=2")
    with pytest.raises(ShapeError) as found:
        tvm_megcc.compile(network(), "c", dims={"batch": 1, "count": "1..4"})
    said = str(found.value)
    assert "the dimensions old, free_0 are not known" in said
    assert 'dims="old=SIZE;free_0=SIZE"' in said and 'dims="old=1..64;free_0=1..64"' in said, said
    assert "batch" not in said.split("Give the size")[1] and "count=" not in said, "those are known"
    with pytest.raises(ModelError, match="give the capacity with bounds=\"old=1024\""):
        tvm_megcc.compile(network(), "c", dims={"batch": 1, "count": 1, "free_0": 1}, states={"present": "past"})
    with pytest.raises(ShapeError, match=r"there are: none; .* may grow along: batch, count, old"):
        tvm_megcc.compile(network(), "c", bounds={"wrong": 3}, states={"present": "past"})
    with pytest.raises(ShapeError, match=r"is a dimension of inputs, which has a size or a range: dims=.old=1..3"):
        tvm_megcc.compile(network(), "c", bounds={"old": 3})


def test_advice_knows_what_was_given():
    """Of a model that cannot have every shape."""
    proto = model([node("Reshape", "x shape", "y")], {"x": ["batch", "n", 3]}, {"y": [4, 6]},
                  {"shape": np.array([4, 6])})
    for dims, advice in (
            ({}, 'say which it has: dims="batch=1;n=SIZE"'), ({"batch": 1}, 'say which it has: dims="n=SIZE"'),
            ({"batch": 1, "n": "1..9"}, 'for one size, dims="n=SIZE", or for several, with input_shapes')):
        with pytest.raises(ModelError) as found:
            tvm_megcc.compile(proto, "c", dims=dims)
        assert advice in str(found.value), str(found.value)
    tvm_megcc.compile(proto, "c", dims={"batch": 1, "n": 8})


def test_shapes_of_a_run():
    ports = [Port("ids", "int64", (1, "n")), Port("past", "float32", (1, "old", 3)),
             Port("mask", "int64", (1, "old + n"))]
    assert shapes_of(ports, {"n": 4, "old": 2}) == [(1, 4), (1, 2, 3), (1, 6)]
    assert shapes_of(ports, {"ids": (1, 4), "past": (1, 2, 3)}) == [(1, 4), (1, 2, 3), (1, 6)]
    assert shapes_of(ports, {"n": 4, "past": (1, 2, 3), "mask": (1, 9)})[2] == (1, 9)
    with pytest.raises(ShapeError, match=r'--shape "n=1;old=1"|shapes="n=1;old=1"'):
        shapes_of(ports, {})
    with pytest.raises(ShapeError, match=r"given for 'x'; the inputs are .* dimensions n, old"):
        shapes_of(ports, {"x": 4})


@pytest.mark.parametrize("past, count", [(1, 1), (7, 4)])
def test_a_run_at_both_ends(past, count):
    session = tvm_megcc.load(_compiled())
    generator = np.random.default_rng(0)
    feeds = {"past": generator.standard_normal((1, past, 3)), "new": generator.standard_normal((1, count, 3)),
             "mask": generator.standard_normal((1, past + count)), "free": np.zeros((1, 2))}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    found = session.run(feeds)
    assert np.array_equal(found["present"], np.concatenate([feeds["past"], feeds["new"]], 1))
    assert np.array_equal(found["m"], -feeds["mask"])
    with pytest.raises(ShapeError):
        session.run({**feeds, "mask": np.zeros((1, past + count + 1), np.float32)})


def _compiled():
    return tvm_megcc.compile(network(), "c", dims={"batch": 1, "count": "1..4", "old": range(1, 8), "free_0": 1})
