# SPDX-License-Identifier: Apache-2.0
"""Shape rules that several families share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..ir.conditions import require_at_most, require_equal
from ..ir.dims import Dim, ceildiv, counted, dim_max, dim_min, is_at_most, limits
from ..ir.graph import Attrs
from ..ir.narrow import narrowed, widened
from ..ir.types import DTYPES, TensorType
from .base import OnnxNode, Operator, Types

#: Slice bounds from this one on mean the end of the axis.
FAR = 2**31 - 1


def axis_of(axis: int, rank: int) -> int:
    """Returns the axis counted from the front.

    Raises:
        ShapeError: if the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor with {rank} axes")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Returns the axes counted from the front, sorted. Raises ShapeError if one is repeated."""
    result = tuple(sorted(axis_of(int(axis), rank) for axis in axes))
    if len(set(result)) != len(result):
        raise ShapeError(f"axes {tuple(axes)} name one axis twice")
    return result


def arange_along(node: OnnxNode, extent: Dim, axis: int, rank: int) -> str:
    """Emits 0, 1, … below `extent` as int64 along one axis, with extent 1 for the others; a constant if it is known."""
    if not isinstance(extent, int):
        return node.emit("reshape", (ramp(node, extent, "int64"),),
                         shape=tuple(extent if i == axis else 1 for i in range(rank)))[0]
    node.require_budget(extent)
    return node.constant(np.arange(extent).reshape([-1 if i == axis else 1 for i in range(rank)]))


def ramp(node: OnnxNode, count: Dim, dtype: str) -> str:
    """Emits 0, 1, … below an extent."""
    (ones,) = node.emit("expand", (node.constant(np.ones(1, np.dtype(dtype))),), shape=(count,))
    return node.emit("cumsum", (ones,), axis=0, exclusive=True, reverse=False)[0]


def require_on_axes(indices: np.ndarray, extents: Sequence[Dim]) -> None:
    """Raises ShapeError for an index that is out of bounds.

    extents: that of the indexed axis; or several, if the last axis of `indices` holds one index for each of them.
    """
    columns = indices.reshape(-1, len(extents)).T if indices.size else ()
    for column, extent in zip(columns, extents, strict=False):
        if isinstance(extent, int) and not -extent <= column.min() <= column.max() < extent:
            raise ShapeError(f"indices {column.min()} to {column.max()} into an axis of {extent}")


def require_accepted(declaration: type[Operator], attrs: Attrs, types: Types, known: Sequence[np.ndarray | None]) \
        -> None:
    """Raises ShapeError if a known operand has values that the operator does not accept."""
    indexed = declaration.indexed(attrs, types)
    for index, (low, high) in declaration.accepted(attrs, types).items():
        array = known[index] if index < len(known) else None
        if array is None or not array.size:
            continue
        if index in indexed:
            require_on_axes(array, indexed[index])
        elif (isinstance(low, int) and array.min() < low) or (isinstance(high, int) and array.max() > high):
            name = declaration.operands[index].rstrip("?*")
            raise ShapeError(f"its operand {name} has {array.min()} to {array.max()}, and takes {low} to {high}")


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Returns the shape that operands of an elementwise operator broadcast to, by numpy's rule.

    A symbolic extent is assumed not to be 1: it must equal that of the other operands.
    """
    why = f"shapes {' and '.join(map(shape_text, shapes))} do not broadcast"
    rank = max(map(len, shapes))
    result: list[Dim] = []
    for axis in range(rank):
        extent: Dim = 1
        for shape in shapes:
            index = axis - (rank - len(shape))
            other = shape[index] if index >= 0 else 1
            if extent == 1:
                extent = other
            elif other != 1:
                extent = common(extent, other, why)
        result.append(extent)
    return tuple(result)


def common(a: Dim, b: Dim, why: str) -> Dim:
    """Returns the common extent of an axis of two operands, which are required to be equal. why: for the error text."""
    require_equal(a, b, why)
    return b if isinstance(b, int) else a


def same_dtype(*types: TensorType | None) -> str:
    """Returns the dtype that all operands have; raises ShapeError if they differ."""
    dtypes = {type_.dtype for type_ in types if type_ is not None}
    if len(dtypes) != 1:
        raise ShapeError(f"operands have different element types: {', '.join(sorted(dtypes))}")
    return dtypes.pop()


def shape_text(shape: Sequence[Dim]) -> str:
    return f"[{','.join(map(str, shape))}]"


def saturate(array: np.ndarray, dtype: str, stored_saturates: bool = True, rounding: str = "up") -> np.ndarray:
    """Converts as the C code does: floats to integers saturate and NaN becomes 0, integers wrap.

    stored_saturates, rounding: as in `narrowed` (ir/narrow.py), for storage-only dtypes, such as 8-bit floats.
    """
    array = widened(array)
    if DTYPES[dtype].carrier:
        return narrowed(array, dtype, stored_saturates, rounding)
    wanted = np.dtype(dtype)
    if array.dtype.kind == "f" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        truncated = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        is_in_range = (truncated > float(limits.min)) & (truncated < float(limits.max))
        converted = np.where(is_in_range, truncated, 0).astype(wanted)
        converted[truncated >= float(limits.max)] = limits.max
        converted[truncated <= float(limits.min)] = limits.min
        return converted
    return array.astype(wanted)


def computed(declaration: type[Operator], attrs: Attrs, operands: Sequence[np.ndarray | None],
             dtypes: Sequence[str]) -> list[np.ndarray]:
    """Runs an operator's `compute` with conversions of operands and results that have storage-only dtypes."""
    if not declaration.on_bits:
        operands = [array if array is None else widened(array) for array in operands]
    results = map(np.asarray, declaration.compute(attrs, *operands))
    return [array if array.dtype == np.dtype(dtype) else saturate(array, dtype)
            for array, dtype in zip(results, dtypes, strict=True)]


def slice_range(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Returns the first index and the number of elements of start:end:step on an axis, by ONNX's clamping rules.

    An index that is known only at run time must be within the axis.
    """
    def clamped(index: Dim, low: Dim, high: Dim) -> Dim:
        if isinstance(index, int) and index < 0:
            index = index + extent if index > -FAR else low
        if isinstance(index, int) and index >= FAR:
            return high
        if isinstance(index, int) and isinstance(high, int):
            return dim_max(low, min(index, high))
        if isinstance(index, int):
            shortest, _ = limits(high)
            return index if shortest is not None and index <= shortest else dim_min(index, high)
        why = f"{start}:{end}:{step} is not on an axis of {extent}"
        require_at_most(low, index, why)
        require_at_most(index, high, why)
        return index

    if step > 0:
        first, last = clamped(start, 0, extent), clamped(end, 0, extent)
        count = ceildiv(last - first, step)
    else:
        # For an empty axis, the first index with a negative step is -1.
        front = min(extent - 1, 0) if isinstance(extent, int) else -1 if counted(extent) else 0
        first, last = clamped(start, front, extent - 1), clamped(end, -1, extent - 1)
        count = ceildiv(first - last, -step)
    if isinstance(count, int):
        return first, max(count, 0)
    require_at_most(0, count, f"{start}:{end}:{step} of an axis of {extent} ends before it begins")
    return first, count


def counted_ends(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Returns start and end of a slice, clamped to the axis where that matters at run time: if they or the extent
    depend on unbacked symbols, which may be small or 0."""
    if not counted(extent, start, end):
        return _last(extent, start, end) if step == 1 else (start, end)

    def at_least(dim: Dim, low: Dim) -> Dim:
        return dim if is_at_most(low, dim) else dim_max(dim, low)

    def at_most(dim: Dim, high: Dim) -> Dim:
        return dim if is_at_most(dim, high) else dim_min(dim, high)

    def clamped(index: Dim, low: Dim, high: Dim) -> Dim:
        if isinstance(index, int) and abs(index) >= FAR:
            return high if index > 0 else low
        if isinstance(index, int) and index < 0:
            index = index + extent
        return at_most(at_least(index, low), high)

    if step > 0:
        start = clamped(start, 0, extent)
        return start, at_least(clamped(end, 0, extent), start)
    start = clamped(start, 0, extent - 1)
    end = at_most(clamped(end, -1, extent - 1), start)
    return start, -FAR if end == -1 else end


def _last(extent: Dim, start: Dim, end: Dim) -> tuple[Dim, Dim]:
    """Returns start and end of a slice of step 1, made non-negative if start counts from the end, such as the last 5
    elements. The slice begins at 0 if the axis has fewer."""
    if not isinstance(start, int) or not isinstance(end, int) or not -FAR < start < 0 or is_at_most(-start, extent):
        return start, end
    first = dim_max(extent + start, 0)
    if 0 <= end < FAR:
        return first, dim_max(dim_min(extent, end), first)
    if end <= start:
        return start, end
    return first, first + dim_min(extent, -start) - (dim_min(extent, -end) if end < 0 else 0)


def slice_axes(attrs: Attrs, shape: Sequence[Dim]) -> dict[int, tuple[Dim, Dim, int]]:
    """Returns axis -> (first index, number of elements, step) of a slice."""
    if any(step == 0 for step in attrs.steps):
        raise ShapeError("a step is 0")
    return {axis: (*slice_range(shape[axis], start, end, step), step)
            for axis, start, end, step in zip(attrs.axes, attrs.starts, attrs.ends, attrs.steps, strict=True)}
