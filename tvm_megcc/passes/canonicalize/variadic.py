# SPDX-License-Identifier: Apache-2.0
"""Splits variadic operators with more operands than a kernel supports into trees of operators."""

from __future__ import annotations

from itertools import count, pairwise

from ...context import Context
from ...ir.graph import Graph
from ...ops.base import operator
from ..edit import Editor


def make_trees(graph: Graph, context: Context) -> Graph:
    """f(a, b, c, d) → f(f(a, b), f(c, d)), a balanced tree, for operators with a `fan_in`."""
    edit = Editor(graph)
    for op in graph.ops:
        most = operator(op.kind).fan_in
        numbers = count(1)
        while most and len(op.inputs) > most:
            joints = []
            for part in _parts(op.inputs, most):
                joints.append(edit.result(f"{op.outputs[0]}:{next(numbers)}", op.kind, op.attrs, part))
                edit.add_before(op, op.with_(inputs=part, outputs=(joints[-1],)))
            op = op.with_(inputs=tuple(joints))
            edit.replace(op, op)
    return edit.finish()


def _parts(names: tuple[str, ...], most: int) -> list[tuple[str, ...]]:
    """Splits names into as few groups of at most `most` as possible, of about equal length."""
    runs = -(-len(names) // most)
    borders = [len(names) * index // runs for index in range(runs + 1)]
    return [names[first:last] for first, last in pairwise(borders)]
