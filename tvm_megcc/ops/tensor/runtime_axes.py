# SPDX-License-Identifier: Apache-2.0
"""Axes that only a run knows: what an operator gives is computed for each that can be meant, and one result is
chosen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import OnnxNode
from ..elementwise import cast_to
from ..rules import shape_text


def of_run_time_axis(node: OnnxNode, index: int, axes: Sequence[int], make: Callable[[int], str]) -> tuple[str, ...]:
    """Applies `make` to the axis that operand `index` names. All results have one shape, or those count that have the
    one that the model states."""
    results: dict[int, str] = {}
    for axis in axes:
        with suppress(ShapeError):  # this axis cannot be meant
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
    return (value,)


def of_run_time_axes(node: OnnxNode, index: int, candidates: Collection[tuple[int, ...]], free: Collection[int],
                     make: Callable[[tuple[int, ...]], tuple[str, ...]]) -> tuple[str, ...]:
    """Applies `make` to the axes that operand `index` names, which are one of the candidates; axes that are `free` may
    be named or not."""
    named = _named(node, index, node.type(0).rank)
    (first, *others) = sorted(candidates)
    values = make(first)
    for axes in others:
        hit = _all(node, [named(axis) if axis in axes else node.emit("logical_not", (named(axis),))[0]
                          for axis in range(node.type(0).rank) if axis not in free])
        values = tuple(node.emit("where", (hit, other, value))[0]
                       for other, value in zip(make(axes), values, strict=True))
    return values


def _all(node: OnnxNode, conditions: Sequence[str]) -> str:
    result = conditions[0]
    for condition in conditions[1:]:
        (result,) = node.emit("logical_and", (result, condition))
    return result


def _named(node: OnnxNode, index: int, rank: int) -> Callable[[int], str]:
    """Whether an operand, one axis or several, names an axis."""
    (axes,) = node.emit("reshape", cast_to(node, node.inputs[index], "int64"), shape=(-1,))
    made: dict[int, str] = {}

    def names(axis: int) -> str:
        if axis not in made:
            hits = [cast_to(node, *node.emit("equal", (axes, node.constant(np.array([number])))), "int32")[0]
                    for number in (axis, axis - rank)]
            (hit,) = node.emit("reduce_max", node.emit("max", hits), axes=(0,), keepdims=False)
            (made[axis],) = node.emit("greater", (hit, node.constant(np.array(0, np.int32))))
        return made[axis]
    return names
