# SPDX-License-Identifier: Apache-2.0
"""Prints a graph as text, for `--dump`, golden tests and error messages."""

from __future__ import annotations

import sys

from ..errors import shortened
from .graph import Graph, Op


def op_text(graph: Graph, op: Op, longest: int = sys.maxsize) -> str:
    """Returns an operator as text, such as `%y: float32[1,8] = relu(%x)  # node`. Names longer than `longest` are
    shortened in the middle."""
    outputs = ", ".join(f"%{shortened(name, longest)}: {graph.types[name]}" for name in op.outputs)
    inputs = ", ".join(_operand(graph, name, longest) for name in op.own_inputs)
    text = f"{outputs} = {op.kind}({inputs})"
    if op.attrs:
        text += f" {{{op.attrs!r}}}"
    if op.epilogue is not None:
        extra = ", ".join(f"e{i + 1}={_operand(graph, name, longest)}" for i, name in enumerate(op.epilogue_inputs))
        text += f" then {op.epilogue}" + (f" with {extra}" if extra else "")
    return text + (f"  # {shortened(op.origin, longest)}" if op.origin else "")


def _operand(graph: Graph, name: str, longest: int) -> str:
    if not name:
        return "-"
    return f"const {graph.types[name]}" if name in graph.constants else f"%{shortened(name, longest)}"


def graph_text(graph: Graph) -> str:
    """Returns a graph as text, a line for each input, operator, output and state."""
    lines = [f"graph {graph.name}"]
    lines += [f"  input %{name}: {graph.types[name]}" for name in graph.inputs]
    lines += ["  " + op_text(graph, op) for op in graph.ops]
    lines += [f"  output %{name}" for name in graph.outputs]
    lines += [f"  state %{source} becomes %{target}{_initial_value(graph, target)}" for source, target in graph.states]
    return "\n".join(lines) + "\n"


def _initial_value(graph: Graph, state: str) -> str:
    """Returns the text of a state's initial value; "" if the state begins with zeros."""
    if state not in graph.initial_states:
        return ""
    first = graph.initial_states[state]
    return f", {first.flat[0]} at first" if (first == first.flat[0]).all() else ", at first as given"
