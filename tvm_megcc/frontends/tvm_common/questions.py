# SPDX-License-Identifier: Apache-2.0
"""Questions about an imported graph: whether we have kernels for it, and how much it computes."""

from __future__ import annotations

from ...context import Context
from ...errors import MegccError, ModelError, ShapeError
from ...ir.dims import Dim
from ...ir.graph import Graph
from ...ops.base import operator
from ...passes.layout.choose import choose_layouts
from ...passes.precision.storage_types import widen_stored
from ...target import Target


def unsupported(graph: Graph, target: Target) -> str | None:
    """Why no kernel realises some operator of a graph; None if every one has a kernel."""
    try:
        context = Context(target)
        choose_layouts(widen_stored(graph, context), context)
    except ModelError as error:
        return "; ".join(error.findings)
    except (ShapeError, MegccError) as error:
        return str(error)
    return None


def macs(graph: Graph) -> Dim:
    """Returns the multiply-accumulates of a graph as imported."""
    return sum((operator(op.kind).macs(op.attrs, graph.input_types(op), graph.output_types(op)) for op in graph.ops),
               start=0)
