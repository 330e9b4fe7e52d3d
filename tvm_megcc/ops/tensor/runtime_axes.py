# SPDX-License-Identifier: Apache-2.0
"""Handles axes that are operands known only at run time: computes the operator for each possible axis, and selects one
result."""

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


def of_run_time_axis(node: OnnxNode, index: int, axes: Sequence[int], make: Callable[[int], str]) -> tuple[str, ...]:
    """Applies `make` to the axis in operand `index`. All results must have the same shape, or the model must declare a
    shape, which excludes other axes. A run with another axis fails."""
    results: dict[int, str] = {}
    for axis in axes:
        with suppress(ShapeError):  # the axis is impossible
            results[axis] = make(axis)
    shapes = {axis: node.type_of(value).shape for axis, value in results.items()}
    stated = node.stated(index)
    results = {axis: value for axis, value in results.items() if stated is None or shapes[axis] == stated}
    if len({shapes[axis] for axis in results}) != 1:
        raise MegccError("its axis is computed at run time, and results have different shapes: "
                         f"{', '.join(sorted(set(map(shape_text, shapes.values()))))}; make it a constant of the model")
    named = _named(node, index, node.type(0).rank)
    (chosen, *others) = results.items()
    value = chosen[1]
    for axis, other in others:
        (value,) = node.emit("where", (named(axis), other, value))
    return (_required(node, value, _joined(node, "logical_or", [named(axis) for axis in results])),)


def of_run_time_axes(node: OnnxNode, index: int, candidates: Collection[tuple[int, ...]], free: Collection[int],
                     make: Callable[[tuple[int, ...]], tuple[str, ...]],
                     empty: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """Applies `make` to the axes in operand `index`. A run whose axes are none of the candidates fails.

    Args:
        free: axes that are ignored when they are compared.
        empty: the axes that no axis means, if a run may have none.
    """
    named, rank = _named(node, index, node.type(0).rank), node.type(0).rank
    hits, values = [], None
    for axes in sorted(candidates):
        conditions = [named(axis) if axis in axes else node.emit("logical_not", (named(axis),))[0]
                      for axis in range(rank) if axis not in free]
        found = make(axes)
        if conditions:
            hits.append(_joined(node, "logical_and", conditions))
        if axes == empty and conditions:
            none = [node.emit("logical_not", (named(axis),))[0] for axis in range(rank)]
            hits[-1] = _joined(node, "logical_or", (hits[-1], _joined(node, "logical_and", none)))
        values = found if values is None else tuple(
            node.emit("where", (hits[-1], other, value))[0] for other, value in zip(found, values, strict=True))
    assert values is not None  # there is a candidate
    return tuple(_required(node, value, _joined(node, "logical_or", hits)) for value in values) if hits else values


def _joined(node: OnnxNode, kind: str, conditions: Sequence[str]) -> str:
    result = conditions[0]
    for condition in conditions[1:]:
        (result,) = node.emit(kind, (result, condition))
    return result


def _required(node: OnnxNode, value: str, condition: str) -> str:
    """Returns the value. A run in which the condition, one bool, does not hold fails: `gather` refuses its index."""
    shape = node.type_of(value).shape
    (index,) = node.emit("where", (condition, node.constant(np.array(0)), node.constant(np.array(1))))
    (index,) = node.emit("reshape", (index,), shape=(1,))
    (value,) = node.emit("reshape", (value,), shape=(1, *shape))
    (value,) = node.emit("gather", (value, index), axis=0)
    return node.emit("reshape", (value,), shape=shape)[0]


def _all_of(node: OnnxNode, flags: str, count: int) -> str:
    """Emits whether so many flags of a bool [rank] are true."""
    (sum_,) = node.emit("reduce_sum", node.emit("cast", (flags,), dtype="int64"), axes=(0,), keepdims=False)
    return node.emit("equal", (sum_, node.constant(np.array(count))))[0]


def _named(node: OnnxNode, index: int, rank: int) -> Callable[[int], str]:
    """Returns a function that emits whether an operand, one axis or several, contains a given axis."""
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


#: The most choices of axes that are all computed; 35 is the number of choices of 3 axes out of 7.
MOST_CHOICES = 35


def reduced_over_run_time_axes(node: OnnxNode, index: int, keepdims: bool,
                               make: Callable[[tuple[int, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Applies the reduction `make` to the axes in operand `index`. The result for each choice of axes is broadcast to
    the operand's shape, so that one can be selected at run time, and then sliced to its own shape. A run that names an
    axis twice, or one that there is not, fails."""
    shape, axes = node.type(0).shape, node.type(index)
    many = axes.shape[0] if axes.rank == 1 else 1 if axes.rank == 0 else None
    if not isinstance(many, int) or many < 1:
        raise MegccError(f"its axes are computed at run time, and {axes} does not tell how many they are; make them a "
                         "constant of the model")
    if many > len(shape):
        raise ShapeError(f"{many} axes of a tensor with {len(shape)} axes")
    if many == len(shape):
        distinct = _all_of(node, _flags(node, index, many), many)
        return tuple(_required(node, value, distinct) for value in make(tuple(range(many))))
    if comb(len(shape), many) > MOST_CHOICES:
        raise MegccError(f"its axes are computed at run time, and {many} of {len(shape)} axes can be chosen in more "
                         f"than {MOST_CHOICES} ways; make them a constant of the model")

    def spread(chosen: tuple[int, ...]) -> tuple[str, ...]:
        target = tuple(1 if axis in chosen else extent for axis, extent in enumerate(shape))
        (value,) = node.emit("reshape", make(chosen), shape=target)
        return node.emit("expand", (value,), shape=shape)
    (value,) = of_run_time_axes(node, index, tuple(combinations(range(len(shape)), many)), (), spread)
    named = _flags(node, index, len(shape))
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (left,) = node.emit("where", (named, node.constant(np.array(1)), extents))
    for axis, extent in enumerate(shape):
        if extent != 1:
            end = node.count(left, extent, axis, f"{node.name}.kept{axis}")
            (value,) = node.emit("slice", (value,), axes=(axis,), starts=(0,), ends=(end,), steps=(1,))
    return (value,) if keepdims else squeezed_at_run_time(node, value, index)


def squeezed_at_run_time(node: OnnxNode, value: str, index: int) -> tuple[str, ...]:
    """Removes the axes in operand `index` from a value. A run in which one of them has an extent other than 1 fails."""
    shape = node.type_of(value).shape
    many = _count_of(node, index)
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    closed = all(isinstance(extent, int) for extent in shape)
    if many > len(shape) or (closed and many > len(ones)):
        raise ShapeError(f"{many} axes of 1 of {shape_text(shape)}")
    flags = _flags(node, index, len(shape))
    if closed and many == len(ones):
        (named,) = node.emit("logical_and", (flags, node.constant(np.array([extent == 1 for extent in shape]))))
        value = _required(node, value, _all_of(node, named, many))
        return node.emit("reshape", (value,), shape=tuple(extent for extent in shape if extent != 1))
    value = _required(node, value, _all_of(node, flags, many))
    (dropped,) = node.emit("cast", (flags,), dtype="int64")
    (is_kept,) = node.emit("sub", (node.constant(np.array(1)), dropped))
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (extents,) = node.emit("mul", (extents, is_kept))
    return _in_shape(node, value, _gathered(node, extents, is_kept, len(shape) - many), product(shape))


def unsqueezed_at_run_time(node: OnnxNode, index: int) -> tuple[str, ...]:
    """Inserts axes of extent 1 at the positions in operand `index`."""
    shape = node.type(0).shape
    rank = len(shape) + _count_of(node, index)
    if all(extent == 1 for extent in shape):
        return node.emit("reshape", node.inputs[:1], shape=(1,) * rank)
    named = _flags(node, index, rank)
    value = _required(node, node.inputs[0], _all_of(node, named, rank - len(shape)))
    (is_kept,) = node.emit("sub", (node.constant(np.array(1)), *node.emit("cast", (named,), dtype="int64")))
    (position,) = node.emit("cumsum", (is_kept,), axis=0, exclusive=True, reverse=False)
    (extents,) = node.emit("dims", (), extents=shape, shape=(len(shape),), dtype="int64")
    (column,) = node.emit("reshape", (position,), shape=(rank, 1))
    extents_of_x = _chosen_sum(node, column, node.constant(np.arange(len(shape)).reshape(1, -1)), extents)
    (found,) = node.emit("where", (named, node.constant(np.array(1)), extents_of_x))
    return _in_shape(node, value, found, product(shape))


def _count_of(node: OnnxNode, index: int) -> int:
    """Returns the number of axes in an operand."""
    axes = node.type(index)
    if axes.rank > 1 or not axes.is_static:
        raise MegccError(f"its axes are computed at run time, and {axes} does not tell how many they are; make them a "
                         "constant of the model")
    return axes.size


def _flags(node: OnnxNode, index: int, rank: int) -> str:
    """Emits whether an operand contains each axis: bool [rank]."""
    (axes,) = node.emit("reshape", cast_to(node, node.inputs[index], "int64"), shape=(1, -1))
    hits = [cast_to(node, *node.emit("equal", (axes, node.constant(np.arange(rank).reshape(-1, 1) - back))), "int32")[0]
            for back in (0, rank)]
    (hit,) = node.emit("reduce_max", node.emit("max", hits), axes=(1,), keepdims=False)
    return node.emit("greater", (hit, node.constant(np.array(0, np.int32))))[0]


def _gathered(node: OnnxNode, extents: str, is_kept: str, rank: int) -> str:
    """Emits the `rank` extents that are kept, in order."""
    (position,) = node.emit("cumsum", (is_kept,), axis=0, exclusive=True, reverse=False)
    count = node.type_of(position).shape[0]
    (row,) = node.emit("reshape", (position,), shape=(1, count))
    return _chosen_sum(node, row, node.constant(np.arange(rank).reshape(-1, 1)), extents)


def _chosen_sum(node: OnnxNode, index: str, wanted: str, extents: str) -> str:
    """Emits for each row the sum of the extents whose index equals the wanted one."""
    (hits,) = node.emit("cast", node.emit("equal", (index, wanted)), dtype="int64")
    (taken,) = emit_broadcast(node, "mul", (hits, extents))
    return node.emit("reduce_sum", (taken,), axes=(1,), keepdims=False)[0]


def _in_shape(node: OnnxNode, value: str, shape: str, most: Dim) -> tuple[str, ...]:
    """Reshapes a value to a shape that is computed at run time."""
    rank = node.type_of(shape).shape[0]
    dims = tuple(node.count(shape, most, axis, f"{node.name}.axis{axis}") for axis in range(rank))
    return node.emit("reshape", (value,), shape=dims)
