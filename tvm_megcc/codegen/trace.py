# SPDX-License-Identifier: Apache-2.0
"""The trace of the safety profile: for each operator of a model, the passes that changed it and its kernel calls.

The passes need not report anything. The trace compares the operators before and after each pass, which are values: an
operator that is not there any more was changed. The new operators that compute one of its results follow it, else those
that name it as their origin, else those that read one of its operands.
"""

from __future__ import annotations

from typing import Any

from ..ir.graph import Graph, Op
from .plan import KernelPlan


class Trace:
    """Follows the operators of a graph through the passes.

    graph: the imported graph.
    _graph: the graph after the last pass.
    _operators: the operators of the imported graph; `_current`, `_passes` and `_end` have an element for each.
    _current: the operators of `_graph` that an operator has become.
    _passes: the passes that changed it.
    _end: the reason that no operator is left; "" as long as there is one.
    _inserted: an operator of `_graph` that no imported one has become -> the passes that made it.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._operators = graph.ops
        self._current: list[dict[Op, None]] = [{op: None} for op in graph.ops]
        self._passes: list[list[str]] = [[] for _ in graph.ops]
        self._end = [""] * len(graph.ops)
        self._inserted: dict[Op, list[str]] = {}

    def after(self, name: str, graph: Graph) -> None:
        """Compares a graph with the one before. name: the pass that made it."""
        before, now = set(self._graph.ops), set(graph.ops)
        added = [op for op in graph.ops if op not in before]
        followers: dict[Op, dict[Op, None]] = {}
        for op in self._graph.ops:
            if op not in now:
                followers[op] = dict.fromkeys(_followers(op, added, self._graph))
        for index, current in enumerate(self._current):
            if gone := [op for op in current if op in followers]:
                self._passes[index].append(name)
                kept = {op: None for op in current if op not in followers}
                self._current[index] = kept | {new: None for op in gone for new in followers[op]}
                if not self._current[index]:
                    is_constant = all(output in graph.constants for op in gone for output in op.outputs)
                    self._end[index] = "a constant" if is_constant else "no result needs it"
        inserted: dict[Op, list[str]] = {}
        for op, passes in self._inserted.items():
            for new in [op] if op in now else followers.get(op, ()):
                inserted.setdefault(new, [*passes, *([] if op in now else [name])])
        followed = {new for row in self._current for new in row}
        self._inserted = {**{op: [name] for op in added if op not in followed and op not in inserted}, **inserted}
        self._graph = graph

    def facts(self, plan: KernelPlan) -> dict[str, Any]:
        """Returns the trace for the manifest. plan: the kernel calls of the final graph.

        operators: a row for each operator of the model: name, kind, the passes that changed it, the indices of the
            calls that compute it, and if there are none its `end`.
        inserted: the calls that no operator of the model leads to: call, and the passes that made it.
        """
        self.after("views", plan.graph)  # copies where views are impossible come after the last pass
        call_of = {step.op: index for index, step in enumerate(plan.steps)}
        rows = []
        for op, current, passes, end in zip(self._operators, self._current, self._passes, self._end, strict=True):
            calls = sorted(call_of[new] for new in current if new in call_of)
            rows.append({"name": op.origin or op.outputs[0], "kind": op.kind, "result": op.outputs[0],
                         "passes": passes, "calls": calls, **({} if calls else {"end": end or "a view: no code"})})
        reached = {call for row in rows for call in row["calls"]}
        return {"operators": rows, "inserted": [{"call": index, "passes": self._inserted.get(step.op, [])}
                                                for index, step in enumerate(plan.steps) if index not in reached]}


def _followers(op: Op, added: list[Op], graph: Graph) -> list[Op]:
    """Returns the new operators that follow one that a pass changed. graph: the graph before the pass."""
    names = set(op.origin.split("+")) - {""}
    operands = {name for name in op.inputs if name and name not in graph.constants}
    return ([new for new in added if not set(op.outputs).isdisjoint(new.outputs)]
            or [new for new in added if not names.isdisjoint(new.origin.split("+"))]
            or [new for new in added if not operands.isdisjoint(new.inputs)])
