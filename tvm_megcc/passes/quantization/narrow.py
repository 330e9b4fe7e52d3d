# SPDX-License-Identifier: Apache-2.0
"""Stores per-channel int32 constants that fit in int8 as int8, such as the shifts of TFLite's requantization."""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.graph import Graph
from ...ir.types import TensorType
from ..edit import Editor


def narrow_numbers(graph: Graph, context: Context) -> Graph:
    """Narrows constants in epilogues of integer sums, on CPUs without vectors and with Helium, whose loads widen int8.
    On other CPUs, widening int8 vectors takes additional instructions."""
    edit = Editor(graph)
    narrowed: dict[str, str] = {}
    for op in graph.ops if context.isa.lanes == 1 or context.isa.helium else ():
        if op.epilogue is None or not op.kind.endswith("_integer"):
            continue
        for name in op.epilogue_inputs:
            if name not in narrowed and _fits(graph, name):
                type_ = graph.types[name]
                narrowed[name] = edit.constant(f"{name}.bytes", graph.constants[name].astype(np.int8),
                                               TensorType("int8", type_.shape, type_.layout))
        operands = len(op.own_inputs)
        inputs = op.inputs[:operands] + tuple(narrowed.get(name, name) for name in op.inputs[operands:])
        if inputs != op.inputs:
            edit.replace(op, op.with_(inputs=inputs))
    return edit.finish()


def _fits(graph: Graph, name: str) -> bool:
    """Returns whether a value is an int32 constant of several elements that fits in int8. (For a single element, int8
    saves no space.)"""
    values = graph.constants.get(name)
    limits = np.iinfo(np.int8)
    return values is not None and values.dtype == np.int32 and values.size > 1 \
        and limits.min <= values.min() and values.max() <= limits.max
