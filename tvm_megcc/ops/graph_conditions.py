# SPDX-License-Identifier: Apache-2.0
"""Collects the conditions that the operators of a graph put on its shapes, for the device's shape function."""

from __future__ import annotations

from ..ir.conditions import Condition, distinct, recording
from ..ir.graph import Graph, bodies_of
from .base import operator


def conditions(graph: Graph) -> tuple[Condition, ...]:
    """Returns the conditions that the shapes of a graph must satisfy, each once: the conditions that its operators'
    `infer` states, in subgraphs too, and those that were recorded when the source model was imported."""
    found = list(graph.conditions)
    for op in graph.ops:
        with recording(op.origin) as stated:
            operator(op.kind).infer(op.attrs, *map(graph.type_of, op.own_inputs))
        found += stated
        for body in bodies_of(op):
            found += conditions(body.graph)
    return distinct(found)
