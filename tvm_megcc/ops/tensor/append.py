# SPDX-License-Identifier: Apache-2.0
"""Operators on KV caches, which passes/streaming/kv_cache.py emits: writing rows after the valid ones of a tensor with
spare capacity, or into a ring buffer, and reading a stored cache as float32."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, f32, register
from ..cache_rows import CACHE_DTYPES, numbers_shape, stored_rows, widened_rows


def _case(shape: tuple[int, ...], count: int, axis: int, at: int, dtype: str = "float32",
          wraps: bool = False) -> Case:
    """Returns a case with `count` rows for a tensor of this shape and dtype."""
    rows = tuple(count if i == axis else extent for i, extent in enumerate(shape))
    return Case(((shape, dtype), (rows, dtype), ((1,), "int64")), {"axis": axis, "wraps": wraps, "sinks": 0},
                values={2: np.array([at])})


def _stored_case(shape: tuple[int, ...], count: int, axis: int, at: int, dtype: str, wraps: bool = False) -> Case:
    """Returns a case with `count` rows of float32 for a cache of another dtype. The numbers at index 0 of the last axis
    but one are zero or, if `count` is 1, large."""
    draw = np.random.default_rng(len(shape) + axis)
    rows = draw.normal(size=[count if i == axis else extent for i, extent in enumerate(shape)]).astype(np.float32)
    rows[..., 0, :] *= 0 if count > 1 else 1000
    x = stored_rows(draw.normal(size=shape).astype(np.float32), dtype)
    return Case(((x.shape, dtype), f32(*rows.shape), ((1,), "int64")), {"axis": axis, "wraps": wraps, "sinks": 0},
                values={0: x, 1: rows, 2: np.array([at])})


def _sinks_case(shape: tuple[int, ...], count: int, sinks: int, at: int, dtype: str = "float32", has_first: bool = True
                ) -> Case:
    """Returns a case with `count` rows of float32 for a ring buffer [batch, heads, rows, n] after the first rows."""
    draw = np.random.default_rng(at)
    rows, first, x = (draw.normal(size=(*shape[:2], extent, shape[3])).astype(np.float32)
                      for extent in (count, sinks, shape[2]))
    x = stored_rows(x, dtype)
    inputs = ((x.shape, dtype), f32(*rows.shape), ((1,), "int64"), None, f32(*first.shape))
    return Case(inputs if has_first else inputs[:3], {"axis": 2, "wraps": True, "sinks": sinks},
                values={0: x, 1: rows, 2: np.array([at]), **({4: first} if has_first else {})})


def _batch_case(shape: tuple[int, ...], count: int, axis: int, at: tuple[int, ...], new_rows: tuple[int, ...],
                wraps: bool = False) -> Case:
    """Returns a case with a first index and a number of rows for each element of a batch."""
    rows = tuple(count if i == axis else extent for i, extent in enumerate(shape))
    batch = ((len(at),), "int64")
    return Case((f32(*shape), f32(*rows), batch, batch), {"axis": axis, "wraps": wraps, "sinks": 0},
                values={2: np.array(at), 3: np.array(new_rows)})


@register
class Append(Operator):
    """y = x with y[…, at + i, …] = rows[…, i, …] along attribute `axis`. A run whose rows do not fit fails. With
    attribute `wraps`, x is a ring buffer: indices are modulo its extent, and a run fails only for a negative `at`. With
    attribute `sinks`, only the rows after the first `sinks` are a ring buffer (ops/cache_rows.py).

    Operands: x; rows, of x's shape except along the axis; at int64 [1], the first index. In a batch of caches, at is
    int64 [x.shape[0]], an index for each element of the batch, and new_rows, of the same type, has the numbers of
    its rows that are written, from its first. `first`, of the shape of `sinks` rows, replaces the first rows of x after
    that. The result has x's type. rows have x's dtype or, for a cache of float16
    or int8 (ops/cache_rows.py), float32; then they are converted. The axis of an int8 cache is not the last one.
    """

    kind = "append"
    operands = ("x", "rows", "at", "new_rows?", "first?")
    cases = (_case((2, 3, 8, 4), 2, 2, 6), _case((1, 5, 7, 3), 1, 2, 0), _case((2, 9), 4, 1, 3, "float16"),
             _case((6, 5), 6, 0, 0, "int8"),
             _stored_case((2, 3, 8, 19), 2, 2, 5, "float16"), _stored_case((4, 9), 2, 1, 0, "float16"),
             _stored_case((1, 3, 6, 64), 3, 2, 3, "int8"), _stored_case((2, 5, 7), 1, 1, 2, "int8"),
             *(_case((2, 5, 3), 3, 1, at, wraps=True) for at in (0, 3, 4, 12, 1 << 40)),
             _stored_case((2, 3, 8, 19), 8, 2, 21, "float16", wraps=True),
             _stored_case((2, 3, 8, 19), 5, 2, 7, "int8", wraps=True),
             _batch_case((3, 2, 6, 4), 3, 2, (0, 3, 5), (3, 0, 1)),
             _batch_case((3, 6, 4), 3, 1, (21, 4, 7), (3, 3, 0), wraps=True),
             *(_sinks_case((1, 2, 9, 5), 4, 3, at) for at in (0, 2, 7, 11, 1 << 40)),
             _sinks_case((1, 2, 9, 5), 6, 3, 10, has_first=False), _sinks_case((1, 2, 8, 1), 1, 1, 8, "float16"),
             _sinks_case((1, 3, 8, 19), 4, 4, 14, "int8"))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, rows: TensorType, at: TensorType,
              new_rows: TensorType | None = None, first: TensorType | None = None) -> tuple[TensorType, ...]:
        stored = x.dtype != rows.dtype
        if stored and (rows.dtype != "float32" or x.dtype not in CACHE_DTYPES
                       or (x.dtype == "int8" and attrs.axis == x.rank - 1)):
            raise ShapeError(f"rows {rows} along axis {attrs.axis} of {x}")
        if at.dtype != "int64" or rows.rank != x.rank or (at.size != 1 if new_rows is None else (
                attrs.axis == 0 or attrs.sinks or not at == new_rows == TensorType("int64", (x.shape[0],)))):
            raise ShapeError(f"rows {rows} at {at} of {x}")
        if attrs.sinks < 0 or (attrs.sinks and not attrs.wraps) or (first is not None and first != rows.with_shape(
                attrs.sinks if axis == attrs.axis else dim for axis, dim in enumerate(rows.shape))):
            raise ShapeError(f"first rows {first} of {x}, which keeps {attrs.sinks}")
        for axis, (extent, count) in enumerate(zip(numbers_shape(x.shape, x.dtype) if stored else x.shape, rows.shape,
                                                    strict=True)):
            if axis == attrs.axis:
                require_at_most(count, extent - attrs.sinks, f"rows {rows} for {x}")
            else:
                require_equal(count, extent, f"rows {rows} for {x}")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, rows: np.ndarray, at: np.ndarray,
                new_rows: np.ndarray | None = None, first: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        result, stored = x.copy(), rows if rows.dtype == x.dtype else stored_rows(rows, x.dtype.name)
        if new_rows is None:
            _write_rows(result, stored, attrs.axis, int(at.reshape(())), attrs.wraps, attrs.sinks)
            if first is not None:
                first = first if first.dtype == x.dtype else stored_rows(first, x.dtype.name)
                _write_rows(result, first, attrs.axis, 0, wraps=False)
            return (result,)
        for element, new, start, count in zip(result, stored, at, new_rows, strict=True):
            if not 0 <= count <= rows.shape[attrs.axis]:
                raise ShapeError(f"{count} of {rows.shape[attrs.axis]} rows")
            _write_rows(element, np.take(new, range(count), attrs.axis - 1), attrs.axis - 1, int(start), attrs.wraps)
        return (result,)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        if attrs.wraps or len(inputs) > 3:
            return {}
        x, rows = inputs[:2]
        return {2: (0, x.shape[attrs.axis] - rows.shape[attrs.axis])}  # type: ignore[union-attr]

    @staticmethod
    def overwrites(attrs: Attrs) -> bool:
        return True


def _write_rows(x: np.ndarray, rows: np.ndarray, axis: int, first: int, wraps: bool, sinks: int = 0) -> None:
    """Writes rows along an axis of x, from index `first` on. wraps, sinks: as of `Append`."""
    capacity, count = x.shape[axis], rows.shape[axis]
    if not 0 <= first <= (first if wraps else capacity - count):
        raise ShapeError(f"{count} rows do not fit from {first} on into {capacity}")
    indices = first + np.arange(count)
    if wraps:
        indices = np.where(indices < sinks, indices, sinks + (indices - sinks) % (capacity - sinks))
    x[(slice(None),) * axis + (indices,)] = rows


def _widen_case(shape: tuple[int, ...], dtype: str) -> Case:
    x = stored_rows(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32), dtype)
    return Case(((x.shape, dtype),), values={0: x})


@register
class WidenCache(Operator):
    """Converts a KV cache of float16 [..., n] or int8 [..., n + 4] (ops/cache_rows.py) to float32 [..., n]."""

    kind = "widen_cache"
    operands = ("x",)
    cases = (_widen_case((2, 3, 5, 19), "float16"), _widen_case((2, 3, 5, 64), "int8"), _widen_case((7, 5), "int8"))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in ("float16", "int8") or x.rank < 1:
            raise ShapeError(f"{x} is no cache of float16 or int8")
        return (TensorType("float32", numbers_shape(x.shape, x.dtype)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (widened_rows(x),)
