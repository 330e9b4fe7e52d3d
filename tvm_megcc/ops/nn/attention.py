# SPDX-License-Identifier: Apache-2.0
"""Emits attention (Vaswani et al. 2017) as products, sums and softmax: a library for the importers of com.microsoft's
operators, of GGUF models and of the TFLite front end. passes/fusion/attention/ fuses the result.

Shapes: B batch, N heads of queries, M heads of keys and values (N, or a divisor of it: grouped-query attention),
S queries, T keys, H elements of a query and a key, V elements of a value. Queries are [B, N, S, H], keys [B, M, T, H],
values [B, M, T, V]. Masks are numbers that are added to the scores [B, N, S, T].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..rules import axis_of, emit_arange
from ..tensor.move import emit_slice

#: The number that a mask adds to the scores of keys that a query must not attend to.
MASKED_SCORE = float(np.finfo(np.float32).min)


def split_heads(node: OnnxNode, value: str, count: int) -> str:
    """Emits a value [B, S, N * H] as heads [B, N, S, H]. count: N.

    Raises:
        ShapeError: if the last extent is no multiple of N.
    """
    batch, length, hidden = node.type_of(value).shape
    if count < 1 or (isinstance(hidden, int) and hidden % count):
        raise ShapeError(f"{hidden} numbers do not make {count} heads")
    (value,) = node.emit("reshape", (value,), shape=(batch, length, count, hidden // count))
    return node.emit("transpose", (value,), perm=(0, 2, 1, 3))[0]


def merge_heads(node: OnnxNode, value: str) -> str:
    """Emits heads [B, N, S, H] as one value [B, S, N * H]."""
    batch, count, length, width = node.type_of(value).shape
    (value,) = node.emit("transpose", (value,), perm=(0, 2, 1, 3))
    return node.emit("reshape", (value,), shape=(batch, length, count * width))[0]


def split_axis(node: OnnxNode, value: str, axis: int, sizes: Sequence[Dim]) -> list[str]:
    """Emits consecutive slices of these extents along an axis."""
    axis = axis_of(axis, node.type_of(value).rank)
    result: list[str] = []
    start: Dim = 0
    for size in sizes:
        result.append(emit_slice(node, value, axis, start, start + size))
        start = start + size
    return result


def concat_past(node: OnnxNode, past: str, value: str) -> str:
    """Emits past keys or values [B, M, past, H], "" for none, and new ones [B, M, S, H] as [B, M, past + S, H]."""
    if not past or node.type_of(past).shape[2] == 0:
        return value
    return node.emit("concat", (past, value), axis=2)[0]


def arange_int32(node: OnnxNode, extent: Dim, *shape: Dim) -> str:
    """Emits int32 0, 1, …, extent - 1, as [extent] or reshaped to `shape`."""
    value = emit_arange(node, extent, "int32")
    return node.emit("reshape", (value,), shape=shape)[0] if shape else value


def additive_mask(node: OnnxNode, allowed: str, value: float, dtype: str) -> str:
    """Emits the mask of a bool tensor: 0 where it is true, else `value`, in a type of floats."""
    return emit_broadcast(node, "where", (allowed, number(node, 0, dtype), number(node, value, dtype)))[0]


def keys_up_to(node: OnnxNode, last: str, total: Dim, window: int = 0) -> str:
    """Emits for each query and each of `total` keys whether the key is among the last `window` keys up to the query's
    key `last`: bool [..., S, T].

    last: int32 [..., S, 1], the index of the last key that the query may attend to. window: 0 for no limit.
    """
    keys = arange_int32(node, total)
    (allowed,) = emit_broadcast(node, "less_equal", (keys, last))
    if window > 0:
        (first,) = emit_broadcast(node, "sub", (last, number(node, window, "int32")))
        (allowed,) = node.emit("logical_and", (allowed, *emit_broadcast(node, "greater", (keys, first))))
    return allowed


def causal_mask(node: OnnxNode, length: Dim, total: Dim, dtype: str) -> str:
    """Emits a causal mask [S, T] in a type of floats. The last query attends to all keys, each earlier one to one key
    less."""
    (last,) = emit_broadcast(node, "add", (arange_int32(node, length, length, 1), extent_int32(node, total - length)))
    return additive_mask(node, keys_up_to(node, last, total), MASKED_SCORE, dtype)


def extent_int32(node: OnnxNode, extent: Dim) -> str:
    """Emits an extent, which may be symbolic, as int32 []."""
    return number(node, extent, "int32") if isinstance(extent, int) else cast_to(node, node.extent(extent), "int32")[0]


def bool_mask(node: OnnxNode, mask: str, batch: Dim, length: Dim, past: Dim, total: Dim) -> str:
    """Converts a mask of ONNX Runtime to bool [B or 1, 1, S or 1, T], true for valid keys; returns "" if all are valid.

    Args:
        mask: one of these forms. [B]: the number of valid keys. [2B]: the ends, then the starts of the ranges of valid
            keys. [B, T], [B, S, T] or [B, 1, longest, longest]: 1 for valid keys.
        batch, length, total: the extents B, S and T.
        past: the number of keys before those of the first query.

    Raises:
        ShapeError: if the mask has another form.
    """
    shape = node.type_of(mask).shape
    rank = len(shape)
    if rank == 1:
        keys = arange_int32(node, total)
        if shape[0] == batch:
            ends = node.emit("reshape", cast_to(node, mask, "int32"), shape=(batch, 1, 1, 1))
            return emit_broadcast(node, "less", (keys, *ends))[0]
        if shape[0] != batch * 2:
            raise ShapeError(f"mask {node.type_of(mask)} for a batch of {batch}")
        (both,) = node.emit("reshape", cast_to(node, mask, "int32"), shape=(2 * batch, 1, 1, 1))
        ends, starts = ((part,) for part in split_axis(node, both, 0, (batch, batch)))
        return node.emit("logical_and", (*emit_broadcast(node, "less", (keys, *ends)),
                                 *emit_broadcast(node, "greater_equal", (keys, *starts))))[0]
    if rank == 2 and shape[1] == 1 and total != 1:  # a dummy mask, which ONNX Runtime ignores
        return ""
    if rank == 4:
        mask = split_axis(node, emit_slice(node, mask, 2, past, past + length), 3, (total,))[0]
    if rank == 2:
        (mask,) = node.emit("reshape", (mask,), shape=(shape[0], 1, 1, shape[1]))
    if rank == 3:
        (mask,) = node.emit("reshape", (mask,), shape=(shape[0], 1, *shape[1:]))
    (mask,) = cast_to(node, mask, "int32")
    return emit_broadcast(node, "greater", (mask, number(node, 0, "int32")))[0]


def attend(node: OnnxNode, q: str, k: str, v: str, scale: float, masks: Sequence[str], softcap: float = 0.0,
           sink: str = "") -> str:
    """Emits softmax(scale * q kᵀ + masks) v, [B, N, S, V].

    Args:
        masks: values that are added to the scores; "" is left out.
        softcap: if not 0, scores become softcap * tanh(scores / softcap) before masks are added.
        sink: an additional score [1, N, 1, 1] in the softmax that has no value (attention sink); "" for none.

    Raises:
        ShapeError: if the heads of queries and keys do not fit.
    """
    (batch, count, length, width), (_, groups, total, _) = node.type_of(q).shape, node.type_of(k).shape
    if count % groups or width != node.type_of(k).shape[3]:
        raise ShapeError(f"queries {node.type_of(q)} for keys {node.type_of(k)}")
    # The queries of the heads that share keys become queries of one head, so that one product has all of them.
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
        (weights,) = split_axis(node, weights, 3, (total,))
    if groups != count:
        (weights,) = node.emit("reshape", (weights,), shape=(*grouped, total))
    (y,) = node.emit("matmul", (weights, v), trans_a=0, trans_b=0)
    return node.emit("reshape", (y,), shape=(batch, count, length, node.type_of(v).shape[3]))[0]


def apply_rotary(node: OnnxNode, x: str, cos: str, sin: str, interleaved: bool) -> str:
    """Emits rotary position embeddings (Su et al. 2021): rotates pairs of the first 2 * pairs elements of each head of
    x [B, N, S, H].

    Args:
        cos, sin: cosines and sines of the angles, [B, 1, S, pairs].
        interleaved: whether a pair is two neighbours; else it is elements i and pairs + i.
    """
    if node.type_of(x).dtype != "float64":
        return node.emit("rotary", (x, cos, sin), interleaved=interleaved)[0]
    *outer, width = node.type_of(x).shape
    pairs = node.type_of(cos).shape[3]
    rotary_part, *rest = split_axis(node, x, 3, (2 * pairs, width - 2 * pairs)) if 2 * pairs != width else [x]
    if interleaved:
        (rotary_part,) = node.emit("reshape", (rotary_part,), shape=(*outer, pairs, 2))
        a, b = (node.emit("reshape", (element,), shape=(*outer, pairs))[0]
                for element in split_axis(node, rotary_part, 4, (1, 1)))
    else:
        a, b = split_axis(node, rotary_part, 3, (pairs, pairs))
    (first,) = node.emit("sub", (*node.emit("mul", (a, cos)), *node.emit("mul", (b, sin))))
    (second,) = node.emit("add", (*node.emit("mul", (a, sin)), *node.emit("mul", (b, cos))))
    if interleaved:
        columns = [node.emit("reshape", (part,), shape=(*outer, pairs, 1))[0] for part in (first, second)]
        (rotary_part,) = node.emit("concat", columns, axis=4)
        (rotary_part,) = node.emit("reshape", (rotary_part,), shape=(*outer, 2 * pairs))
        return node.emit("concat", (rotary_part, *rest), axis=3)[0] if rest else rotary_part
    return node.emit("concat", (first, second, *rest), axis=3)[0]


def rotary_angles(node: OnnxNode, positions: str, inverse_frequencies: np.ndarray) -> list[str]:
    """Emits cosines and sines of rotary angles, float32 [1, 1, S, pairs] each, of positions int64 [S], which may be any
    up to 2^53. inverse_frequencies: the angles of position 1 in radians, [pairs].

    Angles are computed in float64 as parts of a revolution, so their error is 2^-53 of a position's number of
    revolutions.
    """
    (length,) = node.type_of(positions).shape
    (x,) = node.emit("reshape", cast_to(node, positions, "float64"), shape=(1, 1, length, 1))
    (x,) = emit_broadcast(node, "mul", (x, node.constant(inverse_frequencies.astype(np.float64) / (2 * np.pi))))
    (x,) = node.emit("sub", (x, *node.emit("floor", (x,))))
    (angles,) = emit_broadcast(node, "mul", (x, number(node, 2 * np.pi, "float64")))
    return [cast_to(node, node.emit(function, (angles,))[0], "float32")[0] for function in ("cos", "sin")]


def stored_tokens(node: OnnxNode, rows: Dim, total: str, capacity: int, sinks: int) -> str:
    """Emits the numbers of the tokens in the first rows of a cache with attention sinks (ops/cache_rows.py), int64
    [rows]. total: int64 [1], the number of tokens that were appended."""
    row = emit_arange(node, rows, "int64")
    (later,) = emit_broadcast(node, "sub", (*emit_broadcast(node, "sub", (total, number(node, 1, "int64"))), row))
    (age,) = emit_broadcast(node, "mod", (later, number(node, capacity - sinks, "int64")))
    (token,) = node.emit("sub", (*node.emit("add", (row, later)), age))
    return emit_broadcast(node, "where", (*emit_broadcast(node, "less", (row, number(node, sinks, "int64"))), row,
                                          token))[0]


def stored_positions(node: OnnxNode, rows: Dim, total: str, capacity: int, sinks: int) -> str:
    """Emits the positions of the first rows of a cache with attention sinks among its tokens, int32 [rows].
    Arguments are those of `stored_tokens`."""
    token = stored_tokens(node, rows, total, capacity, sinks)
    (gone,) = emit_broadcast(node, "sub", (total, number(node, capacity, "int64")))
    (gone,) = emit_broadcast(node, "max", (gone, number(node, 0, "int64")))
    (is_sink,) = emit_broadcast(node, "less", (token, number(node, sinks, "int64")))
    (position,) = emit_broadcast(node, "where", (is_sink, token, *emit_broadcast(node, "sub", (token, gone))))
    return cast_to(node, position, "int32")[0]


def first_rows(node: OnnxNode, rows: int, length: Dim, past: str) -> tuple[str, str]:
    """Emits what `keep_first_rows` needs of the first `rows` rows of a cache, for a run that appends `length` rows to
    `past` ones, int64 [1].

    Returns:
        whether a row stays as it is, bool [1, 1, rows, 1], and else the new row that it becomes, int32 [rows].
    """
    row, last = emit_arange(node, rows, "int64"), node.extent(length - 1)
    (index,) = emit_broadcast(node, "sub", (row, past))
    (is_kept,) = emit_broadcast(node, "less", (row, past))
    (is_missing,) = emit_broadcast(node, "greater", (index, last))
    (index,) = emit_broadcast(node, "min", (*emit_broadcast(node, "max", (index, number(node, 0, "int64"))), last))
    (stays,) = node.emit("reshape", node.emit("logical_or", (is_kept, is_missing)), shape=(1, 1, rows, 1))
    return stays, cast_to(node, index, "int32")[0]


def keep_first_rows(node: OnnxNode, kept: str, new: str, stays: str, index: str) -> str:
    """Emits the first K rows of a cache after a run that appends `new`, [B, M, S, H]. kept: these rows before it,
    [B, M, K, H]. stays, index: as of `first_rows`."""
    if node.type_of(new).shape[2] != 1:
        (new,) = node.emit("gather", (new, index), axis=2)
    return emit_broadcast(node, "where", (stays, kept, new))[0]


def gather_angles(node: OnnxNode, cache: str, positions: str) -> str:
    """Gathers rows of a table of cosines or sines [positions, pairs] at positions [B or 1, S]. Returns
    [B or 1, 1, S, pairs]."""
    (rows,) = node.emit("gather", (cache, positions), axis=0)
    batch, length, pairs = node.type_of(rows).shape
    return node.emit("reshape", (rows,), shape=(batch, 1, length, pairs))[0]
