# SPDX-License-Identifier: Apache-2.0
"""Computes once what depends on extents and constants alone, such as positions, rotary angles and masks, which each
layer of a decoder repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

from ...context import Context
from ...ir.graph import Graph, Op, bodies_of
from ..edit import Editor

#: Operators whose results have memory of their own for a reason, or that call code of others.
_KEPT = frozenset({"copy", "extern", "extent", "tir"})


def share_positions(graph: Graph, context: Context) -> Graph:
    """Replaces the results of an operator by those of an earlier one with the same kind, attributes, epilogue and
    operands, if the operands depend on no input.

    Constants with the same bytes are the same operand. Values that depend on inputs are left alone: sharing them would
    keep them in memory from the first use to the last.
    """
    edit, shared = Editor(graph), _Shared(graph)
    for op in graph.ops:
        same = shared.earlier(op)
        if same is not None:
            shared.replaced.update(zip(op.outputs, same.outputs, strict=True))
            edit.replace(op)
    if not shared.replaced:
        return graph
    edit.redirect(shared.replaced)
    return edit.finish()


class _Shared:
    """The operators so far that depend on extents and constants alone.

    replaced: the name of a result -> that of the equal one, which replaces it.
    """

    def __init__(self, graph: Graph):
        self.graph, self.replaced = graph, dict[str, str]()
        self._known: set[str] = set()
        self._operators: dict[Hashable, Op] = {}
        self._digests: dict[str, bytes] = {}

    def earlier(self, op: Op) -> Op | None:
        """Returns the earlier operator that computes the same; None if there is none or `op` has to stay."""
        graph = self.graph
        if op.kind in _KEPT or bodies_of(op) or not all(
                not name or name in self._known or name in graph.constants for name in op.inputs):
            return None
        self._known.update(op.outputs)
        # 0.0 and -0.0 are equal, as are 1 and True; their strings differ.
        key = (op.kind, op.attrs, repr(op.attrs), op.epilogue, repr(op.epilogue), op.epilogue_start,
               tuple(map(self._operand, op.inputs)), tuple(graph.types[name] for name in op.outputs))
        same = self._operators.setdefault(key, op)
        return None if same is op or not set(graph.outputs).isdisjoint(op.outputs) else same

    def _operand(self, name: str) -> Hashable:
        """Returns what is equal for equal operands."""
        if name not in self.graph.constants:
            return self.replaced.get(name, name)
        if name not in self._digests:
            array = self.graph.constants[name]
            self._digests[name] = hashlib.sha256(array.tobytes()).digest()
        return self.graph.types[name], self._digests[name]
