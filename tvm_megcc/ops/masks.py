# SPDX-License-Identifier: Apache-2.0
"""Finds the inputs of a model that are attention masks: 1 for positions to attend to, 0 for the others. The manifest
lists them (codegen/facts.py)."""

from __future__ import annotations

from ..ir.graph import Graph, Op
from ..ir.narrow import is_float
from .nn.fused_attention import Attention

#: Operators that may be between a mask and the scores that it is added to or selects.
_MASK_PRESERVING = frozenset({
    "add", "sub", "mul", "div", "min", "max", "neg", "log", "where", "cast", "copy", "reshape", "transpose", "slice",
    "expand", "tile", "concat", "equal", "logical_not", "logical_and", "logical_or"})
#: Comparisons. An operand that is compared with a constant number may be a mask; two tensors that are compared are
#: positions.
_COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal"})


def input_masks(graph: Graph) -> frozenset[str]:
    """Returns the inputs of integers or bool, of rank 2 or more, that reach the scores of a softmax."""
    reached = {name for op in graph.ops for name in _score_operands(op)}
    for op in reversed(graph.ops):
        is_comparison = op.kind in _COMPARISONS and any(name in graph.constants and graph.types[name].size == 1
                                                        for name in op.inputs)
        if (op.kind in _MASK_PRESERVING or is_comparison) and reached.intersection(op.outputs):
            reached.update(op.inputs)
    return frozenset(name for name in graph.inputs if name in reached and graph.types[name].rank >= 2
                     and not is_float(graph.types[name].dtype))


def _score_operands(op: Op) -> tuple[str, ...]:
    """Returns the operand of a softmax, or the mask of an attention operator; () for other operators."""
    if op.kind == Attention.kind:
        return tuple(op.inputs[3:])
    return op.inputs[:1] if op.kind == "softmax" else ()
