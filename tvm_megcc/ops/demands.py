# SPDX-License-Identifier: Apache-2.0
"""Conditions that the operators of a graph put on its shapes."""

from __future__ import annotations

from ..ir.conditions import Condition, distinct, recording
from ..ir.graph import Graph, bodies_of
from .base import operator


def conditions(graph: Graph) -> tuple[Condition, ...]:
    """Collects the conditions that the shapes of a graph have to satisfy: what its operators demand, and what those
    that it was imported from did."""
    found = list(graph.conditions)
    for op in graph.ops:
        with recording(op.origin) as stated:
            operator(op.kind).infer(op.attrs, *map(graph.type_of, op.own_inputs))
        found += stated
        for body in bodies_of(op):
            found += conditions(body.graph)
    return distinct(found)
