# SPDX-License-Identifier: Apache-2.0
"""Attention as one operator (Vaswani et al. 2017), into which passes/fusion/attention/ fuses two matrix products with
a softmax between them, so that the scores need no memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, f32, register
from ..cache_rows import CACHE_DTYPES, RING_BLOCK, numbers_shape, stored_rows, widened_rows

#: The axes of queries, keys, values and the result, a letter each: b batch, n head, s query, t key, h element of a
#: query or key, v element of a value.
Q, K, V, Y = "bnsh", "bnth", "bntv", "bnsv"

#: The stored axes of keys and values have other extents than n and t: m is the number of their heads, each of which
#: several query heads may share; r is the capacity in keys.
_CACHE_AXES = str.maketrans("nt", "mr")


@register
class Attention(Operator):
    """softmax(scale * q kᵀ + mask) v, for each batch element (b) and head (n), with queries s and keys t.

    Operands: q float32, queries of h elements; k, keys of h elements; v, for each key a value of v elements; mask
    float32 [b or 1, n or 1, 1 or s / groups, t], which is repeated for each of `groups` groups of consecutive queries.
    k and v are float32, or rows of a KV cache of float16 or int8 (ops/cache_rows.py), whose rows are the last axis.
    Result: float32, with the axes `y_axes`.

    Attributes: `scale`. `q_axes`, `k_axes`, `v_axes`, `y_axes`: the axes of operands and result in their order, a
    letter each, such as "bsnh" for the result of a matrix product; b and n may be missing. `q_at`, `k_at`, `v_at`: the
    index along a further axis "c" of an operand, such as one that holds queries, keys and values together. `causal`:
    query s attends to keys up to s + (keys - queries). `groups`: as of mask. `shared`: the number of query heads that
    share keys and values. `seen`: the number of valid keys, from the first; None for all. `wraps`: keys and values are
    ring buffers of a multiple of RING_BLOCK rows (ops/cache_rows.py), so there may be more keys than rows; the mask
    hides those that later ones have overwritten. `blind`: a query whose mask is -inf for all keys gives zeros, not NaN.
    """

    kind = "attention"
    operands = ("q", "k", "v", "mask?")

    @staticmethod
    def infer(attrs: Attrs, q: TensorType, k: TensorType, v: TensorType,
              mask: TensorType | None = None) -> tuple[TensorType, ...]:
        extents = extents_of(attrs, (q, k, v))
        if not math.isfinite(attrs.scale):
            raise ShapeError(f"scale {attrs.scale} is no number to multiply with")
        if attrs.causal:
            require_at_most(extents["s"], extents["t"], f"queries {q} without any keys of {k}")
        if mask is not None:
            if mask.rank != 4 or mask.dtype != "float32":
                raise ShapeError(f"mask {mask} is not float32 of four axes")
            for dim, axis in zip((*mask.shape[:2], mask.shape[3]), "bnt", strict=True):
                if dim != 1 or axis == "t":
                    require_equal(dim, extents[axis], f"mask {mask} for queries {q} and keys {k}")
            if mask.shape[2] != 1:
                require_equal(mask.shape[2] * attrs.groups, extents["s"], f"mask {mask} for {extents['s']} queries")
        if sorted(attrs.y_axes) != sorted(set(attrs.q_axes) - {"h", "c"} | {"v"}):
            raise ShapeError(f"a result of axes {attrs.y_axes} for queries of {attrs.q_axes}")
        return (TensorType("float32", tuple(extents[axis] for axis in attrs.y_axes)),)

    @staticmethod
    def compute(attrs: Attrs, q: np.ndarray, k: np.ndarray, v: np.ndarray,
                mask: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        k, v = (array if array.dtype == np.float32 else widened_rows(array) for array in (k, v))
        q, k, v = (_transpose_operand(array, attrs[f"{name}_axes"], axes, attrs[f"{name}_at"]).astype(np.float64)
                   for name, array, axes in (("q", q, Q), ("k", k, K), ("v", v, V)))
        rows = np.arange(attrs.seen) % k.shape[2] if attrs.wraps else slice(attrs.seen)
        k, v = (np.repeat(array[:, :, rows], attrs.shared, 1) for array in (k, v))
        queries, keys = q.shape[2], k.shape[2]
        with np.errstate(all="ignore"):
            scores = (q * attrs.scale) @ k.swapaxes(2, 3)
            if mask is not None:
                scores = scores + np.tile(mask, (1, 1, max(queries, 1) // max(mask.shape[2], 1), 1))
            if attrs.causal:
                scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
            powers = np.exp(scores - scores.max(3, keepdims=True, initial=-np.inf))
            y = powers / powers.sum(3, keepdims=True) @ v
        if attrs.blind:
            y[(scores == -np.inf).all(3)] = 0
        missing = tuple(Y.index(axis) for axis in "bn" if axis not in attrs.y_axes)
        remaining = [axis for axis in Y if axis in attrs.y_axes]
        y = y.squeeze(missing).transpose([remaining.index(axis) for axis in attrs.y_axes])
        return (np.ascontiguousarray(y, np.float32),)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        extents = extents_of(attrs, inputs[:3])
        return extents["b"] * extents["n"] * extents["s"] * extents["t"] * (extents["h"] + extents["v"])


def extents_of(attrs: Attrs, operands: Types) -> Mapping[str, Dim]:
    """Returns the extent of each axis by its letter, for operands q, k and v; 1 for a missing b or n. There are also m,
    the heads of keys and values, and r, their capacity in keys.

    Raises:
        ShapeError: if operands contradict each other, or lack an axis.
    """
    extents: dict[str, Dim] = {}
    if attrs.shared < 1:
        raise ShapeError(f"{attrs.shared} heads share keys")
    for name, type_, wanted in zip("qkv", operands, (Q, K, V), strict=True):
        axes, at = attrs[f"{name}_axes"], attrs[f"{name}_at"]
        dtypes = ("float32",) if name == "q" else CACHE_DTYPES
        if type_.dtype not in dtypes or type_.rank != len(axes) or len(set(axes)) != len(axes) \
                or not set(wanted[2:]) <= set(axes) <= {*wanted, "c"}:
            raise ShapeError(f"operand {name} {type_} has not the axes {axes}")
        stored_axes = axes if name == "q" else axes.translate(_CACHE_AXES)
        if type_.dtype == "int8" and axes[-1] != wanted[-1]:
            raise ShapeError(f"rows of operand {name} {type_} are not its last axis: {axes}")
        for axis, dim in zip(stored_axes, numbers_shape(type_.shape, type_.dtype), strict=True):
            require_equal(extents.setdefault(axis, dim), dim, f"operand {name} {type_} for axes {axes}")
        if "c" in axes:
            require_at_most(at + 1, extents["c"], f"index {at} of {type_}")
    missing = {frozenset("bn") - set(attrs[f"{name}_axes"]) for name in "qkv"}
    if len(missing) != 1:
        raise ShapeError("operands are not of the same heads")
    extents = {"b": 1, "n": 1, "m": 1, **extents}
    require_equal(extents["m"] * attrs.shared, extents["n"], f"{attrs.shared} heads of {extents['n']} for one of keys")
    extents["t"] = extents["r"]
    if attrs.wraps and (attrs.seen is None or not isinstance(extents["r"], int) or extents["r"] % RING_BLOCK):
        raise ShapeError(f"a ring buffer of {extents['r']} rows")
    if attrs.seen is not None and not attrs.wraps:
        require_at_most(attrs.seen, extents["r"], f"{attrs.seen} keys of {extents['r']}")
    if attrs.seen is not None:
        extents["t"] = attrs.seen
    return extents


def _transpose_operand(array: np.ndarray, axes: str, wanted: str, at: int) -> np.ndarray:
    """Returns an array of these axes as one of the axes `wanted`, of extent 1 where it has none. at: the index along
    axis "c", which is removed."""
    if "c" in axes:
        array, axes = array.take(at, axes.index("c")), axes.replace("c", "")
    array = array.transpose([axes.index(axis) for axis in wanted if axis in axes])
    return np.expand_dims(array, tuple(index for index, axis in enumerate(wanted) if axis not in axes))


def _case(s: int, t: int, h: int, v: int, axes: str = "bnsh bnth bntv bnsv", mask: tuple[int, ...] = (), b: int = 1,
          n: int = 2, scale: float = 0.25, causal: bool = False, at: tuple[int, int, int] = (0, 0, 0),
          groups: int = 1, value: np.ndarray | None = None, shared: int = 1, capacity: int = 0,
          blind: bool = False, cache: str = "", wraps: bool = False) -> Case:
    sizes = {"b": b, "n": n, "s": s, "t": capacity or t, "h": h, "v": v, "c": 3}
    *operands, y_axes = axes.split()
    attrs = {"scale": scale, "causal": causal, "groups": groups, "y_axes": y_axes, "shared": shared,
             "seen": t if capacity else None, "blind": blind, "wraps": wraps}
    for name, operand, index in zip("qkv", operands, at, strict=True):
        attrs |= {f"{name}_axes": operand, f"{name}_at": index}
    shapes = [tuple(sizes[axis] // (shared if axis == "n" and index else 1) for axis in operand)
              for index, operand in enumerate(operands)]
    inputs = (*(f32(*shape) for shape in shapes), f32(*mask) if mask else None)
    values = {} if value is None else {3: value}
    if cache:
        draw = np.random.default_rng(t)
        k, v = (stored_rows(draw.normal(size=shape).astype(np.float32), cache) for shape in shapes[1:])
        inputs, values = (inputs[0], (k.shape, cache), (v.shape, cache), inputs[3]), {**values, 1: k, 2: v}
    return Case(inputs, attrs, values=values)


def _window_mask(s: int, t: int, window: int) -> np.ndarray:
    """Returns a mask [1, 1, s, t] for the last s of t tokens: each attends to itself and `window` - 1 tokens before
    it."""
    distance = np.arange(t - s, t)[:, None] - np.arange(t)
    return np.where((distance >= 0) & (distance < window), 0, np.finfo(np.float32).min)[None, None]


def _window_case(s: int, t: int, window: int, capacity: int = RING_BLOCK, cache: str = "") -> Case:
    """Returns a case with keys and values in ring buffers of `capacity` rows."""
    return _case(s, t, 16, 20, n=4, shared=2, mask=(1, 1, s, t), value=_window_mask(s, t, window), capacity=capacity,
                 cache=cache, wraps=True)


def _blocking_mask(*shape: int, last: float = float(np.finfo(np.float32).min)) -> np.ndarray:
    """Returns a mask of this shape that excludes the first keys with -inf. last: the mask of the last query."""
    mask = np.zeros(shape)
    mask[..., :shape[3] * 3 // 5], mask[..., -1, :] = -np.inf, last
    return mask


Attention.cases = (
    _case(5, 7, 8, 12),
    _case(1, 37, 33, 20, b=2),
    _case(3, 300, 16, 5, mask=(1, 1, 1, 300)),
    _case(37, 37, 32, 32, "bsnh btnh btnv bsnv", (2, 1, 1, 37), b=2, n=3),
    _case(33, 70, 24, 40, "bsnh bnht btnv bsnv", (1, 2, 33, 70)),
    _case(19, 19, 16, 16, "bscnh btcnh btcnv bsnv", at=(0, 1, 2)),
    _case(40, 40, 8, 17, causal=True),
    _case(6, 600, 20, 9, "nsh nth ntv nsv", causal=True),
    _case(1, 1100, 64, 64, mask=(1, 1, 1, 1100), scale=0.125),
    _case(8, 11, 4, 3, mask=(1, 2, 2, 11), groups=4),
    _case(4, 530, 16, 16, mask=(1, 1, 4, 530), value=_blocking_mask(1, 1, 4, 530)),
    _case(35, 530, 4, 4, mask=(1, 1, 35, 530), value=_blocking_mask(1, 1, 35, 530)),
    _case(2, 3, 1, 1, "sh th tv sv"),
    _case(64, 260, 3, 70, "bhsn bnth bntv bnsv", scale=1.0),
    _case(1, 37, 16, 24, b=2, n=6, shared=3, capacity=50, mask=(2, 1, 1, 37)),
    _case(9, 300, 12, 8, "bsnh btnh btnv bsnv", n=4, shared=2, capacity=301),
    _case(4, 5, 8, 8, "nsh nth ntv nsv", capacity=64, causal=True),
    _case(2, 2, 8, 8, mask=(1, 1, 2, 2)),
    _case(4, 530, 16, 16, mask=(1, 1, 4, 530), value=_blocking_mask(1, 1, 4, 530, last=-np.inf), blind=True),
    _case(35, 270, 4, 20, mask=(1, 1, 35, 270), value=_blocking_mask(1, 1, 35, 270, last=-np.inf), blind=True),
    *(_case(1, 300, 64, 64, n=6, shared=3, capacity=310, scale=0.125, cache=cache) for cache in ("float16", "int8")),
    *(_case(37, 41, 19, 21, b=2, n=4, shared=2, capacity=43, mask=(1, 1, 37, 41), cache=cache)
      for cache in ("float16", "int8")),
    *(_case(3, 20, 8, 5, "bsnh btnh btnv bsnv", causal=True, capacity=22, cache=cache)
      for cache in ("float16", "int8")),
    _window_case(1, 100, 5), _window_case(1, 700, 1), _window_case(3, 513, 250), _window_case(37, 530, 200),
    _window_case(1, 1030, 256, cache="float16"), _window_case(40, 1100, 400, capacity=512, cache="int8"),
)
