# SPDX-License-Identifier: Apache-2.0
"""Evaluates integer tensors over shape symbols, through the arithmetic that models do on shapes.

`Shape → Gather → Mul → Concat → Reshape` with a symbolic batch: each value is a numpy array of `Dim` objects, on which
numpy's own indexing and operators work. Values of other operators are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from ...ir.dims import Dim, SymbolicDim, dim_max, dim_min, floordiv
from ...ir.extent_bounds import limits
from ...ir.graph import Attrs, is_open
from ...ir.types import TensorType
from ...ops.base import operator

#: The most elements of a value that is evaluated as a shape, so that larger integer tensors cost no time.
_MAX_ELEMENTS = 64
#: Results from this magnitude on are dropped: int64 would overflow, and Python's integers would grow without limit.
_INT64_LIMIT = 2**63


#: Computes the result of an operator from its kind, its attributes and the values of its operands, which are arrays of
#: `Dim`. It returns None if the result is unknown.
Evaluator = Callable[[str, Attrs, Sequence[np.ndarray]], "np.ndarray | None"]


def shape_value(kind: str, attrs: Attrs, values: Sequence[np.ndarray | None], types: Sequence[TensorType | None],
                result: TensorType) -> np.ndarray | None:
    """Returns the operator's result as an array of `Dim`, None if it is not known or not an integer tensor."""
    if kind == "shape":
        dims = np.empty(len(result_dims := types[0].shape[attrs.start:attrs.end]), object)
        dims[:] = result_dims
        return dims
    if kind == "size":
        return _scalar(types[0].size)
    evaluate = _EVALUATORS.get(kind)
    size = result.static_size
    if evaluate is None or size is None or size > _MAX_ELEMENTS or np.dtype(result.dtype).kind not in "iub":
        return None
    if any(value is None for value, type_ in zip(values, types, strict=True) if type_ is not None):
        return None
    computed = evaluate(kind, attrs, values)
    if computed is None or any(isinstance(item, int) and abs(item) >= _INT64_LIMIT for item in computed.flat):
        return None
    return computed.reshape(result.shape)


def can_evaluate(kind: str) -> bool:
    """Whether `shape_value` can evaluate the operator."""
    return kind in _EVALUATORS


def _scalar(value: Dim) -> np.ndarray:
    """Returns an array of shape [] that contains the extent."""
    array = np.empty((), object)
    array[()] = value
    return array


def _computed_by_numpy(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """Calls the operator's own numpy implementation. It works on `Dim` objects too, since these operators only move
    elements."""
    return None if is_open(attrs) else np.asarray(operator(kind).compute(attrs, *values)[0], object)


def _elementwise(function: Callable[[Dim, Dim], Dim | None]) -> Evaluator:
    """Returns an evaluator that applies a function to pairs of elements, with numpy's broadcasting. The result is
    unknown if the function returns None for a pair."""
    def evaluate(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
        lhs, rhs = np.broadcast_arrays(*values)
        items = [function(_as_dim(a), _as_dim(b)) for a, b in zip(lhs.flat, rhs.flat, strict=True)]
        if any(item is None for item in items):
            return None
        result = np.empty(len(items), object)
        result[:] = items
        return result.reshape(lhs.shape)
    return evaluate


def _as_dim(item: object) -> Dim:
    """Returns an element of an object array as an extent: numpy's integers become Python's."""
    return item if isinstance(item, SymbolicDim) else int(item)


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Divides as ONNX does, rounding towards zero; None for a divisor of 0.

    A symbolic extent, which is not negative, is divided by a positive divisor as by `//`. An expression such as `n - 5`
    is taken as not negative too.
    """
    if b == 0:
        return None
    if isinstance(b, int) and b < 0:
        return 0 - _divide_by_positive(a, -b)
    return _divide_by_positive(a, b)


def _divide_by_positive(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and a < 0:
        return -(-a // b) if isinstance(b, int) else 0 - floordiv(-a, b)
    return floordiv(a, b)


def _equal(a: Dim, b: Dim) -> int | None:
    """Returns whether two extents are equal, None if it depends on the symbols. Models compare extents with -1 and 0;
    an input's extent is neither, since it is at least 1 unless its range begins at 0."""
    if a == b:
        return 1
    lower, upper = limits(a - b)
    return 0 if (lower is not None and lower > 0) or (upper is not None and upper < 0) else None


def _select(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
    condition, lhs, rhs = np.broadcast_arrays(*values)
    return np.where(condition.astype(bool), lhs, rhs)


def _reduction(function: Callable[[Dim, Dim], Dim], *initial: Dim) -> Evaluator:
    """Returns an evaluator that reduces a vector to one number. initial: the result for an empty vector, which is
    unknown without it."""
    def evaluate(kind: str, attrs: Attrs, values: Sequence[np.ndarray]) -> np.ndarray | None:
        if values[0].ndim != 1 or not (values[0].size or initial):
            return None
        return _scalar(reduce(function, map(_as_dim, values[0].flat), *initial))
    return evaluate


#: Operator -> its evaluator. Evaluators handle any shape, and assume that all operands are known.
_EVALUATORS: dict[str, Evaluator] = {
    **dict.fromkeys(("gather", "concat", "slice", "reshape", "transpose", "expand", "tile"), _computed_by_numpy),
    "cast": lambda kind, attrs, values: values[0],
    "add": _elementwise(lambda a, b: a + b),
    "sub": _elementwise(lambda a, b: a - b),
    "mul": _elementwise(lambda a, b: a * b),
    "div": _elementwise(_quotient),
    "min": _elementwise(dim_min),
    "max": _elementwise(dim_max),
    "equal": _elementwise(_equal),
    "where": _select,
    "reduce_prod": _reduction(lambda a, b: a * b, 1),
    "reduce_sum": _reduction(lambda a, b: a + b, 0),
    "reduce_min": _reduction(dim_min),
    "reduce_max": _reduction(dim_max),
}
