# SPDX-License-Identifier: Apache-2.0
"""Shape rules that several families share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..ir.dims import Dim, ceildiv, dim_max, dim_min, dim_same
from ..ir.graph import Attrs
from ..ir.types import TensorType

#: Slice bounds from here on mean the end of the axis.
FAR = 2**31 - 1


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        ShapeError: where the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes counted from the front, sorted; each may be named once."""
    result = tuple(sorted(axis_of(int(axis), rank) for axis in axes))
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {tuple(axes)} name one axis twice")
    return result


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that operands of an elementwise operator broadcast to, by numpy's rule.

    Of two different symbolic extents neither is known to be 1: they have to be the same when they are known.
    """
    rank = max(map(len, shapes))
    result: list[Dim] = []
    for axis in range(rank):
        extent: Dim = 1
        for shape in shapes:
            index = axis - (rank - len(shape))
            other = shape[index] if index >= 0 else 1
            if extent == 1:
                extent = other
            elif isinstance(extent, int) and isinstance(other, int):
                if other not in (1, extent):
                    raise ShapeError(f"shapes {' and '.join(map(shape_text, shapes))} do not broadcast")
            elif isinstance(other, int):
                extent = other if other != 1 else extent
            elif not isinstance(extent, int):
                extent = dim_same(extent, other)
        result.append(extent)
    return tuple(result)


def same_dtype(*types: TensorType | None) -> str:
    """The element type that all operands have."""
    dtypes = {type_.dtype for type_ in types if type_ is not None}
    if len(dtypes) != 1:
        raise ShapeError(f"operands have different element types: {', '.join(sorted(dtypes))}")
    return dtypes.pop()


def shape_text(shape: Sequence[Dim]) -> str:
    return f"[{','.join(map(str, shape))}]"


def saturate(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Converts as the C code does: floats to integers saturate and NaN becomes 0, integers wrap."""
    dtype = np.dtype(dtype)
    if array.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = (whole > float(limits.min)) & (whole < float(limits.max))
        converted = np.where(inside, whole, 0).astype(dtype)
        converted[whole >= float(limits.max)] = limits.max
        converted[whole <= float(limits.min)] = limits.min
        return converted
    return array.astype(dtype)


def slice_range(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """First index and number of elements of start:end:step on an axis, by ONNX's clamping rules."""
    def clamped(index: Dim, low: Dim, high: Dim) -> Dim:
        if isinstance(index, int) and index < 0:
            index = index + extent if index > -FAR else low
        if isinstance(index, int) and index >= FAR:
            return high
        if isinstance(index, int) and isinstance(high, int):
            return max(low, min(index, high))
        # A symbolic extent is at least 1; a symbolic index is taken to lie on the axis.
        return dim_min(index, high) if isinstance(index, int) and index > 1 else index

    if step > 0:
        first, last = clamped(start, 0, extent), clamped(end, 0, extent)
        count = ceildiv(last - first, step)
    else:
        first, last = clamped(start, 0, extent - 1), clamped(end, -1, extent - 1)
        count = ceildiv(first - last, -step)
    return first, dim_max(count, 0) if isinstance(count, int) else count


def slice_axes(attrs: Attrs, shape: Sequence[Dim]) -> dict[int, tuple[Dim, Dim, int]]:
    """axis -> (first index, number of elements, step) of a slice."""
    if any(step == 0 for step in attrs.steps):
        raise ShapeError("a step is 0")
    return {axis: (*slice_range(shape[axis], start, end, step), step)
            for axis, start, end, step in zip(attrs.axes, attrs.starts, attrs.ends, attrs.steps, strict=True)}
