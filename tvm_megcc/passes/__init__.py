# SPDX-License-Identifier: Apache-2.0
"""The passes, in order. Each takes a graph and the target and returns a new graph."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Graph
from ..target import Target
from . import absorb, channels, concats, elementwise, epilogue, halves, layout, schedule, transposes, trees

Pass = Callable[[Graph, Target], Graph]

#: (name in dumps, pass, why it stands here)
PIPELINE: tuple[tuple[str, Pass, str], ...] = (
    ("widen_halves", halves.widen_halves, "first: all other passes then see float32"),
    ("make_trees", trees.make_trees, "before anything asks for a kernel: none has so many operands"),
    ("absorb_pads", absorb.absorb_pads, "before scales: a pad between two convolutions would hide them"),
    ("absorb_transposes", transposes.absorb_transposes, "anywhere: they touch nothing else"),
    ("split_maps", concats.split_maps, "before scales and epilogues, which then find the convolutions behind a concat"),
    ("absorb_scales", absorb.absorb_scales, "while mul and add are still operators of their own"),
    ("fuse_elementwise", elementwise.fuse_elementwise, "chains first, so that x*sigmoid(x) has one operand"),
    ("fuse_epilogues", epilogue.fuse_epilogues, "what is left of a chain behind a producer is its epilogue"),
    ("absorb_shuffles", channels.absorb_shuffles, "when all that is elementwise is of one kind"),
    ("choose_layouts", layout.choose_layouts, "needs the final operators: an epilogue ties layouts together"),
    ("schedule", lambda graph, target: schedule.reorder(graph), "last: the order decides the peak of memory"),
)
