# SPDX-License-Identifier: Apache-2.0
"""States of streaming models: pairs of an output and the input that it becomes in the next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import ModelError
from ..ir.graph import Graph


def keep_states(graph: Graph, states: Mapping[str, str]) -> Graph:
    """The graph with these pairs output -> input kept from run to run, beside those that the model itself keeps.

    Raises:
        ModelError: listing every pair that does not fit the model.
    """
    findings = []
    taken = {name for pair in graph.states for name in pair}
    for source, target in states.items():
        findings += [f"state '{source}={target}': {reason}" for reason in _reasons(graph, source, target, taken)]
        taken.add(target)
    if findings:
        raise ModelError(graph.name, findings, "A state is OUTPUT=INPUT, both of one type; every name stands in one.")
    return graph.with_(states=(*graph.states, *states.items()))


def first_states(graph: Graph) -> dict[str, np.ndarray]:
    """What the states are before the first run, by the names of their inputs."""
    return {name: graph.begins.get(name, np.zeros(graph.types[name].shape, graph.types[name].dtype))
            for _, name in graph.states}


def _reasons(graph: Graph, source: str, target: str, taken: set[str]) -> list[str]:
    """What is wrong with a pair."""
    unknown = [_unknown(kind, name, names) for kind, name, names in
               (("output", source, graph.outputs), ("input", target, graph.inputs)) if name not in names]
    if unknown:
        return unknown
    if source in taken or target in taken:
        kind, name = ("input", target) if target in taken else ("output", source)
        return [f"{kind} '{name}' is in another state too"]
    result, operand = graph.types[source], graph.types[target]
    if result != operand:
        grows = result.dtype == operand.dtype and result.rank == operand.rank
        return [f"output '{source}' is {result}, input '{target}' is {operand}"
                + ("; a state keeps its shape: export a cache of fixed length, written in part" if grows else "")]
    if texts := graph.text_ports.intersection((source, target)):
        return [f"'{min(texts)}' is texts, which are no state: those that the model does not know are of one run"]
    if not operand.is_static:
        return [f"input '{target}' is {operand}; a state has one shape for ever, give it with --input-shapes"]
    return []


def _unknown(kind: str, name: str, names: Sequence[str]) -> str:
    return f"the model has no {kind} '{name}'; its {kind}s are {', '.join(names)}"
