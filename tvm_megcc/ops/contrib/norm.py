# SPDX-License-Identifier: Apache-2.0
"""Imports normalisations of com.microsoft, which ONNX Runtime's optimiser fuses with a preceding sum or embedding.

Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

import numpy as np

from ..base import OnnxNode, decomposes
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import given, onnx_operator, onnx_operators
from ..math.reduce import reduce
from ..nn.norm import divide_by_rms
from .fused import channels_first, channels_last, contrib


def _add_all(node: OnnxNode, value: str, *others: str) -> str:
    """Emits the sum of values; "" is left out."""
    for other in filter(None, others):
        (value,) = emit_broadcast(node, "add", (value, other))
    return value


@contrib("SkipLayerNormalization")
def skip_layer_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports SkipLayerNormalization, the LayerNormalization of input + skip + bias. Operands: input, skip, gamma,
    beta, bias. The sum is the fourth result."""
    total = _add_all(node, node.inputs[0], node.inputs[1], given(node, 4))
    results = onnx_operators(node, "LayerNormalization", total, node.inputs[2], given(node, 3), axis=-1,
                             epsilon=node.attr("epsilon", 1e-12))
    return (*results, total)


def _rms_norm(node: OnnxNode, value: str, scale: str, axis: int, epsilon: float) -> tuple[str, str]:
    """Emits an RMS normalisation over the axes from `axis` on, times the scale. Returns its result and 1 / the root
    mean square.

    epsilon: the default of the node's attribute of this name.
    """
    normalised, inverse = divide_by_rms(node, value, axis, node.attr("epsilon", epsilon))
    (normalised,) = cast_to(node, normalised, node.type_of(value).dtype)
    return emit_broadcast(node, "mul", (normalised, scale))[0], inverse


@decomposes("SimplifiedLayerNormalization")
def simplified_layer_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports SimplifiedLayerNormalization, an RMS normalisation, which ONNX Runtime writes in ONNX's own domain."""
    return _rms_norm(node, node.inputs[0], node.inputs[1], node.attr("axis", -1), 1e-5)


contrib("SimplifiedLayerNormalization")(simplified_layer_norm)


@contrib("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports SkipSimplifiedLayerNormalization, the RMS normalisation of input + skip + bias. Operands: input, skip,
    gamma, bias. Results: the normalised value; 1 / the root mean square, twice, since there is no mean; the sum."""
    total = _add_all(node, node.inputs[0], node.inputs[1], given(node, 3))
    value, inverse = _rms_norm(node, total, node.inputs[2], -1, 1e-12)
    return value, inverse, inverse, total


@contrib("EmbedLayerNormalization")
def embed_layer_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports EmbedLayerNormalization, the LayerNormalization of the sum of word, position and segment embeddings.

    Operands: word ids [B, S], segment ids [B, S], tables of words, positions and segments [rows, hidden], gamma, beta,
    mask [B, S], position ids [B, S]. Results: [B, S, hidden]; the number of words in the mask, int32 [B], 0 without a
    mask as in ONNX Runtime; the sum.
    """
    batch, length = node.type(0).shape
    words = onnx_operator(node, "Gather", node.inputs[2], node.inputs[0], axis=0)
    if node.has(8):
        positions = onnx_operator(node, "Gather", node.inputs[3], node.inputs[8], axis=0)
    else:
        hidden = node.type(3).shape[1]
        positions = onnx_operator(node, "Slice", node.inputs[3], node.constant(np.array([0])),
                                  node.constant(np.array([length])), node.constant(np.array([0])))
        (positions,) = node.emit("reshape", (positions,), shape=(1, length, hidden))
    total = _add_all(node, words, positions)
    if node.has(1):
        total = _add_all(node, total, onnx_operator(node, "Gather", node.inputs[4], node.inputs[1], axis=0))
    value = onnx_operator(node, "LayerNormalization", total, node.inputs[5], node.inputs[6], axis=-1,
                          epsilon=node.attr("epsilon", 1e-12))
    if node.num_outputs < 2:
        return (value,)
    if node.has(7):
        (count,) = reduce(node, "reduce_sum", *cast_to(node, node.inputs[7], "int32"), (1,), keepdims=False)
    else:
        (count,) = node.emit("expand", (node.constant(np.zeros(1, np.int32)),), shape=(batch,))
    return value, count, total


@contrib("GroupNorm", "SkipGroupNorm")
def fused_group_norm(node: OnnxNode) -> tuple[str, ...]:
    """Imports GroupNorm and SkipGroupNorm, a group normalisation with an optional SiLU. Operands: X [N, …, C] or, with
    attribute channels_last 0, [N, C, …]; gamma; beta; and what is added to X first: skip, of X's shape or [N, C], and
    bias [C]. Results: the normalised value, the sum."""
    is_channels_last = bool(node.attr("channels_last", 1))
    rank = node.type(0).rank
    value = node.inputs[0]
    if node.has(3):
        skip = node.inputs[3]
        if node.type(3).rank == 2:
            ones = (1,) * (rank - 2)
            n, c = node.type(3).shape
            (skip,) = node.emit("reshape", (skip,), shape=(n, *ones, c) if is_channels_last else (n, c, *ones))
        bias = given(node, 4)
        if bias and not is_channels_last:
            (bias,) = node.emit("reshape", (bias,), shape=(-1, *(1,) * (rank - 2)))
        value = _add_all(node, value, skip, bias)
    total = value
    if is_channels_last:
        value = channels_first(node, value)
    value = onnx_operator(node, "GroupNormalization", value, *node.inputs[1:3], num_groups=node.attr("groups"),
                          epsilon=node.attr("epsilon", 1e-5))
    if node.attr("activation", 0):
        (value,) = node.emit("silu", (value,))
    return channels_last(node, value) if is_channels_last else value, total
