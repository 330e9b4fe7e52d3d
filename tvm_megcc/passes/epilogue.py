# SPDX-License-Identifier: Apache-2.0
"""An elementwise operator behind a producer becomes the producer's epilogue: computed in registers, never stored."""

from __future__ import annotations

from ..context import Context
from ..ir import expr as expressions
from ..ir.expr import MOST_CALLS, Arg, Expr
from ..ir.graph import Graph, Op, prune, toposort
from ..kernels.site import Site
from ..kernels.support import fuses_epilogue, operand_class, realisable
from ..ops.base import operator

#: Extra operands an epilogue may read: each takes a pointer and, in the tile, a register.
MAX_OPERANDS = 4


def fuse_epilogues(graph: Graph, context: Context) -> Graph:
    """Moves each `elementwise` operator into the latest of its producers that can take it."""
    ops: list[Op] = []
    position: dict[str, int] = {}
    uses = {name: len(users) for name, users in graph.consumers().items()}
    for op in graph.ops:
        taken = False
        if op.kind == "elementwise":
            places = sorted({position[name] for name in op.inputs if name in position}, reverse=True)
            for place in places:
                fused = _fuse(graph, ops[place], op, uses, context)
                if fused is not None:
                    ops[place] = fused
                    position[op.outputs[0]] = place
                    taken = True
                    break
        if not taken:
            position.update((name, len(ops)) for name in op.outputs)
            ops.append(op)
    return prune(graph.with_(ops=toposort(ops)))


def _fuse(graph: Graph, producer: Op, op: Op, uses: dict[str, int], context: Context) -> Op | None:
    """The producer with the elementwise operator as (the end of) its epilogue; None where that cannot be."""
    if producer.kind == "elementwise" or len(producer.outputs) != 1 or not fuses_epilogue(producer.kind):
        return None
    value = producer.outputs[0]
    output = graph.types[value]
    if value not in op.inputs or uses[value] != 1 or value in graph.outputs \
            or graph.types[op.outputs[0]].shape != output.shape or output.dtype != "float32":
        return None
    axis = operator(producer.kind).channel_axis
    others = [name for name in op.inputs if name != value]
    if any(operand_class(graph.types[name], output, axis) is None for name in others):
        return None
    if any(graph.types[name].size != 1 and name not in graph.constants
           and operand_class(graph.types[name], output, axis) == "channel" for name in others):
        return None  # a run-time operand per channel has a layout of its own
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
    if len(present) > MAX_OPERANDS:
        return None
    epilogue = expressions.substitute(op.attrs.expr, replacement)
    if expressions.size(epilogue) > MOST_CALLS:
        return None
    own = producer.own_inputs
    origin = f"{producer.origin}+{op.origin}" if producer.origin and op.origin else producer.origin or op.origin
    fused = producer.with_(inputs=own + tuple(present), outputs=op.outputs, epilogue_start=len(own),
                           epilogue=epilogue, origin=origin)
    accepted = realisable(Site.of(graph, fused, context))
    return fused if accepted else None
