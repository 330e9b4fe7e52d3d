# SPDX-License-Identifier: Apache-2.0
"""Copies constants whose reshaped shape is known only at run time, because such a view has to be in the arena."""

from __future__ import annotations

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ..edit import Editor


def copy_reshaped(graph: Graph, context: Context) -> Graph:
    """Rewrites reshape(constant) → reshape(copy(constant)). A reshape is a view of a tensor in the arena; weights are
    not in the arena. Reshapes of constants to known shapes were folded at import."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind != "reshape" or op.inputs[0] not in graph.constants:
            continue
        copied = edit.value(f"{op.outputs[0]}:copy", graph.types[op.inputs[0]])
        edit.add_before(op, Op("copy", Attrs(), op.inputs, (copied,), origin=op.origin))
        edit.replace(op, op.with_(inputs=(copied,)))
    return edit.finish()
