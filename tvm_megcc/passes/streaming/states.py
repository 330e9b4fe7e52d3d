# SPDX-License-Identifier: Apache-2.0
"""States of streaming models: pairs of an output and the input that it replaces in the next run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...errors import ModelError
from ...ir.dim_text import sizes_wanted
from ...ir.dims import Symbol, number, symbols
from ...ir.graph import Graph


def expanded(states: Mapping[str, str], inputs: Collection[str]) -> dict[str, str]:
    """Replaces each pair (output, input) with a "*" in both names by a pair for each input that the name matches."""
    pairs: dict[str, str] = {}
    for source, target in states.items():
        before, _, after = target.partition("*")
        middles = [name[len(before):len(name) - len(after)] for name in inputs
                   if name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after)]
        if source.count("*") == target.count("*") == 1 and target not in inputs and middles:
            pairs |= {source.replace("*", middle): target.replace("*", middle) for middle in middles}
        else:
            pairs[source] = target
    return pairs


def keep_states(graph: Graph, states: Mapping[str, str]) -> Graph:
    """Returns the graph with these states (output -> input) in addition to those of the model.

    Raises:
        ModelError: listing every pair that does not fit the model.
    """
    findings = []
    states = expanded(states, graph.inputs)
    used = {name for pair in graph.states for name in pair}
    for source, target in states.items():
        findings += [f"state '{source}={target}': {reason}" for reason in _reasons(graph, source, target, used)]
        used.add(target)
    if findings:
        rule = "A state is OUTPUT=INPUT, of the same type. No name may be in two states."
        raise ModelError(graph.name, findings, " ".join([*_advice(graph, states), rule]))
    return graph.with_(states=(*graph.states, *states.items()))


def first_states(graph: Graph) -> dict[str, np.ndarray]:
    """Returns the initial values of the states, by the names of their inputs."""
    return {name: graph.initial_states.get(name, np.zeros([number(dim) for dim in graph.types[name].shape],
                                                        graph.types[name].dtype))
            for _, name in graph.states}


def _reasons(graph: Graph, source: str, target: str, used: set[str]) -> list[str]:
    """Returns the reasons why a pair cannot be a state. used: names that are in other states."""
    unknown = [_unknown(kind, name, names) for kind, name, names in
               (("output", source, graph.outputs), ("input", target, graph.inputs)) if name not in names]
    if unknown:
        return unknown
    if source in used or target in used:
        kind, name = ("input", target) if target in used else ("output", source)
        return [f"{kind} '{name}' is in another state too"]
    result, operand = graph.types[source], graph.types[target]
    if result != operand:
        return [f"output '{source}' is {result}, input '{target}' is {operand}"]
    if strings := graph.string_ports.intersection((source, target)):
        return [f"'{min(strings)}' has strings, which cannot be a state: the number of a string that is not in the "
                "table is valid for one run only"]
    if not operand.is_static:
        sizes = sizes_wanted(sorted(set().union(*map(symbols, operand.shape))))
        return [f"input '{target}' is {operand}; the shape of a state is fixed, so give its sizes: {sizes}"]
    return []


def _advice(graph: Graph, states: Mapping[str, str]) -> list[str]:
    """Returns advice for states whose shapes differ: the bounds that are needed if outputs are longer than their
    inputs, and the sizes of open extents of inputs that the outputs have."""
    growing: dict[str, None] = {}  # an ordered set of the symbols that need a bound
    sizes: dict[str, str] = {}
    for source, target in states.items():
        if source in graph.outputs and target in graph.inputs:
            now, past = graph.types[source], graph.types[target]
            if now.dtype == past.dtype and now.rank == past.rank:
                for longer, dim in zip(now.shape, past.shape, strict=True):
                    if isinstance(dim, Symbol) and isinstance(longer, int):
                        sizes[dim.name] = f"--dim {shlex.quote(f'{dim.name}={longer}')}"
                    elif longer != dim:
                        growing[dim.name if isinstance(dim, Symbol) else "NAME"] = None
    advice = []
    if sizes:
        advice.append(f"A state is as large as the output that it becomes: {' '.join(sizes.values())}.")
    if growing:
        bounds = " ".join(f"--bound {name}=1024" for name in growing)
        advice.append(f"The memory of a state has a fixed size: if the output is Concat(past, new), give the capacity "
                      f"with {bounds}; else export the model with a cache of fixed length that it writes into.")
    return advice


def _unknown(kind: str, name: str, names: Sequence[str]) -> str:
    return f"the model has no {kind} '{name}'; its {kind}s are {', '.join(names)}"
