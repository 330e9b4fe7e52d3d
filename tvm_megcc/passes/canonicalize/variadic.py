# SPDX-License-Identifier: Apache-2.0
"""Splits variadic operators with more operands than a kernel supports into trees of operators."""

from __future__ import annotations

from itertools import count, pairwise

from ...context import Context
from ...ir.graph import Graph
from ...ops.base import operator
from ..edit import Editor


def make_trees(graph: Graph, context: Context) -> Graph:
    """Rewrites f(a, b, c, d) → f(f(a, b), f(c, d)), a balanced tree, for operators with a `fan_in`: the largest number
    of operands of their kernels."""
    edit = Editor(graph)
    for op in graph.ops:
        fan_in = operator(op.kind).fan_in
        numbers = count(1)
        while fan_in and len(op.inputs) > fan_in:
            partial_results = []
            for group in _groups(op.inputs, fan_in):
                partial_results.append(edit.result(f"{op.outputs[0]}:{next(numbers)}", op.kind, op.attrs, group))
                edit.add_before(op, op.with_(inputs=group, outputs=(partial_results[-1],)))
            op = op.with_(inputs=tuple(partial_results))
            edit.replace(op, op)
    return edit.finish()


def _groups(names: tuple[str, ...], fan_in: int) -> list[tuple[str, ...]]:
    """Splits names into as few groups of at most `fan_in` names as possible, of about equal length."""
    groups = -(-len(names) // fan_in)
    borders = [len(names) * index // groups for index in range(groups + 1)]
    return [names[first:last] for first, last in pairwise(borders)]
