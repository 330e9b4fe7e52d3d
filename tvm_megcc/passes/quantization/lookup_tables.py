# SPDX-License-Identifier: Apache-2.0
"""Replaces elementwise functions of one 8-bit number by lookup tables of their 256 results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...context import Context
from ...ir import expr as expressions
from ...ir import lanes
from ...ir.expr import FUNCTIONS, Expr
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...ops.quantized.lookup_table import INT8_TYPES, all_values
from ..edit import Editor

#: Functions of at least this cost in vector instructions (sqrt, exp, sigmoid, …) take longer than a table lookup.
COSTLY = 12


def tabulate(graph: Graph, context: Context) -> Graph:
    """Replaces elementwise operators on one 8-bit operand by table lookups, if these are faster."""
    edit = Editor(graph)
    tables: dict[tuple[Expr, str, str], str] = {}
    for op in graph.ops:
        if _is_worth_it(graph, op):
            (x,), dtype = op.inputs, graph.types[op.outputs[0]].dtype
            key = op.attrs.expr, graph.types[x].dtype, dtype
            if key not in tables:
                table = lanes.evaluate(op.attrs.expr, [all_values(key[1])], dtype, precise=True)
                tables[key] = edit.constant(f"{op.outputs[0]}.table", np.ascontiguousarray(table))
            edit.replace(op, Op("lookup", Attrs(), (x, tables[key]), op.outputs, origin=op.origin))
    return edit.finish()


def is_of_bytes(op: Op, types: Mapping[str, TensorType]) -> bool:
    """Returns whether an elementwise operator has one operand, of 8 bits."""
    return (op.kind == "elementwise" and "dtype" in op.attrs and len(op.inputs) == 1
            and types[op.inputs[0]].dtype in INT8_TYPES)


def is_costly(expr: Expr) -> bool:
    """Returns whether an expression calls a function that takes longer than a table lookup."""
    return any(FUNCTIONS[name].cost >= COSTLY for name in expressions.functions_of(expr))


def _is_worth_it(graph: Graph, op: Op) -> bool:
    """Returns whether a table is possible and faster than the operator."""
    if not is_of_bytes(op, graph.types):
        return False
    (y,) = op.outputs
    # Tables of 8-bit results are read with vector instructions, so they are faster than any arithmetic in floats. Other
    # results are looked up one by one, which only costly functions justify.
    computes_bytes_in_floats = "real" in expressions.functions_of(op.attrs.expr) and graph.types[y].itemsize == 1
    return computes_bytes_in_floats or is_costly(op.attrs.expr)
