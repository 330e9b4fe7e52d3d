# SPDX-License-Identifier: Apache-2.0
"""Operators with more operands than a kernel can have become trees of themselves."""

from __future__ import annotations

from itertools import count, pairwise

from ..context import Context
from ..ir.graph import Graph, Op
from ..ir.types import TensorType
from ..ops.base import operator


def make_trees(graph: Graph, context: Context) -> Graph:
    """f(a, b, c, d) → f(f(a, b), f(c, d)), as balanced as it goes, where an operator says that it may (`fan_in`)."""
    types, ops = dict(graph.types), []
    for op in graph.ops:
        most = operator(op.kind).fan_in
        while most and len(op.inputs) > most:
            joints = [_joint(op, part, types) for part in _parts(op.inputs, most)]
            ops += joints
            op = op.with_(inputs=tuple(joint.outputs[0] for joint in joints))
        ops.append(op)
    return graph.with_(ops=tuple(ops), types=types)


def _parts(names: tuple[str, ...], most: int) -> list[tuple[str, ...]]:
    """The names in as few runs of at most `most` as there can be, of about one length."""
    runs = -(-len(names) // most)
    borders = [len(names) * index // runs for index in range(runs + 1)]
    return [names[first:last] for first, last in pairwise(borders)]


def _joint(op: Op, names: tuple[str, ...], types: dict[str, TensorType]) -> Op:
    """The operator on some of its operands."""
    result = next(name for number in count(1) if (name := f"{op.outputs[0]}:{number}") not in types)
    (types[result],) = operator(op.kind).infer(op.attrs, *(types[name] for name in names))
    return op.with_(inputs=names, outputs=(result,))
