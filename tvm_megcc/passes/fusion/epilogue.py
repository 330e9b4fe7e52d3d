# SPDX-License-Identifier: Apache-2.0
"""Fuses elementwise operators into their producers as epilogues, which kernels compute in registers."""

from __future__ import annotations

from ...context import Context
from ...ir import expr as expressions
from ...ir.expr import MAX_EXPRESSION_CALLS, Arg, Expr
from ...ir.graph import Graph, Op
from ...kernels.site import Site
from ...kernels.support import MAX_EPILOGUE_OPERANDS, fuses_epilogue, operand_class, realisable
from ...ops.base import operator
from ..edit import Editor
from .elementwise import is_integer_expression


def fuse_epilogues(graph: Graph, context: Context) -> Graph:
    """Fuses each `elementwise` operator into the latest of its producers whose kernels can compute it."""
    edit = Editor(graph)
    for op in graph.ops:
        for producer in edit.sources(op) if op.kind == "elementwise" else ():
            fused = _fused(edit, producer, op, context)
            if fused is not None:
                edit.fuse(producer, op, fused)
                break
    return edit.finish()


def _fused(edit: Editor, producer: Op, op: Op, context: Context) -> Op | None:
    """Returns the producer with the elementwise operator appended to its epilogue; None if that is impossible."""
    if producer.kind == "elementwise" or len(producer.outputs) != 1 or not fuses_epilogue(producer.kind):
        return None
    value = producer.outputs[0]
    graph = edit.graph
    output = graph.types[value]
    if not edit.is_read_once(value) or graph.types[op.outputs[0]].shape != output.shape:
        return None
    # An epilogue of int32 sums is an integer expression (ir/lanes.py), that of float32 sums one over float32.
    if output.dtype != ("int32" if is_integer_expression(op) else "float32"):
        return None
    axis = operator(producer.kind).channel_axis
    others = [name for name in op.inputs if name != value]
    if any(operand_class(graph.types[name], output, axis) is None for name in others):
        return None
    if any(graph.types[name].size != 1 and name not in graph.constants
           and operand_class(graph.types[name], output, axis) == "channel" for name in others):
        return None  # a per-channel operand computed at run time has a layout of its own
    present: list[str] = list(producer.epilogue_inputs)
    inner: Expr = producer.epilogue if producer.epilogue is not None else Arg(0)
    replacement: list[Expr] = []
    for name in op.inputs:
        if name == value:
            replacement.append(inner)
            continue
        if name not in present:
            present.append(name)
        replacement.append(Arg(present.index(name) + 1))
    if len(present) > MAX_EPILOGUE_OPERANDS:
        return None
    epilogue = expressions.substitute(op.attrs.expr, replacement)
    if expressions.size(epilogue) > MAX_EXPRESSION_CALLS:
        return None
    producer_inputs = producer.own_inputs
    origin = f"{producer.origin}+{op.origin}" if producer.origin and op.origin else producer.origin or op.origin
    fused = producer.with_(inputs=producer_inputs + tuple(present), outputs=op.outputs,
                           epilogue_start=len(producer_inputs), epilogue=epilogue, origin=origin)
    return fused if realisable(Site.of(graph, fused, context)) else None
