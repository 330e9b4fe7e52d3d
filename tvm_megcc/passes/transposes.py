# SPDX-License-Identifier: Apache-2.0
"""Transposes that only bring an axis to where an operator of the model's framework wanted it are left out."""

from __future__ import annotations

from ..ir.graph import Attrs, Graph, Op, prune
from ..target import Target

#: Operators along one axis, attribute `axis`, whose result has the operand's shape: they work along any axis.
ALONG_AXIS = ("softmax", "log_softmax")


def absorb_transposes(graph: Graph, target: Target) -> Graph:
    """transpose(f(transpose(x, p), axis), q) → f(x, p[axis]) where q undoes p."""
    producers = graph.producers()
    uses = {name: len(ops) for name, ops in graph.consumers().items()}
    ops: list[Op] = []
    for op in graph.ops:
        line = producers.get(op.inputs[0]) if op.kind == "transpose" else None
        before = producers.get(line.inputs[0]) if line is not None and line.kind in ALONG_AXIS else None
        alone = line is not None and uses[line.outputs[0]] == 1 and line.outputs[0] not in graph.outputs
        if before is not None and before.kind == "transpose" and alone \
                and [before.attrs.perm[axis] for axis in op.attrs.perm] == list(range(len(op.attrs.perm))):
            axis = before.attrs.perm[line.attrs.axis]
            op = line.with_(attrs=Attrs(line.attrs, axis=axis), inputs=before.inputs, outputs=op.outputs)
        ops.append(op)
    return prune(graph.with_(ops=tuple(ops)))
