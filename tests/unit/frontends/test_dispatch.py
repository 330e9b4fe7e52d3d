# SPDX-License-Identifier: Apache-2.0
"""Ranges of shapes: how they are written, cut into buckets, and refused."""

import numpy as np
import pytest

from tests.onnx_models import model, node
from tvm_megcc.dispatch import (
    buckets_of,
    log_dispatcher,
    parse_dispatch,
    parse_shape_sets,
    possibly_empty,
    uniform_dispatcher,
)
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.ir.shapes import EVERYTHING

IMAGE = {"data": ("batch", 3, None, None)}


def limits(buckets):
    return [bucket.limits for bucket in buckets]


def test_dispatchers():
    shapes = {"data": (None, 3, None)}
    assert log_dispatcher(2, 1, 9)(shapes) == {"data": {0: [(1, 2), (2, 4), (4, 8), (8, 9)],
                                                        2: [(1, 2), (2, 4), (4, 8), (8, 9)]}}
    assert uniform_dispatcher(64, 64, 200)(shapes)["data"][0] == [(64, 128), (128, 192), (192, 200)]
    nine = log_dispatcher(2)(shapes)["data"][0]
    assert len(nine) == 9 and nine[-1] == (256, None)
    assert uniform_dispatcher(10)(shapes)["data"][0][-1] == (81, None)


def test_text():
    assert parse_dispatch("data[0]=log(1,4);data[2, 3] = uniform(64,64,128)") == {
        "data": {0: [(1, 2), (2, 4), (4, 5)], 2: [(64, 128), (128, 129)], 3: [(64, 128), (128, 129)]}}
    assert parse_dispatch("x[1]=1,2..8,9..*") == {"x": {1: [(1, 2), (2, 9), (9, None)]}}
    assert parse_dispatch("a:0[0]=log(10,1,100)") == {"a:0": {0: [(1, 10), (10, 100), (100, 101)]}}
    assert parse_shape_sets("data=(1,3,224,224):data=(2,3,224,224)") == [{"data": (1, 3, 224, 224)},
                                                                        {"data": (2, 3, 224, 224)}]
    assert parse_shape_sets("a=(?,576)") == [{"a": (None, 576)}]
    assert parse_shape_sets("a:0=(1,2);b:[3]") == [{"a:0": (1, 2), "b": (3,)}]


@pytest.mark.parametrize("text", ["data=log(1,4)", "data[0]=lin(1,4)", "data[0]=log(1)", "data[0]=3..",
                                  "data[0]=log(4,1)", "data[0]=4..0", "data[0]=log(0,4)", "data[]=log(1,4)"])
def test_what_is_no_rule(text):
    with pytest.raises(MegccError, match=r"data|range|intervals"):
        buckets_of(IMAGE, [], parse_dispatch(text))


def test_ranges_that_begin_at_0():
    for text, lows in (("data[0]=0..4", [0]), ("data[0]=uniform(4,0,8)", [0, 4, 8]), ("data[0]=0..0,1..*", [0, 1])):
        _, buckets = buckets_of(IMAGE, [], parse_dispatch(text))
        assert [low for bucket in buckets for _, low, _ in bucket.bounds] == lows
        assert len(possibly_empty(buckets)) == 1
    assert not possibly_empty(buckets_of(IMAGE, [], parse_dispatch("data[0]=1..4"))[1])


def test_sets_of_shapes_become_buckets_of_one():
    shapes, buckets = buckets_of(IMAGE, [{"data": (1, 3, 8, 8)}, {"data": (2, 3, 8, 16)}])
    assert shapes == {"data": ("batch", 3, 8, "data_3")}
    assert limits(buckets) == [{"batch": (1, 1), "data_3": (8, 8)}, {"batch": (2, 2), "data_3": (16, 16)}]


def test_an_extent_that_stays_is_that_of_the_model():
    own, shapes = {"data": (5, "width")}, [{"data": (None, 8)}, {"data": (2, 8)}]
    assert limits(buckets_of(own, shapes)[1]) == [{"data_0": (5, 5)}, {"data_0": (2, 2)}]
    assert buckets_of({"data": (2, "width")}, shapes)[0] == {"data": (None, 8)}
    with pytest.raises(MegccError, match="axis 1 of input 'data' is open in one set"):
        buckets_of(own, [{"data": (5, None)}, {"data": (5, 8)}])


def test_one_set_fixes_shapes():
    shapes, buckets = buckets_of(IMAGE, [{"data": (1, 3, 8, 8)}])
    assert shapes == {"data": (1, 3, 8, 8)} and limits(buckets) == [{}]


def test_grid():
    shapes, buckets = buckets_of(IMAGE, [], parse_dispatch("data[0]=log(1,2);data[2]=4..5,6..*;data[3]=8"))
    assert shapes == {"data": ("batch", None, "data_2", 8)}
    assert limits(buckets) == [{"batch": (1, 1), "data_2": (4, 5)}, {"batch": (1, 1), "data_2": (6, None)},
                               {"batch": (2, 2), "data_2": (4, 5)}, {"batch": (2, 2), "data_2": (6, None)}]


def test_a_range_of_one_value_is_that_value():
    """Also where the same symbol stands in another input, and in what the model computes of it."""
    to = node("Concat", "rows tail", "to", axis=0)
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape one", "rows"), to, node("Add", "x z", "s"),
             node("Transpose", "s", "t", perm=[1, 0, 2]), node("Reshape", "t to", "y")]
    made = model(nodes, {"x": ["batch", "n", 12], "z": ["batch", 1, 1]}, ["y"],
                 {"one": np.array([1]), "tail": np.array([1, 3, 4])})
    graph, buckets = import_model(made, dispatch="x[0]=1;x[1]=2..8")
    assert [str(graph.types[name]) for name in (*graph.inputs, *graph.outputs)] == [
        "float32[1,n,12]", "float32[1,1,1]", "float32[n,1,3,4]"]
    assert limits(buckets) == [{"n": (2, 8)}]
    graph, buckets = import_model(made, dispatch={"x": {0: [(1, 2)], 1: [(5, 6)]}})
    assert graph.types["y"].shape == (5, 1, 3, 4) and buckets == (EVERYTHING,)


def test_a_symbol_is_one_axis_of_the_grid_wherever_it_stands():
    two = {"ids": ("batch", "length"), "mask": ("batch", "length")}
    _, buckets = buckets_of(two, [], log_dispatcher(2, 1, 5))
    assert len(buckets) == 9
    with pytest.raises(MegccError, match="'batch'"):
        buckets_of(two, [], {"ids": {0: [(1, 2)]}, "mask": {0: [(1, 3)]}})
    with pytest.raises(MegccError, match="gives as 1 and as 2"):
        buckets_of(two, [{"ids": (1, 4), "mask": (2, 4)}, {"ids": (3, 4), "mask": (3, 4)}])


@pytest.mark.parametrize(("sets", "dispatch", "message"), [
    ([], {"image": {0: [(1, 2)]}}, "names 'image', but the inputs are: data"),
    ([], {"data": {4: [(1, 2)]}}, "axis 4 of input 'data', which has 4 axes"),
    ([{"data": (1, 3, 8, 8)}], {"data": {0: [(1, 2)]}}, "fixed by input_shapes or dims"),
    ([{"data": (1, 3)}], {"data": {3: [(1, 2)]}}, "gives input 'data' 2 axes, and it has 4"),
    ([], {"data": {0: [(2, 2)]}}, "is no range of sizes"),
    ([], {"data": {axis: [(n, n + 1) for n in range(1, 30)] for axis in (0, 2, 3)}}, "24,389 buckets"),
    ([{"data": (1, 3, 8, 8)}, {"data": (2, 3, 8)}], None, "set 2"),
    ([{"data": (1, 3, 8, 8)}, {"data": (2, 3, 8, 8)}], {"data": {0: [(1, 2)]}}, "not both"),
])
def test_contradictions(sets, dispatch, message):
    with pytest.raises(MegccError, match=message):
        buckets_of(IMAGE, sets, dispatch)
