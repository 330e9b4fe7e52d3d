# SPDX-License-Identifier: Apache-2.0
"""Checks a graph between passes. An error is a bug of a pass, not of the model."""

from __future__ import annotations

from ..errors import InternalError
from .graph import Graph, waits_for


def verify(graph: Graph) -> None:
    """Raises InternalError unless every value is defined once, before its first use, and has a type, and constants have
    the shapes of their types."""
    defined = set(graph.inputs) | set(graph.constants)
    problems = [f"constant %{n} has shape {a.shape}, its type says {graph.types[n]}"
                for n, a in graph.constants.items() if n in graph.types and tuple(a.shape) != graph.types[n].shape]
    for op, awaited in zip(graph.ops, waits_for(graph.ops, graph.types), strict=True):
        problems += [f"{op.kind} '{op.origin}' reads %{n} before it is defined"
                     for n in awaited if n and n not in defined]
        problems += [f"{op.kind} '{op.origin}' defines %{n} again" for n in op.outputs if n in defined]
        defined.update(op.outputs)
        if op.epilogue is not None and not 0 <= op.epilogue_start <= len(op.inputs):
            problems.append(f"{op.kind} '{op.origin}' has epilogue_start {op.epilogue_start}")
    problems += [f"output %{n} is not defined" for n in graph.outputs if n not in defined]
    problems += [f"%{n} has no type" for n in sorted(defined) if n not in graph.types]
    if problems:
        raise InternalError(f"graph {graph.name}: " + "; ".join(problems[:5]))
