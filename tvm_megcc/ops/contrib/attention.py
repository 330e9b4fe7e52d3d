# SPDX-License-Identifier: Apache-2.0
"""Imports attention and rotary embeddings of the domain com.microsoft as simpler operators (ops/nn/attention.py).

Source: ONNX Runtime's ContribOperators.md. Shapes: B batch, S queries, T keys, N heads, M heads of keys and values if
several heads of queries share them, H the extent of a head.
"""

from __future__ import annotations

import math

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, dim_max
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import given, no_attributes, no_operands, number
from ..nn.attention import (
    MASKED_SCORE,
    additive_mask,
    apply_rotary,
    arange_int32,
    attend,
    bool_mask,
    causal_mask,
    concat_past,
    extent_int32,
    gather_angles,
    keys_up_to,
    merge_heads,
    split_axis,
    split_heads,
)
from ..tensor.scatter import put_rows
from .fused import contrib
from .quantized import integer_product


def _scale(node: OnnxNode, width: Dim) -> float:
    """Returns attribute `scale` or, if it is 0, 1 / sqrt(width), with the extent of a head as width."""
    if not isinstance(width, int):
        raise MegccError("has heads of an extent that is not known")
    return float(node.attr("scale", 0.0)) or 1 / math.sqrt(width)


def _onnx_runtime_mask(node: OnnxNode, mask: str, batch: Dim, length: Dim, past: Dim, total: Dim) -> str:
    """Emits ONNX Runtime's mask as numbers to add to scores, [B or 1, 1, S or 1, T]; "" if there is none or it allows
    all keys. length: the number of queries. past, total: the numbers of keys before them, and of all."""
    allowed = bool_mask(node, mask, batch, length, past, total) if mask else ""
    return additive_mask(node, allowed, float(node.attr("mask_filter_value", -10000.0)), "float32") if allowed else ""


def _self_attention(node: OnnxNode, projected: str, *, mask: int, past: int, bias: str = "") -> tuple[str, ...]:
    """Emits self-attention of queries, keys and values that are concatenated to [B, S, 3 * hidden].

    Args:
        projected: the concatenated value.
        mask, past: the numbers of the node's operands mask and past [2, B, N, past, H].
        bias: a value that is added to the scores.

    Returns the result [B, S, N * H] and, if the node has two outputs, keys and values [2, B, N, T, H].
    """
    no_attributes(node, "do_rotary", "past_present_share_buffer")
    batch, length, hidden = node.type_of(projected).shape
    sizes = tuple(node.attr("qkv_hidden_sizes", ())) or (hidden // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != hidden or sizes[0] != sizes[1]:
        raise ShapeError(f"parts of {sizes} of {hidden} numbers")
    q, k, v = (split_heads(node, part, node.attr("num_heads")) for part in split_axis(node, projected, 2, sizes))
    past_length: Dim = 0
    if node.has(past):
        past_length = node.type(past).shape[3]
        shape = node.type(past).shape[1:]
        k_past, v_past = (node.emit("reshape", (part,), shape=shape)[0]
                          for part in split_axis(node, node.inputs[past], 0, (1, 1)))
        k, v = concat_past(node, k_past, k), concat_past(node, v_past, v)
    total = past_length + length
    masks = [bias, _onnx_runtime_mask(node, given(node, mask), batch, length, past_length, total)]
    if node.attr("unidirectional", 0):
        masks.append(causal_mask(node, length, total, "float32"))
    y = attend(node, q, k, v, _scale(node, node.type_of(q).shape[3]), masks)
    results = [merge_heads(node, y)]
    if node.num_outputs > 1:
        both = [node.emit("reshape", (value,), shape=(1, *node.type_of(value).shape))[0] for value in (k, v)]
        results += node.emit("concat", both, axis=0)
    return tuple(results)


@contrib("Attention")
def attention(node: OnnxNode) -> tuple[str, ...]:
    """Imports Attention. Operands: input [B, S, C], weights [C, 3 * hidden], bias [3 * hidden], mask, past
    [2, B, N, past, H], attention bias, which is added to the scores."""
    no_operands(node, 6, what="past_sequence_length")
    if not node.has(1):
        raise MegccError("has no weights")
    (projected,) = node.emit("matmul", node.inputs[:2], trans_a=0, trans_b=0)
    if node.has(2):
        (projected,) = emit_broadcast(node, "add", (projected, node.inputs[2]))
    return _self_attention(node, projected, mask=3, past=4, bias=given(node, 5))


@contrib("QAttention")
def quantised_attention(node: OnnxNode) -> tuple[str, ...]:
    """Imports QAttention. Operands: input int8 or uint8 [B, S, C], weights int8 or uint8 [C, 3 * hidden], bias float32,
    scale of input, scale of weights, mask, zero point of input, zero point of weights, past."""
    projected = integer_product(node, *node.inputs[:2], *node.inputs[3:5], given(node, 6), given(node, 7),
                                bias=node.inputs[2])
    return _self_attention(node, projected, mask=5, past=8)


def _split_packed(node: OnnxNode, index: int) -> list[str]:
    """Splits operand `index`, [B, L, N, parts, H], into its parts, [B, N, L, H] each."""
    batch, length, count, several, width = node.type(index).shape
    (value,) = node.emit("transpose", (node.inputs[index],), perm=(3, 0, 2, 1, 4))
    return [node.emit("reshape", (part,), shape=(batch, count, length, width))[0]
            for part in split_axis(node, value, 0, (1,) * several)]


def _add_bias(node: OnnxNode, value: str, bias: str) -> str:
    """Adds a bias [N * H] to heads [B, N, S, H]."""
    if not bias:
        return value
    _, count, _, width = node.type_of(value).shape
    return emit_broadcast(node, "add", (value, *node.emit("reshape", (bias,), shape=(count, 1, width))))[0]


@contrib("MultiHeadAttention")
def multi_head_attention(node: OnnxNode) -> tuple[str, ...]:
    """Imports MultiHeadAttention. Operands: query [B, S, N * H], or with packed keys and values [B, S, N, 3, H]; key
    and value [B, T, N * H] or [B, N, T, H], or packed in key [B, T, N, 2, H]; bias; mask; attention bias, which is
    added to the scores; past keys; past values. Results: [B, S, N * H]; keys and values [B, N, T, H]."""
    no_operands(node, 8, 9, what="of buffers that runs share")
    count = node.attr("num_heads")
    if node.type(0).rank == 5:
        q, k, v = _split_packed(node, 0)
    else:
        q = split_heads(node, node.inputs[0], count)
        if node.has(1) and node.type(1).rank == 5:
            k, v = _split_packed(node, 1)
        else:
            k, v = (node.inputs[index] if node.type(index).rank == 4 else split_heads(node, node.inputs[index], count)
                    for index in (1, 2))
    if node.has(3):
        widths = [node.type_of(value).shape[1] * node.type_of(value).shape[3] for value in (q, k, v)]
        q, k, v = (_add_bias(node, value, bias) for value, bias in
                   zip((q, k, v), split_axis(node, node.inputs[3], 0, widths), strict=True))
    past_length = node.type(6).shape[2] if node.has(6) else 0
    k, v = concat_past(node, given(node, 6), k), concat_past(node, given(node, 7), v)
    (batch, _, length, width), total = node.type_of(q).shape, node.type_of(k).shape[2]
    masks = [given(node, 5), _onnx_runtime_mask(node, given(node, 4), batch, length, past_length, total)]
    if node.attr("unidirectional", 0):
        masks.append(causal_mask(node, length, total, "float32"))
    if node.num_outputs > 3:
        raise MegccError("gives its scores, which is not supported")
    return merge_heads(node, attend(node, q, k, v, _scale(node, width), masks)), k, v


@contrib("RotaryEmbedding")
def rotary_embedding(node: OnnxNode) -> tuple[str, ...]:
    """Imports RotaryEmbedding. Operands: x [B, S, hidden] or [B, N, S, H]; positions [B, S], or the first position [1];
    cosines and sines [positions, pairs]. The result has the shape of x."""
    no_attributes(node, "is_packed_batching")
    x, heads_are_joined, pairs = node.inputs[0], node.type(0).rank == 3, node.type(2).shape[1]
    if heads_are_joined:
        count = node.attr("num_heads", 0) or node.type(0).shape[2] // (2 * pairs)
        x = split_heads(node, x, count)
    length = node.type_of(x).shape[2]
    positions = node.inputs[1]
    if node.type(1).rank < 2:
        (first,) = node.emit("reshape", cast_to(node, positions, "int32"), shape=(1, 1))
        (positions,) = emit_broadcast(node, "add", (arange_int32(node, length, 1, length), first))
    y = apply_rotary(node, x, *(gather_angles(node, node.inputs[index], positions) for index in (2, 3)),
                     bool(node.attr("interleaved", 0)))
    return (merge_heads(node, y) if heads_are_joined else y,)


@contrib("GroupQueryAttention")
def group_query_attention(node: OnnxNode) -> tuple[str, ...]:
    """Imports GroupQueryAttention. Operands: query [B, S, N * H] (or packed query, key and value), key and value
    [B, S, M * H], past keys and past values [B, M, capacity, H], index of the last key of each sequence [B], length of
    the longest one, cosines, sines, positions, attention bias, head sink [N].

    If the buffer of past keys has capacity, new keys are written after the last valid one. Results: [B, S, N * H]; keys
    and values [B, M, capacity, H].
    """
    no_attributes(node, "sliding_window_cache", "qk_output")
    if {node.attr("k_quant_type", "NONE"), node.attr("v_quant_type", "NONE")} != {"NONE"}:
        raise MegccError("has quantised keys, which is not supported")
    no_operands(node, 12, 13, 14, 15, 16, what="of quantised keys, norms of queries or their lengths")
    count, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    q, k, v = _split_query_key_value(node, count, groups)
    batch, _, length, width = node.type_of(q).shape
    (last,) = node.emit("reshape", cast_to(node, node.inputs[5], "int32"), shape=(batch, 1))
    (past_length,) = emit_broadcast(node, "add", (last, extent_int32(node, 1 - length)))
    # A sequence that is padded at its end to the S queries of a prompt has no past.
    (past_length,) = emit_broadcast(node, "max", (past_length, number(node, 0, "int32")))
    (row_indices,) = emit_broadcast(node, "add", (past_length, arange_int32(node, length, 1, length)))
    if node.attr("do_rotary", 0):
        positions = given(node, 9) or row_indices
        cos_sin = [gather_angles(node, node.inputs[index], positions) for index in (7, 8)]
        q, k = (apply_rotary(node, value, *cos_sin, bool(node.attr("rotary_interleaved", 0))) for value in (q, k))
    if is_full := _is_full(node, length):
        k, v = (concat_past(node, node.inputs[index], value) for index, value in ((3, k), (4, v)))
    else:
        k, v = (_append_to_past(node, given(node, index), value, past_length) for index, value in ((3, k), (4, v)))
    total, window = node.type_of(k).shape[2], max(node.attr("local_window_size", -1), 0)
    masks = [given(node, 10)]
    if node.attr("causal", 1):
        (ends,) = node.emit("reshape", (row_indices,), shape=(batch, 1, length, 1))
    else:
        (ends,) = node.emit("reshape", (last,), shape=(batch, 1, 1, 1))
    if window or not is_full or length != 1:  # else the one query attends to all keys
        allowed = keys_up_to(node, ends, total, window)
        masks.append(additive_mask(node, allowed, MASKED_SCORE, "float32"))
    sink = ""
    if node.has(11):
        (sink,) = node.emit("reshape", cast_to(node, node.inputs[11], "float32"), shape=(1, count, 1, 1))
    elif node.attr("smooth_softmax", 0):
        sink = node.constant(np.zeros((1, count, 1, 1), np.float32))
    dtype = node.type_of(q).dtype
    if dtype != "float32":  # of 16 bits: ONNX Runtime computes in float32, too
        wide = "widen_cache" if is_full and dtype == "float16" else ""
        q, *caches = (*cast_to(node, q, "float32"), *(
            node.emit(wide, (value,))[0] if wide else cast_to(node, value, "float32")[0] for value in (k, v)))
        masks = [mask and cast_to(node, mask, "float32")[0] for mask in masks]
    else:
        caches = [k, v]
    y = attend(node, q, *caches, _scale(node, width), masks, float(node.attr("softcap", 0.0)), sink)
    return cast_to(node, merge_heads(node, y), dtype)[0], k, v


def _split_query_key_value(node: OnnxNode, count: int, groups: int) -> list[str]:
    """Returns queries [B, N, S, H], keys and values [B, M, S, H] of a GroupQueryAttention. count, groups: N and M."""
    if node.has(1):
        return [split_heads(node, node.inputs[index], number_) for index, number_ in enumerate((count, groups, groups))]
    hidden = node.type(0).shape[2]
    if count < 1 or groups < 1 or hidden % (count + 2 * groups):
        raise ShapeError(f"{hidden} numbers do not make {count} heads and {groups} of keys and values")
    return split_axis(node, split_heads(node, node.inputs[0], count + 2 * groups), 1, (count, groups, groups))


def _is_full(node: OnnxNode, length: Dim) -> bool:
    """Returns whether all rows of the past of a GroupQueryAttention are known to be valid. length: of the new rows."""
    if not (node.has(3) and node.has(4) and node.is_known(5)):
        return False
    capacity, last = node.type(3).shape[2], node.dims(5)
    return last is not None and all(index == capacity + length - 1 for index in last)


def _append_to_past(node: OnnxNode, past: str, new: str, before: str) -> str:
    """Writes new keys or values [B, M, S, H] into the past ones [B, M, capacity, H], from position `before` [B, 1] of
    each sequence on. Returns [B, M, total, H]; rows after the new ones are unspecified.

    If total is the capacity, a run whose new keys do not fit fails.
    """
    if not past or node.type_of(past).shape[2] == 0:
        return new
    (batch, _, length, _), capacity = node.type_of(new).shape, node.type_of(past).shape[2]
    longest = 6  # the operand with the length of the longest sequence, new keys included
    if node.is_known(longest):
        total = dim_max(capacity, node.dims(longest)[0])
    else:
        declared = node.declared_shape(output=1)  # of the keys
        total = capacity + length if declared is None else declared[2]
    if total == capacity:
        (row_index,) = emit_broadcast(node, "add", (before, arange_int32(node, length, 1, length)))
        (row_index,) = node.emit("reshape", (row_index,), shape=(batch, 1, length, 1))
        return put_rows(node, past, row_index, new, 2)
    return _gather_past_and_new(node, past, new, before, total)


def _gather_past_and_new(node: OnnxNode, past: str, new: str, before: str, total: Dim) -> str:
    """Gathers `total` rows of each sequence from the concatenation of past rows [B, M, capacity, H] and new rows
    [B, M, S, H]: row i is row i of the past or, for the S rows from `before` [B, 1] on, row capacity + i - before."""
    (batch, count, length, width), capacity = node.type_of(new).shape, node.type_of(past).shape[2]
    (both,) = node.emit("concat", (past, new), axis=2)
    row_index = arange_int32(node, total)
    (distance,) = emit_broadcast(node, "sub", (row_index, before))
    (new_row_index,) = emit_broadcast(node, "add", (distance, extent_int32(node, capacity)))
    (is_new,) = node.emit("logical_and", (
        *emit_broadcast(node, "greater_equal", (distance, number(node, 0, "int32"))),
        *emit_broadcast(node, "less", (distance, extent_int32(node, length)))))
    (row_index,) = emit_broadcast(node, "where", (is_new, new_row_index, row_index))
    # Unspecified rows after the new ones must be rows that exist.
    (row_index,) = emit_broadcast(node, "min", (row_index, extent_int32(node, capacity + length - 1)))
    (row_index,) = node.emit("reshape", (row_index,), shape=(batch, 1, total))
    # A gather from all heads flattened, in which each head has capacity + length rows.
    (rows,) = emit_broadcast(node, "mul", (arange_int32(node, batch * count, batch, count, 1),
                                           extent_int32(node, capacity + length)))
    (rows,) = emit_broadcast(node, "add", (rows, row_index))
    (flat,) = node.emit("reshape", (both,), shape=(batch * count * (capacity + length), width))
    return node.emit("gather", (flat, rows), axis=0)[0]
