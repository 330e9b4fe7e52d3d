# SPDX-License-Identifier: Apache-2.0
"""Finds the inputs of a model that are attention masks: 1 for positions to attend to, 0 for the others."""

from __future__ import annotations

from ..ir.graph import Graph, Op
from .nn.fused_attention import Attention

#: Operators that may be applied to a mask before it is added to scores or selects them.
_THROUGH = frozenset({
    "add", "sub", "mul", "div", "min", "max", "neg", "log", "where", "cast", "copy", "reshape", "transpose", "slice",
    "expand", "tile", "concat", "equal", "logical_not", "logical_and", "logical_or"})
#: Comparisons. An operand compared with a constant number may be a mask; otherwise they compare positions.
_COMPARING = frozenset({"less", "less_equal", "greater", "greater_equal"})


def input_masks(graph: Graph) -> frozenset[str]:
    """Returns the integer or bool inputs, with at least one row for each batch element, that affect only the scores of
    a softmax."""
    reached = {name for op in graph.ops for name in _scores(op)}
    for op in reversed(graph.ops):
        compared = op.kind in _COMPARING and any(name in graph.constants and graph.types[name].size == 1
                                                 for name in op.inputs)
        if (op.kind in _THROUGH or compared) and reached.intersection(op.outputs):
            reached.update(op.inputs)
    return frozenset(name for name in graph.inputs if name in reached and graph.types[name].rank >= 2
                     and graph.types[name].dtype[0] in "iub")


def _scores(op: Op) -> tuple[str, ...]:
    """Returns the operands of a softmax, and the masks of an attention operator that computes its own."""
    if op.kind == Attention.kind:
        return tuple(op.inputs[3:])
    return op.inputs[:1] if op.kind == "softmax" else ()
