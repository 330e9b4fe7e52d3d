# SPDX-License-Identifier: Apache-2.0
"""Shape rules and importer helpers that several families of operators share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..ir.conditions import require_at_most, require_equal, require_shape
from ..ir.dims import Dim, ceildiv, dim_max, dim_min, may_be_zero
from ..ir.extent_bounds import is_at_most, limits
from ..ir.graph import Attrs
from ..ir.narrow import narrowed, widened
from ..ir.types import DTYPES, TensorType
from .base import OnnxNode, Operator, Types

#: Slice bounds of this value or more mean the end of the axis, as in ONNX's documentation of Slice.
END_OF_AXIS = 2**31 - 1


def axis_of(axis: int, rank: int) -> int:
    """Returns the axis counted from the front, in [0, rank).

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
    """Emits int64 0, 1, …, extent - 1 along one axis of a tensor of this rank whose other axes have extent 1. It is a
    constant if the extent is known."""
    if not isinstance(extent, int):
        return node.emit("reshape", (emit_arange(node, extent, "int64"),),
                         shape=tuple(extent if i == axis else 1 for i in range(rank)))[0]
    node.require_budget(extent)
    return node.constant(np.arange(extent).reshape([-1 if i == axis else 1 for i in range(rank)]))


def emit_arange(node: OnnxNode, count: Dim, dtype: str) -> str:
    """Emits 0, 1, …, count - 1, [count]. It is a constant if the count is known."""
    if isinstance(count, int):
        node.require_budget(count)
        return node.constant(np.arange(count).astype(np.dtype(dtype)))
    (ones,) = node.emit("expand", (node.constant(np.ones(1, np.dtype(dtype))),), shape=(count,))
    return node.emit("cumsum", (ones,), axis=0, exclusive=True, reverse=False)[0]


def require_on_axes(indices: np.ndarray, extents: Sequence[Dim]) -> None:
    """Raises ShapeError for an index that is out of bounds; symbolic extents are not checked.

    extents: the extent of the indexed axis; or several, if the last axis of `indices` holds one index for each of them.
    """
    columns = indices.reshape(-1, len(extents)).T if indices.size else ()
    for column, extent in zip(columns, extents, strict=False):
        if isinstance(extent, int) and not -extent <= column.min() <= column.max() < extent:
            raise ShapeError(f"indices {column.min()} to {column.max()} into an axis of {extent}")


def require_accepted(declaration: type[Operator], attrs: Attrs, types: Types, known: Sequence[np.ndarray | None]) \
        -> None:
    """Raises ShapeError if a constant operand has values that the operator does not accept.

    known: the arrays of constant operands, None for the others.
    """
    indexed = declaration.indexed(attrs, types)
    for index, (lower, upper) in declaration.accepted(attrs, types).items():
        array = known[index] if index < len(known) else None
        if array is None or not array.size:
            continue
        if index in indexed:
            require_on_axes(array, indexed[index])
        elif (isinstance(lower, int) and array.min() < lower) or (isinstance(upper, int) and array.max() > upper):
            name = declaration.operands[index].rstrip("?*")
            raise ShapeError(f"its operand {name} has values from {array.min()} to {array.max()}; "
                             f"valid are {lower} to {upper}")


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Returns the shape that operands of an elementwise operator broadcast to, by numpy's rule.

    A symbolic extent is assumed not to be 1: it must equal that of the other operands.

    Raises:
        ShapeError: if the shapes do not broadcast.
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
                extent = common_extent(extent, other, why)
        result.append(extent)
    return tuple(result)


def common_extent(a: Dim, b: Dim, why: str) -> Dim:
    """Returns the common extent of an axis of two operands, which are required to be equal. why: for the error text."""
    require_equal(a, b, why)
    return b if isinstance(b, int) else a


def same_dtype(*types: TensorType | None) -> str:
    """Returns the dtype that all operands have; raises ShapeError if they differ."""
    dtypes = {type_.dtype for type_ in types if type_ is not None}
    if len(dtypes) != 1:
        raise ShapeError(f"operands have different element types: {', '.join(sorted(dtypes))}")
    return dtypes.pop()


def require_operands(wanted: Sequence[tuple[TensorType | None, str, Sequence[Dim]]]) -> None:
    """Raises ShapeError unless every operand, None for an absent one, has its dtype and shape."""
    for operand, dtype, shape in wanted:
        if operand is not None:
            if operand.dtype != dtype:
                raise ShapeError(f"requires {dtype}, not {operand}")
            require_shape(operand.shape, shape, f"operand {operand} should be {shape_text(shape)}")


def shape_text(shape: Sequence[Dim]) -> str:
    """Returns a shape for messages, such as "[2,N,3]"."""
    return f"[{','.join(map(str, shape))}]"


def saturate(array: np.ndarray, dtype: str, stored_saturates: bool = True, rounding: str = "up") -> np.ndarray:
    """Converts an array to a dtype as the C code does: a float that becomes an integer is truncated and saturates, NaN
    becomes 0, and integers wrap.

    stored_saturates, rounding: as in `narrowed` (ir/narrow.py), for storage-only dtypes, such as 8-bit floats.
    """
    array = widened(array)
    if DTYPES[dtype].carrier:
        return narrowed(array, dtype, stored_saturates, rounding)
    wanted = np.dtype(dtype)
    if array.dtype.kind == "f" and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        # Numbers at a limit are not converted: as a float, that of a 64-bit integer is rounded, 2^63 - 1 to 2^63.
        truncated = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        is_in_range = (truncated > float(limits.min)) & (truncated < float(limits.max))
        converted = np.where(is_in_range, truncated, 0).astype(wanted)
        converted[truncated >= float(limits.max)] = limits.max
        converted[truncated <= float(limits.min)] = limits.min
        return converted
    return array.astype(wanted)


def compute_stored(declaration: type[Operator], attrs: Attrs, operands: Sequence[np.ndarray | None],
                   dtypes: Sequence[str]) -> list[np.ndarray]:
    """Runs an operator's `compute`; converts operands of storage-only dtypes before it, unless the operator works on
    their bits, and the results after it.

    dtypes: those of the results.
    """
    if not declaration.on_bits:
        operands = [array if array is None else widened(array) for array in operands]
    results = map(np.asarray, declaration.compute(attrs, *operands))
    return [array if array.dtype == np.dtype(dtype) else saturate(array, dtype)
            for array, dtype in zip(results, dtypes, strict=True)]


def slice_range(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Returns the first index and the number of elements of start:end:step on an axis, by the clamping rules of ONNX's
    Slice.

    An index that is known only at run time must be within the axis.

    Raises:
        ShapeError: if such an index cannot be within it.
    """
    def clamp(index: Dim, lower: Dim, upper: Dim) -> Dim:
        """Returns a bound counted from the front, clamped to [lower, upper]."""
        if isinstance(index, int) and index < 0:
            index = index + extent if index > -END_OF_AXIS else lower
        if isinstance(index, int) and index >= END_OF_AXIS:
            return upper
        if isinstance(index, int) and isinstance(upper, int):
            return dim_max(lower, min(index, upper))
        if isinstance(index, int):  # on an axis whose extent is an expression
            shortest, _ = limits(upper)
            return index if shortest is not None and index <= shortest else dim_min(index, upper)
        why = f"{start}:{end}:{step} is not on an axis of {extent}"
        require_at_most(lower, index, why)
        require_at_most(index, upper, why)
        return index

    if step > 0:
        first, stop = clamp(start, 0, extent), clamp(end, 0, extent)
        count = ceildiv(stop - first, step)
    else:
        # Backwards, the start is clamped to [0, extent - 1], which for an empty axis is -1.
        if isinstance(extent, int):
            lower = min(extent - 1, 0)
        else:
            lower = -1 if may_be_zero(extent) else 0
        first, stop = clamp(start, lower, extent - 1), clamp(end, -1, extent - 1)
        count = ceildiv(first - stop, -step)
    if isinstance(count, int):
        return first, max(count, 0)
    require_at_most(0, count, f"{start}:{end}:{step} of an axis of {extent} ends before it begins")
    return first, count


def clamp_slice(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Returns start and end of a slice for operator `slice`, as expressions that are clamped to the axis.

    They are clamped if they or the extent depend on a symbol that may be 0, as unbacked ones may, or if the slice takes
    the last elements of an axis that may have fewer. Other bounds are clamped by `slice_range`.
    """
    if not may_be_zero(extent, start, end):
        return _clamp_last_elements(extent, start, end) if step == 1 else (start, end)

    def at_least(dim: Dim, lower: Dim) -> Dim:
        return dim if is_at_most(lower, dim) else dim_max(dim, lower)

    def at_most(dim: Dim, upper: Dim) -> Dim:
        return dim if is_at_most(dim, upper) else dim_min(dim, upper)

    def clamp(index: Dim, lower: Dim, upper: Dim) -> Dim:
        """Returns a bound counted from the front, clamped to [lower, upper]."""
        if isinstance(index, int) and abs(index) >= END_OF_AXIS:
            return upper if index > 0 else lower
        if isinstance(index, int) and index < 0:
            index = index + extent
        return at_most(at_least(index, lower), upper)

    if step > 0:
        start = clamp(start, 0, extent)
        return start, at_least(clamp(end, 0, extent), start)
    start = clamp(start, 0, extent - 1)
    end = at_most(clamp(end, -1, extent - 1), start)
    return start, -END_OF_AXIS if end == -1 else end  # -1 would count from the end; this is the one before the front


def _clamp_last_elements(extent: Dim, start: Dim, end: Dim) -> tuple[Dim, Dim]:
    """Returns start and end of a slice of step 1. If start counts from the end, as in x[-5:], both become non-negative
    expressions; the slice begins at 0 if the axis has fewer elements."""
    if not isinstance(start, int) or not isinstance(end, int):
        return start, end
    counts_from_end = -END_OF_AXIS < start < 0
    if not counts_from_end or is_at_most(-start, extent):
        return start, end
    first = dim_max(extent + start, 0)
    if 0 <= end < END_OF_AXIS:
        return first, dim_max(dim_min(extent, end), first)
    if end <= start:  # both count from the end: the slice is empty
        return start, end
    left_out = dim_min(extent, -end) if end < 0 else 0  # at the end of the axis
    return first, first + dim_min(extent, -start) - left_out


def slice_axes(attrs: Attrs, shape: Sequence[Dim]) -> dict[int, tuple[Dim, Dim, int]]:
    """Returns the first index, the number of elements and the step of an operator `slice`, by axis.

    Raises:
        ShapeError: if a step is 0, or as `slice_range`.
    """
    if any(step == 0 for step in attrs.steps):
        raise ShapeError("a step is 0")
    return {axis: (*slice_range(shape[axis], start, end, step), step)
            for axis, start, end, step in zip(attrs.axes, attrs.starts, attrs.ends, attrs.steps, strict=True)}
