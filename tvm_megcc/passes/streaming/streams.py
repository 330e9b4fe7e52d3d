# SPDX-License-Identifier: Apache-2.0
"""Rewrites a network for a whole sequence into one for blocks along one axis, which keeps the elements that it needs of
earlier blocks in states."""

from __future__ import annotations

from collections.abc import Container

from ...ir.graph import Graph
from ...ir.streams import Stream
from .flow import Streamer
from .rules import rule_of


def streamed(graph: Graph, stream: Stream, unstreamed: Container[str] = ()) -> Graph:
    """Returns the network for blocks, with its states and a description of the stream (`Graph.stream`).

    Args:
        graph: as it was imported, for a whole sequence of a known length.
        unstreamed: inputs that are states already.

    Raises:
        ShapeError: for an axis or block that the inputs cannot have.
        ModelError: naming every operator that cannot be streamed, and why.
    """
    return Streamer(graph, stream, unstreamed).run(rule_of)
