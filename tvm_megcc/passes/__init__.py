# SPDX-License-Identifier: Apache-2.0
"""The pipeline of passes before the choice of layouts. A pass takes a graph and its context and returns a new graph."""

from __future__ import annotations

from collections.abc import Callable

from ..context import Context
from ..ir.graph import Graph
from .canonicalize import (
    branches,
    constant_views,
    means,
    positions,
    split_elementwise,
    tied_embeddings,
    transposes,
    variadic,
)
from .fusion import absorb, channel_shuffle, elementwise, epilogue, norms
from .fusion.attention.fuse import fuse_attention
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
    weights,
)

Pass = Callable[[Graph, Context], Graph]

#: The passes in order. Columns: name in dumps, function, reason for the position.
PIPELINE: tuple[tuple[str, Pass, str], ...] = (
    ("widen_stored", storage_types.widen_stored, "first: all other passes then see float32"),
    ("tie_embeddings", tied_embeddings.tie_embeddings,
     "after widen_stored, which casts gathered rows to float32; before passes change weights that are not shared"),
    ("sink_into_branches", branches.sink_into_branches, "before passes that fuse, which work within one body"),
    ("quantize_weights", weights.quantize_weights,
     "after tie_embeddings, which finds equal float weights; before passes change weights"),
    ("pack_int4", int4.pack_int4, "before dequantised weights are folded to constants of floats"),
    ("quantize_activations", activations.quantize_activations,
     "after pack_int4, which creates products with block-quantised weights; before passes ask for kernels"),
    ("fuse_norms", norms.fuse_norms, "before lower_quantised, which lowers norms to integers"),
    ("lower_quantised", lower_quantized.lower_quantised,
     "before passes that fold or scale float weights, which leave integer weights alone"),
    ("canonicalize_means", means.canonicalize_means,
     "after fuse_norms and lower_quantised, which match both forms of a mean"),
    ("copy_reshaped", constant_views.copy_reshaped, "before passes ask for kernels: a view has none"),
    ("make_trees", variadic.make_trees, "before passes ask for kernels: no kernel has so many operands"),
    ("absorb_pads", absorb.absorb_pads,
     "before absorb_scales: a pad between two convolutions would hide one from the other"),
    ("absorb_transposes", transposes.absorb_transposes, "anywhere: no other pass depends on it"),
    ("fuse_attention", fuse_attention,
     "after lower_quantised, which lowers integer products and softmax; before masks and scales are fused"),
    ("split_elementwise", split_elementwise.split_elementwise,
     "before absorb_scales and fuse_epilogues, which then find the convolutions before a concat"),
    ("absorb_scales", absorb.absorb_scales, "before mul and add are fused into elementwise expressions"),
    ("drop_dead_channels", dead_channels.drop_dead_channels,
     "after absorb_scales, and before operators are fused"),
    ("sum_in_float32", fixed_point_sums.sum_in_float32, "before sums of 8-bit integers are fused"),
    ("fuse_elementwise", elementwise.fuse_elementwise,
     "before fuse_epilogues, so that x*sigmoid(x) is one expression of one operand"),
    ("tabulate", lookup_tables.tabulate,
     "after fuse_elementwise, on complete chains; before chains become epilogues"),
    ("fuse_epilogues", epilogue.fuse_epilogues,
     "after tabulate: the remaining chain after a producer is its epilogue"),
    ("use_ranges", value_ranges.use_ranges,
     "on complete expressions: an operator later in a chain may need a limit that an earlier one sets"),
    ("settle_known_sums", constant_channels.settle_known_sums, "on final epilogues, before narrow_numbers"),
    ("rescale_in_float32", rescale_real.rescale_in_float32,
     "on final epilogues, whose limits bound the sums that matter"),
    ("narrow_numbers", narrow.narrow_numbers, "on final epilogues: the passes before expect int32 constants"),
    ("absorb_shuffles", channel_shuffle.absorb_shuffles,
     "after fuse_elementwise, when all elementwise operators are of one kind"),
    ("share_positions", positions.share_positions, "after passes that fuse, since they leave alone what is read twice"),
    ("compute_in_float16", float16.compute_in_float16, "last: the other passes look for float32"),
)


def before_layouts(graph: Graph, context: Context, on_pass: Callable[[str, Graph], None] = lambda name, graph: None) \
        -> Graph:
    """Returns the graph after all passes that precede the choice of layouts. on_pass: receives the name of each pass
    and the graph after it."""
    for name, run, _reason in PIPELINE:
        graph = run(graph, context)
        on_pass(name, graph)
    return graph
