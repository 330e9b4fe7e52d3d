# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators become expressions, and chains of them become one operator."""

from __future__ import annotations

from ..context import Context
from ..ir import expr as expressions
from ..ir.expr import MOST_CALLS, Arg, Const, Expr
from ..ir.graph import Attrs, Graph, Op
from ..ops.base import operator
from .edit import Editor

#: More operands than this make a kernel that streams too many arrays at once.
MAX_OPERANDS = 8


def fuse_elementwise(graph: Graph, context: Context) -> Graph:
    """Rewrites float32 elementwise operators to `elementwise` and inlines each into its only consumer."""
    edit = Editor(graph)
    for op in graph.ops:
        if not is_float_elementwise(graph, op):
            continue
        fused = simplify(graph, as_expression(op))
        for name in fused.inputs:
            source = edit.producer(name)
            if source is None or source.kind != "elementwise" or not edit.is_read_once(name) \
                    or graph.types[name].shape != graph.types[op.outputs[0]].shape:
                continue
            merged = simplify(graph, inline(fused, name, source))
            if len(merged.inputs) <= MAX_OPERANDS and expressions.size(merged.attrs.expr) <= MOST_CALLS:
                fused = merged
        edit.replace(op, fused)
    return edit.finish()


def is_float_elementwise(graph: Graph, op: Op) -> bool:
    """Whether the operator is an elementwise expression over float32 that is not all constants."""
    types = [*graph.input_types(op), *graph.output_types(op)]
    return (operator(op.kind).expression(op.attrs) is not None
            and all(t is not None and t.dtype == "float32" for t in types)
            and any(name not in graph.constants for name in op.inputs))


def as_expression(op: Op) -> Op:
    expression = operator(op.kind).expression(op.attrs)
    return op.with_(kind="elementwise", attrs=Attrs(expr=expression))


def inline(op: Op, name: str, source: Op) -> Op:
    """The operator with the operand `name` replaced by the expression of its producer."""
    offset = len(op.inputs)
    shifted = expressions.substitute(source.attrs.expr, [Arg(offset + i) for i in range(len(source.inputs))])
    replaced = [shifted if operand == name else Arg(i) for i, operand in enumerate(op.inputs)]
    expression = expressions.substitute(op.attrs.expr, replaced)
    origin = f"{source.origin}+{op.origin}" if source.origin and op.origin else op.origin or source.origin
    return op.with_(attrs=Attrs(expr=expression), inputs=op.inputs + source.inputs, origin=origin)


def simplify(graph: Graph, op: Op) -> Op:
    """Constant scalars become part of the expression; equal operands become one; unused ones go."""
    order: list[str] = []
    replacement: list[Expr] = []
    used = {a.index for a in _args(op.attrs.expr)}
    for index, name in enumerate(op.inputs):
        if index not in used:
            replacement.append(Const(0.0))
        elif name in graph.constants and graph.constants[name].size == 1 \
                and graph.types[name].rank <= graph.types[op.outputs[0]].rank:
            replacement.append(Const(float(graph.constants[name].reshape(()))))
        else:
            if name not in order:
                order.append(name)
            replacement.append(Arg(order.index(name)))
    return op.with_(attrs=Attrs(expr=expressions.substitute(op.attrs.expr, replacement)), inputs=tuple(order))


def _args(expr: Expr):
    if isinstance(expr, Arg):
        yield expr
    elif not isinstance(expr, Const):
        for operand in expr.args:
            yield from _args(operand)
