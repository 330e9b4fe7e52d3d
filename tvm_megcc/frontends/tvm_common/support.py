# SPDX-License-Identifier: Apache-2.0
"""Whether there are kernels for an imported graph, and its number of multiply-accumulates. Checks of patterns and
reports ask for both."""

from __future__ import annotations

from ...context import Context
from ...errors import MegccError, ModelError, ShapeError
from ...ir.dims import Dim
from ...ir.graph import Graph
from ...ops.base import operator
from ...passes.layout.choose import choose_layouts
from ...passes.precision.storage_types import widen_stored
from ...target import Target


def why_unsupported(graph: Graph, target: Target) -> str | None:
    """Returns why some operator of a graph has no kernel; None if every one has."""
    try:
        context = Context(target)
        choose_layouts(widen_stored(graph, context), context)
    except ModelError as error:
        return "; ".join(error.findings)
    except (ShapeError, MegccError) as error:
        return str(error)
    return None


def macs(graph: Graph) -> Dim:
    """Returns the number of multiply-accumulates of a graph before optimisation."""
    return sum((operator(op.kind).macs(op.attrs, graph.input_types(op), graph.output_types(op)) for op in graph.ops),
               start=0)
