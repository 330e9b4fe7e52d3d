# SPDX-License-Identifier: Apache-2.0
"""Every pass over random graphs of every operator, with extents that are known and with open ones (drawn_graphs.py)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.drawn_graphs import KINDS, drawn_network, graph_of
from tests.graphs import Builder
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.ir.dims import Symbol, substitute
from tvm_megcc.ir.graph import Graph
from tvm_megcc.ir.narrow import carrier
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import PIPELINE, before_layouts
from tvm_megcc.passes.canonicalize import transposes
from tvm_megcc.passes.edit import Editor
from tvm_megcc.passes.match import is_const, is_op, wildcard
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXTS = {"x86-64-v3": {}, "arm64-v82": {"half": True}, "cortex-m4": {"optimize": "size"}, "c": {}}


def passed(graph: Graph, context: Context) -> None:
    before_layouts(graph, context, lambda name, after: verify(after))


def pass_all(first: int, count: int, opened: bool, name: str) -> None:
    """All networks at once; one by one where a pass fails, to show the first that it fails for."""
    context = Context(TARGETS[name], **CONTEXTS[name])
    networks = [drawn_network(f"n{seed}_", seed, opened) for seed in range(first, first + count)]
    try:
        passed(graph_of(networks), context)
    except Exception:
        for network in networks:
            graph = graph_of([network])
            try:
                passed(graph, context)
            except Exception as error:
                raise AssertionError(f"{name}, opened={opened}:\n{graph_text(graph)}") from error
        raise


@pytest.mark.parametrize("opened", [False, True])
def test_every_pass_takes_every_graph(opened: bool):
    pass_all(0, 20, opened, "x86-64-v3")


@pytest.mark.slow
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("name", CONTEXTS)
def test_every_pass_takes_many_graphs(name: str, opened: bool):
    pass_all(1000, 200, opened, name)


@pytest.mark.slow
def test_draws_have_every_operator():
    drawn = {op.kind for seed in range(1000, 1200) for opened in (False, True)
             for op in drawn_network(f"n{seed}_", seed, opened).ops}
    assert len(drawn) > 0.8 * len(KINDS), sorted(set(KINDS) - drawn)


def differs(expected: np.ndarray, found: np.ndarray) -> bool:
    if expected.shape != found.shape:
        return True
    expected, found = expected.astype(np.float64), found.astype(np.float64)
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
    # A quantised number may be the next one; what is computed of it may differ as much.
    return not np.allclose(found, expected, rtol=1e-3, atol=max(1.0, 2e-3 * largest), equal_nan=True)


def computes_the_same(first: int, count: int, opened: bool) -> int:
    """The number of networks that every pass left as they are in what they compute."""
    same = 0
    for seed in range(first, first + count):
        network = drawn_network(f"n{seed}_", seed, opened)
        graph, generator = graph_of([network]), np.random.default_rng(seed)
        extents = {dim.name: dim.likely for dim in network.symbols.values() if isinstance(dim, Symbol)}
        shapes = {name: [substitute(dim, extents) for dim in graph.types[name].shape] for name in graph.inputs}
        inputs = {name: (generator.integers(0, 2, shape) if graph.types[name].dtype[0] in "iub"
                         else generator.standard_normal(shape)).astype(np.dtype(graph.types[name].dtype))
                  for name, shape in shapes.items()}
        if any(carrier(type_.dtype) != type_.dtype for type_ in graph.types.values()):
            continue  # 16 bits are rounded where chains end
        with np.errstate(all="ignore"):
            try:
                expected = run(graph, inputs, keep=[name for op in graph.ops for name in op.outputs])
            except (MegccError, ValueError, IndexError):
                continue  # drawn indices are off their axis, extents are not what a condition wants
            if any(np.isnan(value).any() for value in expected.values() if value.dtype.kind == "f"):
                continue  # what is quantised of these is not specified
            for name, transform, _ in PIPELINE:
                graph = transform(graph, Context(TARGETS["x86-64-v3"]))
                for output, found in run(graph, inputs).items():
                    assert not differs(expected[output], found), f"{seed}, {name}: {output}\n{graph_text(graph)}"
        same += 1
    return same


def test_passes_do_not_change_what_is_computed():
    assert computes_the_same(0, 20, False) > 12


@pytest.mark.slow
@pytest.mark.parametrize("opened", [False, True])
def test_passes_do_not_change_what_many_graphs_compute(opened: bool):
    assert computes_the_same(1000, 200, opened) > 100


@pytest.mark.parametrize("kind", ["scatter_nd", "transpose", "add"])
def test_rows_that_are_written_behind_an_operator_of_any_arity(kind: str):
    """transpose(scatter_nd(f(…))): f may have one operand or three, and be a transpose or none."""
    b = Builder()
    x, at, updates = b.input("x", 4, 6), b.input("at", 2, 1, dtype="int64"), b.input("u", 2, 6)
    if kind == "scatter_nd":
        x = b.op(kind, x, at, updates, reduction="add")
    elif kind == "transpose":
        x = b.op(kind, b.op("reshape", x, shape=(6, 4)), perm=(1, 0))
    else:
        x = b.op(kind, x, x)
    written = b.op("scatter_nd", x, at, updates, reduction="add")
    graph = b.graph(b.op("reshape", written, shape=(2, 2, 6)), b.op("transpose", b.op(
        "scatter_nd", x, at, updates, reduction="add"), perm=(1, 0)))
    after = transposes.absorb_transposes(graph, Context(TARGETS["arm64"]))
    verify(after)
    generator = np.random.default_rng(1)
    inputs = {"x": generator.standard_normal((4, 6)).astype(np.float32), "at": np.array([[3], [1]]),
              "u": generator.standard_normal((2, 6)).astype(np.float32)}
    for name, expected in run(graph, inputs).items():
        np.testing.assert_allclose(run(after, inputs)[name], expected, rtol=1e-6)


def test_patterns():
    b = Builder()
    x, y, one = b.input("x", 2, 3), b.input("y", 2, 3), b.const("one", value=np.float32(1))
    total, square, pair = b.op("add", one, x), b.op("mul", y, y), b.op("mul", x, y)
    last = b.op("sub", total, square)
    edit = Editor(b.graph(last, pair, b.op("relu", square)))
    a, c = wildcard(), is_const(1)
    added, squared = is_op("add", a, c), is_op(("mul", "div"), a, a)
    # Operands of a commutative operator are tried in both orders; of others they are not.
    found = added.match(edit, total)
    assert found is not None and (found[a], found[c], found.op(added).kind) == (x, one, "add")
    assert is_op("sub", wildcard(), is_op("add", wildcard(), wildcard())).match(edit, last) is None
    # A pattern in two places is one value, also across branches.
    assert squared.match(edit, square) is not None and squared.match(edit, pair) is None
    assert is_op("sub", added, squared).match(edit, last) is None
    assert is_op("sub", added, is_op("mul", y_ := wildcard(), y_)).match(edit, last)[y_] == y
    # The number of operands and of readers is part of it, and inputs have no operator.
    assert is_op("add", wildcard()).match(edit, total) is None and is_op("add", a, c, c).match(edit, total) is None
    assert is_op("mul", a, a, once=True).match(edit, square) is None
    assert is_op("add", a, c, once=True).match(edit, total) is not None
    assert added.match(edit, x) is None and wildcard().match(edit, "") is None and is_const(2).match(edit, one) is None
