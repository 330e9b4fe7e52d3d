# SPDX-License-Identifier: Apache-2.0
"""Evaluates integer tensors over shape symbols, through the arithmetic that models do on shapes.

`Shape → Gather → Mul → Concat → Reshape` with a symbolic batch: each value is a numpy array of `Dim` objects, on which
numpy's own indexing and operators work. Values of other operators are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from ...ir.dims import Dim, SymbolicDim, dim_max, dim_min, floordiv, limits
from ...ir.graph import Attrs, is_open
from ...ir.types import TensorType
from ...ops.base import operator

#: The most elements of a value that is evaluated as a shape.
_LARGEST = 64
#: Results from this magnitude on are dropped: int64 would overflow, and Python's integers would grow without limit.
_TOO_LARGE = 2**63


def shape_value(kind: str, attrs: Attrs, values: Sequence[np.ndarray | None], types: Sequence[TensorType | None],
                result: TensorType) -> np.ndarray | None:
    """Returns the operator's result as an array of `Dim`, None if it is not known or not an integer tensor."""
    if kind == "shape":
        dims = np.empty(len(result_dims := types[0].shape[attrs.start:attrs.end]), object)
        dims[:] = result_dims
        return dims
    if kind == "size":
        return _scalar(types[0].size)
    follow = _FOLLOWED.get(kind)
    size = result.static_size
    if follow is None or size is None or size > _LARGEST or np.dtype(result.dtype).kind not in "iub":
        return None
    if any(value is None for value, type_ in zip(values, types, strict=True) if type_ is not None):
        return None
    computed = follow(kind, attrs, values)
    if computed is None or any(isinstance(item, int) and abs(item) >= _TOO_LARGE for item in computed.flat):
        return None
    return computed.reshape(result.shape)


def follows(kind: str) -> bool:
    """Whether `shape_value` can evaluate the operator."""
    return kind in _FOLLOWED


def _scalar(value: Dim) -> np.ndarray:
    array = np.empty((), object)
    array[()] = value
    return array


def _moved(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """Calls the operator's own numpy implementation. It works on `Dim` objects too, since it only moves elements."""
    return None if is_open(attrs) else np.asarray(operator(kind).compute(attrs, *values)[0], object)


def _pairwise(function: Callable[[Dim, Dim], Dim]) -> Callable:
    def follow(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
        lhs, rhs = np.broadcast_arrays(*values)
        items = [function(_plain(a), _plain(b)) for a, b in zip(lhs.flat, rhs.flat, strict=True)]
        if any(item is None for item in items):
            return None
        result = np.empty(len(items), object)
        result[:] = items
        return result.reshape(lhs.shape)
    return follow


def _plain(item) -> Dim:
    return item if isinstance(item, SymbolicDim) else int(item)


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Divides as ONNX does, rounding towards zero. For symbolic extents, which are not negative, that is `//`."""
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if b else None
    return floordiv(a, b) if b != 0 else None


def _equal(a: Dim, b: Dim) -> int | None:
    """Returns whether two extents are equal, None if it depends on the symbols. Models compare extents with -1 and 0;
    an input's extent is neither, since it is at least 1 unless its range begins at 0."""
    if a == b:
        return 1
    low, high = limits(a - b)
    return 0 if (low is not None and low > 0) or (high is not None and high < 0) else None


def _chosen(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
    condition, lhs, rhs = np.broadcast_arrays(*values)
    return np.where(condition.astype(bool), lhs, rhs)


def _reduced(function: Callable[[Dim, Dim], Dim], *first: Dim) -> Callable:
    """Returns an evaluator that reduces a vector to one number. first: the result for an empty vector."""
    def follow(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
        if values[0].ndim != 1 or not (values[0].size or first):
            return None
        return _scalar(reduce(function, map(_plain, values[0].flat), *first))
    return follow


_FOLLOWED = {
    **dict.fromkeys(("gather", "concat", "slice", "reshape", "transpose", "expand", "tile"), _moved),
    "cast": lambda kind, attrs, values: values[0],
    "add": _pairwise(lambda a, b: a + b),
    "sub": _pairwise(lambda a, b: a - b),
    "mul": _pairwise(lambda a, b: a * b),
    "div": _pairwise(_quotient),
    "min": _pairwise(dim_min),
    "max": _pairwise(dim_max),
    "equal": _pairwise(_equal),
    "where": _chosen,
    "reduce_prod": _reduced(lambda a, b: a * b, 1),
    "reduce_sum": _reduced(lambda a, b: a + b, 0),
    "reduce_min": _reduced(dim_min),
    "reduce_max": _reduced(dim_max),
}
