# SPDX-License-Identifier: Apache-2.0
"""Code sinking: moves operators into the only branch of an If that reads their results, so that a run that takes the
other branch does not compute them (S. S. Muchnick, Advanced Compiler Design and Implementation, 1997, section 13.5)."""

from __future__ import annotations

from collections.abc import Sequence

from ...context import Context
from ...ir.dims import symbols
from ...ir.graph import EXTENT, Attrs, Body, Graph, Op, prune, unused


def sink_into_branches(graph: Graph, context: Context) -> Graph:
    """Moves operators whose results only one body of a branch reads into that body. The last branch of the graph comes
    first, because an operator that moves into it may be the only reader of an earlier branch."""
    for branch in [op for op in reversed(graph.ops) if op.kind == "branch"]:
        for body in ("yes", "no"):
            (current,) = (op for op in graph.ops if op.outputs == branch.outputs)
            graph = _sunk(graph, current, body)
    return graph


def _captured(branch: Op, body: str) -> tuple[str, ...]:
    """Returns the values that a body of a branch reads, in the order of the body's inputs."""
    # Operands of a branch: the condition, the values that `yes` reads, those that `no` reads.
    first_of_no = 1 + branch.attrs.reads
    return branch.inputs[1:first_of_no] if body == "yes" else branch.inputs[first_of_no:]


def _sunk(graph: Graph, branch: Op, body: str) -> Graph:
    """Moves operators into one body of a branch."""
    moved = _only_read_by(graph, branch, body)
    captured_before = _captured(branch, body)
    if not moved or len(set(captured_before)) < len(captured_before):  # a value may not have two names in a body
        return graph
    inner = branch.attrs[body].graph
    produced = {name for op in moved for name in op.outputs if name}
    captured = tuple(dict.fromkeys((
        *(name for name in captured_before if name not in produced),
        *(name for op in moved for name in op.inputs
          if name and name not in produced and name not in graph.constants))))
    # The body has names of its own: those of its inputs stand for the captured values.
    name_of = dict(zip(captured_before, inner.inputs, strict=True))
    types = dict(inner.types)
    for name in (*captured, *produced, *(name for op in moved for name in op.inputs)):
        if name and name not in name_of:
            name_of[name] = unused(name, types)
        if name:
            types[name_of[name]] = graph.types[name]
    ops = [op.with_(inputs=tuple(name and name_of[name] for name in op.inputs),
                    outputs=tuple(name and name_of[name] for name in op.outputs)) for op in moved]
    constants = {name_of[name]: graph.constants[name] for op in moved for name in op.inputs if name in graph.constants}
    sunk = inner.with_(inputs=tuple(name_of[name] for name in captured), ops=(*ops, *inner.ops), types=types,
                       constants={**inner.constants, **constants})
    reads = {"yes": _captured(branch, "yes"), "no": _captured(branch, "no"), body: captured}
    attrs = Attrs(branch.attrs, **{body: Body(prune(sunk)), "reads": len(reads["yes"])})
    replaced = branch.with_(inputs=(branch.inputs[0], *reads["yes"], *reads["no"]), attrs=attrs)
    return prune(graph.with_(ops=tuple(replaced if op is branch else op for op in graph.ops
                                       if produced.isdisjoint(op.outputs))))


def _only_read_by(graph: Graph, branch: Op, body: str) -> Sequence[Op]:
    """Returns the operators whose results only this body reads, directly or through such operators, in order."""
    position = graph.ops.index(branch)
    other = "no" if body == "yes" else "yes"
    outside = {branch.inputs[0], *_captured(branch, other), *graph.outputs,
               *(name for op in graph.ops[position + 1:] for name in op.inputs)}
    inside = set(_captured(branch, body))
    moved: list[Op] = []
    for op in reversed(graph.ops[:position]):
        results = [name for name in op.outputs if name]
        if _is_movable(op, graph) and inside.intersection(results) and outside.isdisjoint(results):
            moved.insert(0, op)
            inside.update(op.inputs)
        else:
            outside.update(op.inputs)
    return moved


def _is_movable(op: Op, graph: Graph) -> bool:
    """Returns whether an operator may run later or not at all: it checks nothing (`required`: the check of a symbol's
    value stays), is no foreign code (extern), and defines no extents of other values."""
    has_symbols = any(symbols(extent) for name in op.outputs if name for extent in graph.types[name].shape)
    return not (op.kind in (EXTENT, "extern") or op.attrs.get("required") or has_symbols)
