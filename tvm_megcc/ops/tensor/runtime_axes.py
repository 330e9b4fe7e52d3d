# SPDX-License-Identifier: Apache-2.0
"""Importer helpers for axes that are known only at run time (the operand `axes` of Reduce…, Squeeze, CumSum, …): emit
the operator for each possible choice of axes, and select one result in the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import combinations
from math import comb

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, product
from ..base import OnnxNode
from ..elementwise import cast_to, emit_broadcast
from ..rules import shape_text


def select_run_time_axis(node: OnnxNode, index: int, axes: Sequence[int],
                         make: Callable[[int], str]) -> tuple[str, ...]:
    """Emits an operator along the axis in operand `index`. A run with another axis than `axes` fails.

    All results must have the same shape, or the model must declare a shape, which excludes other axes.

    Args:
        axes: the possible axes.
        make: emits the operator along an axis, and returns its result; raises ShapeError if the axis is impossible.

    Raises:
        MegccError: if the results have different shapes.
    """
    results: dict[int, str] = {}
    for axis in axes:
        with suppress(ShapeError):  # the axis is impossible
            results[axis] = make(axis)
    shapes = {axis: node.type_of(value).shape for axis, value in results.items()}
    declared = node.declared_if_unknown(index)
    results = {axis: value for axis, value in results.items() if declared is None or shapes[axis] == declared}
    if len({shapes[axis] for axis in results}) != 1:
        raise MegccError("its axis is computed at run time, and results have different shapes: "
                         f"{', '.join(sorted(set(map(shape_text, shapes.values()))))}; make it a constant of the model")
    is_named = _axis_tests(node, index, node.type(0).rank)
    (value, *_) = results.values()
    for axis, other in list(results.items())[1:]:
        (value,) = node.emit("where", (is_named(axis), other, value))
    return (_require_at_run_time(node, value, _combine(node, "logical_or", [is_named(axis) for axis in results])),)


def select_run_time_axes(node: OnnxNode, index: int, candidates: Collection[tuple[int, ...]], free: Collection[int],
                         make: Callable[[tuple[int, ...]], tuple[str, ...]],
                         empty: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """Emits an operator over the axes in operand `index`. A run fails if its axes are not among the candidates.

    Args:
        candidates: the possible choices of axes, whose results have equal shapes.
        free: axes that are ignored when choices are compared, since the result does not depend on them.
        make: emits the operator over a choice of axes, and returns its results.
        empty: the choice that an empty operand stands for; None if it has elements in every run.
    """
    is_named, rank = _axis_tests(node, index, node.type(0).rank), node.type(0).rank
    hits, values = [], None  # hits: for each candidate, whether the run chooses it
    for axes in sorted(candidates):
        conditions = [is_named(axis) if axis in axes else node.emit("logical_not", (is_named(axis),))[0]
                      for axis in range(rank) if axis not in free]
        results = make(axes)
        if conditions:
            hits.append(_combine(node, "logical_and", conditions))
        if axes == empty and conditions:
            not_named = [node.emit("logical_not", (is_named(axis),))[0] for axis in range(rank)]
            hits[-1] = _combine(node, "logical_or", (hits[-1], _combine(node, "logical_and", not_named)))
        values = results if values is None else tuple(
            node.emit("where", (hits[-1], other, value))[0] for other, value in zip(results, values, strict=True))
    assert values is not None  # there is a candidate
    if not hits:
        return values
    return tuple(_require_at_run_time(node, value, _combine(node, "logical_or", hits)) for value in values)


def _combine(node: OnnxNode, kind: str, conditions: Sequence[str]) -> str:
    """Emits a chain of binary operators `kind` over conditions."""
    result = conditions[0]
    for condition in conditions[1:]:
        (result,) = node.emit(kind, (result, condition))
    return result


def _require_at_run_time(node: OnnxNode, value: str, condition: str) -> str:
    """Emits a copy of the value whose run fails if the condition, bool [], is false: the index 1 of an axis of extent 1
    is one that `gather` refuses."""
    shape = node.type_of(value).shape
    (index,) = node.emit("where", (condition, node.constant(np.array(0)), node.constant(np.array(1))))
    (index,) = node.emit("reshape", (index,), shape=(1,))
    (value,) = node.emit("reshape", (value,), shape=(1, *shape))
    (value,) = node.emit("gather", (value, index), axis=0)
    return node.emit("reshape", (value,), shape=shape)[0]


def _has_count(node: OnnxNode, flags: str, count: int) -> str:
    """Emits whether `count` flags of a bool [rank] are true: bool []."""
    (sum_,) = node.emit("reduce_sum", node.emit("cast", (flags,), dtype="int64"), axes=(0,), keepdims=False)
    return node.emit("equal", (sum_, node.constant(np.array(count))))[0]


def _axis_tests(node: OnnxNode, index: int, rank: int) -> Callable[[int], str]:
    """Returns a function that emits whether operand `index`, one axis or several, contains a given axis: bool []."""
    (axes,) = node.emit("reshape", cast_to(node, node.inputs[index], "int64"), shape=(-1,))
    contains: dict[int, str] = {}

    def is_named(axis: int) -> str:
        if axis not in contains:
            hits = [cast_to(node, *node.emit("equal", (axes, node.constant(np.array([number])))), "int32")[0]
                    for number in (axis, axis - rank)]
            (hit,) = node.emit("reduce_max", node.emit("max", hits), axes=(0,), keepdims=False)
            (contains[axis],) = node.emit("greater", (hit, node.constant(np.array(0, np.int32))))
        return contains[axis]
    return is_named


#: The largest number of choices of axes that are all computed: that of 3 axes out of 7.
MAX_AXIS_CHOICES = 35


def reduce_run_time_axes(node: OnnxNode, index: int, keepdims: bool,
                         make: Callable[[tuple[int, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Emits a reduction over the axes in operand `index`. A run that names an axis twice, or one that there is not,
    fails.

    The result for each choice of axes is broadcast to the operand's shape, so that one can be selected at run time, and
    then sliced to its own shape.

    Args:
        make: emits the reduction over a choice of axes, and returns its result.

    Raises:
        MegccError: if the number of axes is not known, or there are too many choices.
    """
    shape, count = node.type(0).shape, _number_of_axes(node, index)
    if not 1 <= count <= len(shape):
        raise ShapeError(f"{count} axes of a tensor with {len(shape)} axes")
    if count == len(shape):
        distinct = _has_count(node, _axis_flags(node, index, count), count)
        return tuple(_require_at_run_time(node, value, distinct) for value in make(tuple(range(count))))
    if comb(len(shape), count) > MAX_AXIS_CHOICES:
        raise MegccError(f"its axes are computed at run time, and {count} of {len(shape)} axes can be chosen in more "
                         f"than {MAX_AXIS_CHOICES} ways; make them a constant of the model")

    def broadcast_result(choice: tuple[int, ...]) -> tuple[str, ...]:
        reduced_shape = tuple(1 if axis in choice else extent for axis, extent in enumerate(shape))
        (value,) = node.emit("reshape", make(choice), shape=reduced_shape)
        return node.emit("expand", (value,), shape=shape)
    (value,) = select_run_time_axes(node, index, tuple(combinations(range(len(shape)), count)), (), broadcast_result)
    named = _axis_flags(node, index, len(shape))
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (result_extents,) = node.emit("where", (named, node.constant(np.array(1)), extents))
    for axis, extent in enumerate(shape):
        if extent != 1:
            end = node.unbacked_extent(result_extents, extent, axis, name=f"{node.name}.kept{axis}")
            (value,) = node.emit("slice", (value,), axes=(axis,), starts=(0,), ends=(end,), steps=(1,))
    return (value,) if keepdims else squeeze_at_run_time(node, value, index)


def squeeze_at_run_time(node: OnnxNode, value: str, index: int) -> tuple[str, ...]:
    """Emits a value without the axes in operand `index`. A run in which one of them has an extent other than 1 fails.

    Raises:
        MegccError: if the number of axes is not known.
        ShapeError: if there are fewer axes of extent 1.
    """
    shape = node.type_of(value).shape
    count = _number_of_axes(node, index)
    unit_axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    is_static = all(isinstance(extent, int) for extent in shape)
    if count > len(shape) or (is_static and count > len(unit_axes)):
        raise ShapeError(f"{count} axes of 1 of {shape_text(shape)}")
    flags = _axis_flags(node, index, len(shape))
    if is_static and count == len(unit_axes):
        (named,) = node.emit("logical_and", (flags, node.constant(np.array([extent == 1 for extent in shape]))))
        value = _require_at_run_time(node, value, _has_count(node, named, count))
        return node.emit("reshape", (value,), shape=tuple(extent for extent in shape if extent != 1))
    value = _require_at_run_time(node, value, _has_count(node, flags, count))
    (dropped,) = node.emit("cast", (flags,), dtype="int64")
    (is_kept,) = node.emit("sub", (node.constant(np.array(1)), dropped))
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (extents,) = node.emit("mul", (extents, is_kept))
    kept_extents = _compact_extents(node, extents, is_kept, len(shape) - count)
    return _reshape_at_run_time(node, value, kept_extents, product(shape))


def unsqueeze_at_run_time(node: OnnxNode, index: int) -> tuple[str, ...]:
    """Emits the node's operand with axes of extent 1 at the positions in operand `index`.

    Raises:
        MegccError: if the number of axes is not known.
    """
    shape = node.type(0).shape
    rank = len(shape) + _number_of_axes(node, index)
    if all(extent == 1 for extent in shape):
        return node.emit("reshape", node.inputs[:1], shape=(1,) * rank)
    named = _axis_flags(node, index, rank)
    value = _require_at_run_time(node, node.inputs[0], _has_count(node, named, rank - len(shape)))
    (is_kept,) = node.emit("sub", (node.constant(np.array(1)), *node.emit("cast", (named,), dtype="int64")))
    (position,) = node.emit("cumsum", (is_kept,), axis=0, exclusive=True, reverse=False)
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (column,) = node.emit("reshape", (position,), shape=(rank, 1))
    extents_of_x = _sum_of_matching(node, column, node.constant(np.arange(len(shape)).reshape(1, -1)), extents)
    (found,) = node.emit("where", (named, node.constant(np.array(1)), extents_of_x))
    return _reshape_at_run_time(node, value, found, product(shape))


def _number_of_axes(node: OnnxNode, index: int) -> int:
    """Returns the number of axes in operand `index`.

    Raises:
        MegccError: if its type does not tell the number.
    """
    axes = node.type(index)
    if axes.rank > 1 or not axes.is_static:
        raise MegccError(f"its axes are computed at run time, and {axes} does not tell how many they are; make them a "
                         "constant of the model")
    return axes.size


def _axis_flags(node: OnnxNode, index: int, rank: int) -> str:
    """Emits whether operand `index` contains each axis: bool [rank]."""
    (axes,) = node.emit("reshape", cast_to(node, node.inputs[index], "int64"), shape=(1, -1))
    numbers = np.arange(rank).reshape(-1, 1)  # of the axes; minus the rank, counted from the end
    hits = [cast_to(node, *node.emit("equal", (axes, node.constant(names))), "int32")[0]
            for names in (numbers, numbers - rank)]
    (hit,) = node.emit("reduce_max", node.emit("max", hits), axes=(1,), keepdims=False)
    return node.emit("greater", (hit, node.constant(np.array(0, np.int32))))[0]


def _compact_extents(node: OnnxNode, extents: str, is_kept: str, rank: int) -> str:
    """Emits the extents whose flag `is_kept`, int64 0 or 1, is 1, in order: int64 [rank]."""
    (position,) = node.emit("cumsum", (is_kept,), axis=0, exclusive=True, reverse=False)
    count = node.type_of(position).shape[0]
    (row,) = node.emit("reshape", (position,), shape=(1, count))
    return _sum_of_matching(node, row, node.constant(np.arange(rank).reshape(-1, 1)), extents)


def _sum_of_matching(node: OnnxNode, index: str, wanted: str, extents: str) -> str:
    """Emits for each row the sum of the extents whose index equals the wanted one: int64 [rows]. index and wanted
    broadcast to [rows, number of extents]. This picks an extent, or 0: if several are equal, all but one are 0."""
    (hits,) = node.emit("cast", node.emit("equal", (index, wanted)), dtype="int64")
    (taken,) = emit_broadcast(node, "mul", (hits, extents))
    return node.emit("reduce_sum", (taken,), axes=(1,), keepdims=False)[0]


def _reshape_at_run_time(node: OnnxNode, value: str, shape: str, limit: Dim) -> tuple[str, ...]:
    """Emits a value in a shape that is computed at run time, int64 [rank]. limit: upper bound of each extent."""
    rank = node.type_of(shape).shape[0]
    dims = tuple(node.unbacked_extent(shape, limit, axis, name=f"{node.name}.axis{axis}") for axis in range(rank))
    return node.emit("reshape", (value,), shape=dims)
