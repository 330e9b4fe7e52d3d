# SPDX-License-Identifier: Apache-2.0
"""Emits attention as products, sums and softmax, for ONNX's and com.microsoft's operators.

Queries are [B, N, S, H], keys [B, M, T, H] and values [B, M, T, V], with M = N or a divisor of it; masks are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..rules import axis_of
from ..tensor.move import emit_slice

#: The number that is added to masked scores, unless an attribute gives another one.
LOWEST = float(np.finfo(np.float32).min)


def heads(node: OnnxNode, value: str, count: int) -> str:
    """Splits heads: [B, S, N * H] → [B, N, S, H]."""
    batch, length, hidden = node.type_of(value).shape
    if count < 1 or (isinstance(hidden, int) and hidden % count):
        raise ShapeError(f"{hidden} numbers do not make {count} heads")
    (value,) = node.emit("reshape", (value,), shape=(batch, length, count, hidden // count))
    return node.emit("transpose", (value,), perm=(0, 2, 1, 3))[0]


def joined(node: OnnxNode, value: str) -> str:
    """Joins heads: [B, N, S, H] → [B, S, N * H]."""
    batch, count, length, width = node.type_of(value).shape
    (value,) = node.emit("transpose", (value,), perm=(0, 2, 1, 3))
    return node.emit("reshape", (value,), shape=(batch, length, count * width))[0]


def parts(node: OnnxNode, value: str, axis: int, sizes: Sequence[Dim]) -> list[str]:
    """Splits an axis into consecutive slices of these extents."""
    axis = axis_of(axis, node.type_of(value).rank)
    result: list[str] = []
    start: Dim = 0
    for size in sizes:
        result.append(emit_slice(node, value, axis, start, start + size))
        start = start + size
    return result


def appended(node: OnnxNode, past: str, value: str) -> str:
    """Concatenates past keys or values and new ones."""
    if not past or node.type_of(past).shape[2] == 0:
        return value
    return node.emit("concat", (past, value), axis=2)[0]


def count_up(node: OnnxNode, extent: Dim, *shape: Dim) -> str:
    """Emits 0, 1, … below `extent` as int32, [extent] or reshaped to `shape`."""
    if isinstance(extent, int):
        node.require_budget(extent)
        value = node.constant(np.arange(extent, dtype=np.int32))
    else:
        (ones,) = node.emit("expand", (node.constant(np.ones(1, np.int32)),), shape=(extent,))
        (value,) = node.emit("cumsum", (ones,), axis=0, exclusive=True, reverse=False)
    return node.emit("reshape", (value,), shape=shape)[0] if shape else value


def unless(node: OnnxNode, allowed: str, value: float, dtype: str) -> str:
    """Emits 0 where a bool tensor is true, else the value, as floats of the same shape."""
    return emit_broadcast(node, "where", (allowed, number(node, 0, dtype), number(node, value, dtype)))[0]


def up_to(node: OnnxNode, last: str, total: Dim, window: int = 0) -> str:
    """Emits for each of `total` keys whether it is among the last `window` (0: all) keys up to key `last` [..., S,
    1]."""
    keys = count_up(node, total)
    (allowed,) = emit_broadcast(node, "less_equal", (keys, last))
    if window > 0:
        (first,) = emit_broadcast(node, "sub", (last, number(node, window, "int32")))
        (allowed,) = node.emit("logical_and", (allowed, *emit_broadcast(node, "greater", (keys, first))))
    return allowed


def causal(node: OnnxNode, length: Dim, total: Dim, dtype: str) -> str:
    """Emits a causal mask [S, T]; the last query is aligned with the last key."""
    (last,) = emit_broadcast(node, "add", (count_up(node, length, length, 1), *_extent(node, total - length)))
    return unless(node, up_to(node, last, total), LOWEST, dtype)


def _extent(node: OnnxNode, extent: Dim) -> tuple[str, ...]:
    if isinstance(extent, int):
        return (number(node, extent, "int32"),)
    return cast_to(node, node.extent(extent), "int32")


def within(node: OnnxNode, mask: str, batch: Dim, length: Dim, past: Dim, total: Dim) -> str:
    """Converts a mask of ONNX Runtime to [B or 1, 1, S or 1, T] of bool; "" if it allows all.

    [B]: the number of valid keys. [2B]: the ends, then the starts of the ranges of valid keys. [B, T], [B, S, T],
    [B, 1, most, most]: 1 for valid keys.
    """
    shape = node.type_of(mask).shape
    rank = len(shape)
    if rank == 1:
        keys = count_up(node, total)
        if shape[0] == batch:
            ends = node.emit("reshape", cast_to(node, mask, "int32"), shape=(batch, 1, 1, 1))
            return emit_broadcast(node, "less", (keys, *ends))[0]
        if shape[0] != batch * 2:
            raise ShapeError(f"mask {node.type_of(mask)} for a batch of {batch}")
        (both,) = node.emit("reshape", cast_to(node, mask, "int32"), shape=(2 * batch, 1, 1, 1))
        ends, starts = ((part,) for part in parts(node, both, 0, (batch, batch)))
        return node.emit("logical_and", (*emit_broadcast(node, "less", (keys, *ends)),
                                 *emit_broadcast(node, "greater_equal", (keys, *starts))))[0]
    if rank == 2 and shape[1] == 1 and total != 1:
        return ""
    if rank == 4:
        mask = parts(node, emit_slice(node, mask, 2, past, past + length), 3, (total,))[0]
    if rank == 2:
        (mask,) = node.emit("reshape", (mask,), shape=(shape[0], 1, 1, shape[1]))
    if rank == 3:
        (mask,) = node.emit("reshape", (mask,), shape=(shape[0], 1, *shape[1:]))
    (mask,) = cast_to(node, mask, "int32")
    return emit_broadcast(node, "greater", (mask, number(node, 0, "int32")))[0]


def attend(node: OnnxNode, q: str, k: str, v: str, scale: float, masks: Sequence[str], softcap: float = 0.0,
           sink: str = "") -> str:
    """Emits softmax(scale * q kᵀ + masks) v, [B, N, S, V].

    softcap: scores become softcap * tanh(scores / softcap) before masks are added. sink: an additional score
    [.., N, 1, 1] in the softmax, without a value (attention sink).
    """
    (batch, count, length, width), (_, groups, total, _) = node.type_of(q).shape, node.type_of(k).shape
    if count % groups or width != node.type_of(k).shape[3]:
        raise ShapeError(f"queries {node.type_of(q)} for keys {node.type_of(k)}")
    dtype, grouped = node.type_of(q).dtype, (batch, groups, count // groups * length)
    if groups != count:
        (q,) = node.emit("reshape", (q,), shape=(*grouped, width))
    (scores,) = node.emit("matmul", (q, k), trans_a=0, trans_b=1)
    if groups != count:
        (scores,) = node.emit("reshape", (scores,), shape=(batch, count, length, total))
    (scores,) = node.emit("mul", (scores, number(node, scale, dtype)))
    if softcap:
        (scores,) = node.emit("tanh", node.emit("mul", (scores, number(node, 1 / softcap, dtype))))
        (scores,) = node.emit("mul", (scores, number(node, softcap, dtype)))
    for mask in filter(None, masks):
        (scores,) = emit_broadcast(node, "add", (scores, mask))
    if sink:
        (sink,) = node.emit("expand", (sink,), shape=(batch, count, length, 1))
        (scores,) = node.emit("concat", (scores, sink), axis=3)
    (weights,) = node.emit("softmax", (scores,), axis=3)
    if sink:
        (weights,) = parts(node, weights, 3, (total,))
    if groups != count:
        (weights,) = node.emit("reshape", (weights,), shape=(*grouped, total))
    (y,) = node.emit("matmul", (weights, v), trans_a=0, trans_b=0)
    return node.emit("reshape", (y,), shape=(batch, count, length, node.type_of(v).shape[3]))[0]


def rotated(node: OnnxNode, x: str, cos: str, sin: str, interleaved: bool) -> str:
    """Applies rotary embeddings: rotates pairs of the first elements of each head of x [B, N, S, H] by angles with
    these cosines and sines [B, 1, S, pairs]."""
    *outer, width = node.type_of(x).shape
    pairs = node.type_of(cos).shape[3]
    rotary_part, *rest = parts(node, x, 3, (2 * pairs, width - 2 * pairs)) if 2 * pairs != width else [x]
    if interleaved:
        (rotary_part,) = node.emit("reshape", (rotary_part,), shape=(*outer, pairs, 2))
        a, b = (node.emit("reshape", (part,), shape=(*outer, pairs))[0] for part in parts(node, rotary_part, 4, (1, 1)))
    else:
        a, b = parts(node, rotary_part, 3, (pairs, pairs))
    (first,) = node.emit("sub", (*node.emit("mul", (a, cos)), *node.emit("mul", (b, sin))))
    (second,) = node.emit("add", (*node.emit("mul", (a, sin)), *node.emit("mul", (b, cos))))
    if interleaved:
        pair = [node.emit("reshape", (part,), shape=(*outer, pairs, 1))[0] for part in (first, second)]
        (rotary_part,) = node.emit("concat", pair, axis=4)
        (rotary_part,) = node.emit("reshape", (rotary_part,), shape=(*outer, 2 * pairs))
        return node.emit("concat", (rotary_part, *rest), axis=3)[0] if rest else rotary_part
    return node.emit("concat", (first, second, *rest), axis=3)[0]


def angles(node: OnnxNode, cache: str, positions: str) -> str:
    """Gathers rows of a table [most, pairs] at positions [B or 1, S]: [B or 1, 1, S, pairs]."""
    (rows,) = node.emit("gather", (cache, positions), axis=0)
    batch, length, pairs = node.type_of(rows).shape
    return node.emit("reshape", (rows,), shape=(batch, 1, length, pairs))[0]
