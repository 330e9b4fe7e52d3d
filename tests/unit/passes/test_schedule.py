# SPDX-License-Identifier: Apache-2.0
"""The order of execution against every possible order, on small graphs."""

import time
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_megcc.ir.graph import Attrs, Graph, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.passes import schedule


def graph_of(edges: list[tuple[tuple[str, ...], str, int]], outputs: tuple[str, ...]) -> Graph:
    """A graph from (inputs, output, floats in the output) per operator; the input `x` has one float."""
    types = {"x": TensorType("float32", (1,))} | {out: TensorType("float32", (size,)) for _, out, size in edges}
    ops = tuple(Op("opaque", Attrs(), inputs, (out,)) for inputs, out, _ in edges)
    return Graph("g", ("x",), outputs, ops, types, {})


@st.composite
def graphs(draw):
    values, edges = ["x"], []
    for i in range(draw(st.integers(1, 6))):
        inputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
        edges.append((tuple(inputs), f"v{i}", draw(st.integers(1, 50))))
        values.append(f"v{i}")
    return graph_of(edges, tuple(draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2, unique=True))))


def peaks_of_all_orders(graph: Graph) -> list[int]:
    peaks = []
    for order in permutations(graph.ops):
        known = set(graph.inputs)
        if all(known.issuperset(op.inputs) and not known.update(op.outputs) for op in order):
            peaks.append(schedule.peak_bytes(graph.with_(ops=order)))
    return peaks


@given(graphs())
@settings(deadline=None, max_examples=100)
def test_best_of_all_orders(graph):
    ordered = schedule.reorder(graph)
    assert sorted(map(id, ordered.ops)) == sorted(map(id, graph.ops))
    assert schedule.peak_bytes(ordered) == min(peaks_of_all_orders(graph))
    assert schedule.reorder(ordered) is ordered


def test_branches_run_one_after_the_other():
    """Two branches that blow up and shrink again, interleaved in the model: their peaks must not meet."""
    graph = graph_of([(("x",), "a1", 100), (("x",), "b1", 100), (("a1",), "a2", 1), (("b1",), "b2", 1),
                      (("a2", "b2"), "y", 1)], ("y",))
    assert schedule.peak_bytes(graph) == 4 * 201
    ordered = schedule.reorder(graph)
    assert schedule.peak_bytes(ordered) == 4 * 102
    assert [op.outputs[0] for op in ordered.ops] == ["a1", "a2", "b1", "b2", "y"]


def test_outputs_of_the_caller_take_no_memory():
    """Two results of one value: each part becomes an output before the next part is computed."""
    graph = graph_of([(("x",), "a", 20), (("a",), "p", 10), (("a",), "q", 10), (("p",), "y", 10), (("q",), "z", 10)],
                     ("y", "z"))
    ordered = schedule.reorder(graph.with_(caller_outputs=frozenset(("y", "z"))))
    assert schedule.peak_bytes(ordered) == 4 * 30
    assert schedule.peak_bytes(schedule.reorder(graph)) == 4 * 40


def test_a_chain_stays_as_it_is():
    graph = graph_of([(("x",), "a", 3), (("a",), "b", 5), (("b",), "c", 1)], ("c",))
    assert schedule.reorder(graph) is graph


@pytest.mark.slow
def test_wide_graphs_end_in_time():
    edges = []
    for branch in range(30):
        edges += [(("x",), f"a{branch}", 100 + branch), ((f"a{branch}",), f"b{branch}", 7 + branch % 3)]
    edges.append((tuple(f"b{branch}" for branch in range(30)), "y", 1))
    graph = graph_of(edges, ("y",))
    begin = time.process_time()
    ordered = schedule.reorder(graph)
    assert time.process_time() - begin < 15
    assert schedule.peak_bytes(ordered) <= schedule.peak_bytes(graph)
