# SPDX-License-Identifier: Apache-2.0
"""The pipeline of passes before the choice of layouts. A pass takes a graph and its context and returns a new graph."""

from __future__ import annotations

from collections.abc import Callable

from ..context import Context
from ..ir.graph import Graph
from .canonicalize import constant_views, means, split_elementwise, transposes, variadic
from .fusion import absorb, attention, channel_shuffle, elementwise, epilogue, norms
from .precision import float16, storage_types
from .quantization import (
    activations,
    constant_channels,
    dead_channels,
    fixed_point_sums,
    int4,
    lookup_tables,
    lower_quantized,
    narrow,
    rescale_real,
    value_ranges,
)

Pass = Callable[[Graph, Context], Graph]

#: (name in dumps, pass, reason for its position)
PIPELINE: tuple[tuple[str, Pass, str], ...] = (
    ("widen_stored", storage_types.widen_stored, "first: all other passes then see float32"),
    ("pack_int4", int4.pack_int4, "before what is dequantised becomes constants"),
    ("quantize_activations", activations.quantize_activations,
     "after pack_int4, which makes such products, and before anything asks for a kernel"),
    ("fuse_norms", norms.fuse_norms, "before lower_quantised, which makes norms of integers of them"),
    ("lower_quantised", lower_quantized.lower_quantised,
     "before weights are folded and scaled: those of integers stay as they are"),
    ("canonicalize_means", means.canonicalize_means, "after norms and integers, which look for means of either form"),
    ("copy_reshaped", constant_views.copy_reshaped, "before anything asks for a kernel: a view has none"),
    ("make_trees", variadic.make_trees, "before anything asks for a kernel: none has so many operands"),
    ("absorb_pads", absorb.absorb_pads, "before scales: a pad between two convolutions would hide them"),
    ("absorb_transposes", transposes.absorb_transposes, "anywhere: they touch nothing else"),
    ("fuse_attention", attention.fuse_attention,
     "after lower_quantised, which takes products and softmax of integers; while masks and factors are operators"),
    ("split_elementwise", split_elementwise.split_elementwise,
     "before scales and epilogues, which then find the convolutions after a concat"),
    ("absorb_scales", absorb.absorb_scales, "while mul and add are still operators of their own"),
    ("drop_dead_channels", dead_channels.drop_dead_channels,
     "when scales have gone into filters, and while each operator is one of its own"),
    ("sum_in_float32", fixed_point_sums.sum_in_float32, "while a sum is an operator on numbers of 8 bits"),
    ("fuse_elementwise", elementwise.fuse_elementwise, "chains first, so that x*sigmoid(x) has one operand"),
    ("tabulate", lookup_tables.tabulate, "when chains are whole, and before what is left becomes an epilogue"),
    ("fuse_epilogues", epilogue.fuse_epilogues, "what is left of a chain after a producer is its epilogue"),
    ("use_ranges", value_ranges.use_ranges, "on whole expressions: the next of a chain may have needed a limit"),
    ("settle_known_sums", constant_channels.settle_known_sums,
     "on final epilogues, and before their numbers are stored"),
    ("rescale_in_float32", rescale_real.rescale_in_float32,
     "on final epilogues, whose limits are what matters of a sum"),
    ("narrow_numbers", narrow.narrow_numbers, "on final epilogues: passes before it know numbers of int32"),
    ("absorb_shuffles", channel_shuffle.absorb_shuffles, "when all that is elementwise is of one kind"),
    ("compute_in_float16", float16.compute_in_float16, "last: every other pass looks for float32"),
)


def before_layouts(graph: Graph, context: Context, seen: Callable[[str, Graph], None] = lambda name, graph: None) \
        -> Graph:
    """Returns the graph after all passes that precede the choice of layouts. `seen` is called with the graph after each
    pass."""
    for name, run, _reason in PIPELINE:
        graph = run(graph, context)
        seen(name, graph)
    return graph
