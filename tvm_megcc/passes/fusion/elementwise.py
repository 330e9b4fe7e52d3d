# SPDX-License-Identifier: Apache-2.0
"""Turns elementwise operators into expressions, and fuses chains of them into one operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...context import Context
from ...ir import expr as expressions
from ...ir.expr import MAX_EXPRESSION_CALLS, Arg, Const, Expr, clip
from ...ir.graph import Attrs, Graph, Op
from ...ir.intervals import INT32, SATURATED, interval
from ...ir.lanes import KINDS
from ...ops.base import operator
from ..edit import Editor
from ..quantization.lookup_tables import is_costly, is_of_bytes
from ..quantization.lower_quantized import dequantises

#: The largest number of operands of a fused operator: a kernel should not read too many arrays at a time.
MAX_OPERANDS = 8


def fuse_elementwise(graph: Graph, context: Context) -> Graph:
    """Rewrites float32 elementwise operators to the kind `elementwise`, and inlines each one, or expression over
    integers, into its only reader. Operators that convert 8-bit integers to floats are inlined into all readers."""
    edit = Editor(graph)
    for op in graph.ops:
        if is_float_elementwise(graph, op) or is_integer_expression(op):
            edit.replace(op, _joined(edit, simplify(graph, as_expression(op))))
    return edit.finish()


def _joined(edit: Editor, op: Op) -> Op:
    """Returns the operator with the expressions of its producers inlined, from the latest to the earliest producer."""
    graph, seen = edit.graph, set()
    while True:
        source = next((source for source in edit.sources(op) if source.outputs not in seen
                       and _inlines(edit, source, op)), None)
        if source is None:
            return op
        seen.add(source.outputs)
        saturated = _saturated(graph, source)  # as if its result were stored
        merged = simplify(graph, inline(op, source.outputs[0], saturated, graph.types[op.outputs[0]].dtype))
        if len(merged.inputs) <= MAX_OPERANDS and expressions.size(merged.attrs.expr) <= MAX_EXPRESSION_CALLS:
            op = merged


def _saturated(graph: Graph, op: Op) -> Op:
    """Returns the operator with a clip to its dtype's limits if storing its result may saturate."""
    dtype, *operands = (graph.types[name].dtype for name in (*op.outputs, *op.inputs))
    if dtype not in SATURATED:
        return op
    lower, upper = SATURATED[dtype]
    bounds = [SATURATED.get(operand, INT32) if operand != "float32" else None for operand in operands]
    values = interval(op.attrs.expr, bounds, [KINDS[operand] for operand in operands])
    if values and lower <= values[0] and values[1] <= upper:
        return op
    return op.with_(attrs=Attrs(op.attrs, expr=clip(op.attrs.expr, lower, upper)))


def _inlines(edit: Editor, source: Op, op: Op) -> bool:
    """Returns whether the producer `source` should be inlined into the operator."""
    graph, name = edit.graph, source.outputs[0]
    if source.kind != "elementwise" or graph.types[name].shape != graph.types[op.outputs[0]].shape:
        return False
    if dequantises(source, edit.types):
        return True  # computing it again for each reader costs no more than storing floats
    if is_of_bytes(op, edit.types) and is_costly(op.attrs.expr):
        return False  # `tabulate` replaces the reader by a table, which needs it to have one 8-bit operand
    # The expression becomes the epilogue of one product, so the int32 sums of one product only are inlined; those of
    # another product keep a requantization of their own.
    source_reads_sums, op_reads_sums = (any(edit.types[operand].dtype == "int32" for operand in part.inputs)
                                        for part in (source, op))
    return edit.is_read_once(name) and not (source_reads_sums and (op_reads_sums or dequantises(op, edit.types)))


def is_float_elementwise(graph: Graph, op: Op) -> bool:
    """Returns whether the operator is an elementwise expression over float32 that is not all constants."""
    types = [*graph.input_types(op), *graph.output_types(op)]
    return (operator(op.kind).expression(op.attrs) is not None
            and all(t is not None and t.dtype == "float32" for t in types)
            and any(name not in graph.constants for name in op.inputs))


def is_integer_expression(op: Op) -> bool:
    """Returns whether the operator is an expression over integers, or integers and floats (ir/lanes.py). Only these
    have the attribute `dtype`, that of the result."""
    return op.kind == "elementwise" and "dtype" in op.attrs


def as_expression(op: Op) -> Op:
    """Returns an elementwise operator as one of the kind `elementwise`, with its expression as an attribute."""
    expression = operator(op.kind).expression(op.attrs)
    return op if is_integer_expression(op) else op.with_(kind="elementwise", attrs=Attrs(expr=expression))


def inline(op: Op, name: str, source: Op, dtype: str) -> Op:
    """Returns the operator with the operand `name` replaced by the expression of its producer `source`. dtype: the
    dtype of its result."""
    offset = len(op.inputs)
    shifted = expressions.substitute(source.attrs.expr, [Arg(offset + i) for i in range(len(source.inputs))])
    replaced = [shifted if operand == name else Arg(i) for i, operand in enumerate(op.inputs)]
    expression = expressions.substitute(op.attrs.expr, replaced)
    origin = f"{source.origin}+{op.origin}" if source.origin and op.origin else op.origin or source.origin
    typed: dict[str, Any] = {"dtype": dtype} if is_integer_expression(op) or is_integer_expression(source) else {}
    return op.with_(attrs=Attrs(expr=expression, **typed), inputs=op.inputs + source.inputs, origin=origin)


def simplify(graph: Graph, op: Op) -> Op:
    """Returns an `elementwise` operator with scalar constants in its expression, without duplicate and unused
    operands."""
    order: list[str] = []
    replacement: list[Expr] = []
    used = {a.index for a in _args(op.attrs.expr)}
    scalars = {name for name in op.inputs if name in graph.constants and graph.constants[name].size == 1}
    # A constant with one element but more axes than the other operands gives the result its rank, so it stays.
    rank = max((graph.types[name].rank for index, name in enumerate(op.inputs)
                if index in used and name not in scalars), default=0)
    for index, name in enumerate(op.inputs):
        if index not in used:
            replacement.append(Const(0.0))
        elif name in scalars and graph.types[name].rank <= rank:
            replacement.append(Const(float(graph.constants[name].reshape(()))))
        else:
            if name not in order:
                order.append(name)
            replacement.append(Arg(order.index(name)))
    expr = expressions.substitute(op.attrs.expr, replacement)
    return op.with_(attrs=Attrs(op.attrs, expr=expr), inputs=tuple(order))


def _args(expr: Expr) -> Iterator[Arg]:
    """Yields the operands of an expression."""
    if isinstance(expr, Arg):
        yield expr
    elif not isinstance(expr, Const):
        for operand in expr.args:
            yield from _args(operand)
