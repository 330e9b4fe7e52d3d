# SPDX-License-Identifier: Apache-2.0
"""Layers by rows: the graph computes the same, and the plan keeps within the limit it was made for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.graphs import Builder, assert_golden
from tests.rows_graphs import GRAPHS, broadcast, columns, fed, separable, unsigned, wide_pads
from tvm_megcc.codegen import container
from tvm_megcc.codegen.memory.planner import plan_memory
from tvm_megcc.compiler import compile_graph, context_of, lower
from tvm_megcc.errors import MegccError
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.graph import Graph
from tvm_megcc.ir.shapes import Bucket
from tvm_megcc.ir.text import graph_text
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.layout.choose import Placed, choose_layouts
from tvm_megcc.passes.memory import strips
from tvm_megcc.passes.schedule import reorder
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

M4 = TARGETS["cortex-m4"]


def placed_of(graph: Graph) -> tuple[Placed, object]:
    context = context_of(graph, M4)
    placed = choose_layouts(before_layouts(graph, context), context)
    return replace(placed, graph=reorder(placed.graph)), context


def test_a_region_in_strips():
    placed, context = placed_of(separable())
    last = max(i for i, op in enumerate(placed.graph.ops) if op.kind == "conv2d_integer")
    first = next(i for i, op in enumerate(placed.graph.ops) if op.kind == "conv2d_integer")
    cut = strips.cut(placed, [strips.Region(first, last, 2)], context)
    assert cut is not None
    assert_golden("compute_by_rows", graph_text(placed.graph) + "\n" + graph_text(cut.graph))


def test_rows_are_kept():
    """Copied to a place of their own until the next strip begins: every row is computed once."""
    placed, context = placed_of(separable())
    last = max(i for i, op in enumerate(placed.graph.ops) if op.kind == "conv2d_integer")
    cut = strips.cut(placed, [strips.Region(last - 2, last, 3, reuses_rows=True)], context)
    assert cut is not None
    assert_golden("compute_by_rows_kept", graph_text(cut.graph))


@pytest.mark.parametrize("make", [*GRAPHS, wide_pads, columns, broadcast])
def test_every_region_computes_the_same(make):
    """In every number of strips; where a strip would have nothing to read it is refused."""
    graph = make()
    placed, context = placed_of(graph)
    feeds, readers, seen = fed(graph), placed.graph.consumers(), [0, 0]
    expected = run(graph, feeds)
    count = len(placed.graph.ops)
    for first in range(count):
        for last in range(first, count):
            if not strips.is_region(placed.graph, first, last, readers):
                continue
            for number, kept in product((2, 3, 5, 30), (False, True)):
                cut = strips.cut(placed, [strips.Region(first, last, number, kept)], context)
                if cut is None:
                    continue
                verify(cut.graph)
                for name, array in run(cut.graph, feeds).items():
                    np.testing.assert_array_equal(array, expected[name], err_msg=f"{first} to {last} in {number}")
                seen[kept] += 1
    assert min(seen) > 20, seen


@pytest.mark.parametrize("make", GRAPHS)
def test_limits_are_kept(make):
    """Down to the least that there is a plan for; what a session needs is what the container says."""
    graph = make()
    feeds = fed(graph)
    expected = run(graph, feeds)
    limit, found, keeps = 1 << 20, [], set()
    while True:
        try:
            artifact = compile_graph(graph, [M4], ram=limit)
        except MegccError as refused:
            assert "does not fit on cortex-m4" in str(refused)
            assert f"the limit is {limit:,}:" in str(refused)
            break
        (program,) = container.read(artifact.container).programs
        needed = container.program_bytes(program, 4)
        assert needed <= limit
        (facts,) = artifact.manifest["programs"]
        rows = facts.get("rows", ())
        found.append((needed, sum(row["macs"] for row in rows), sum(call["macs"] for call in facts["calls"])))
        keeps.update(row["kept"] > 0 for row in rows)
        lowered = lower(graph, context_of(graph, M4, ram=limit))
        assert plan_memory(lowered.plan).plan.arena_bytes == facts["arena_bytes"]
        for name, array in run(lowered.plan.graph, feeds).items():
            np.testing.assert_array_equal(array, expected[name])
        limit = needed - 1
    whole = found[0][2]
    assert len(found) > 1, "nothing was computed by rows"
    assert all(macs == whole + more for _, more, macs in found)
    wanted = {False} if make in (separable, unsigned) else {False, True}
    assert keeps == wanted, "rows are kept where there is room for them"


def test_rounding_by_place_is_left_whole():
    """Winograd's tiles round a place by where it lies in its tile: parts of it would have other bits."""
    b = Builder()
    graph = b.graph(b.conv(b.conv(b.input("x", 1, 16, 40, 40), 16), 16, stride=2))
    context = context_of(graph, TARGETS["x86-64-v3"])
    placed = choose_layouts(before_layouts(graph, context), context)
    at = {placed.choices[op.outputs[0]].kernel.name: i for i, op in enumerate(placed.graph.ops)}
    assert strips.cut(placed, [strips.Region(at["winograd"], at["winograd"], 2)], context) is None


@pytest.mark.parametrize("limit", [1, 200])
def test_a_limit_for_a_graph_whose_values_have_no_bound(limit: int):
    """None of them lies in the arena, so the last instructions find nothing alive there."""
    b = Builder()
    n = Symbol("n")
    y = b.op("softmax", b.op("tanh", b.input("x", n, 8)), axis=-1)
    graph = b.graph(b.op("matmul", y, b.const("w", 8, 8), trans_a=0, trans_b=0))
    buckets = (Bucket((("n", 1, 4),)), Bucket((("n", 5, None),)))
    with pytest.raises(MegccError, match="does not fit on arm64"):
        compile_graph(graph, [TARGETS["arm64"]], ram=limit, buckets=buckets)
