# SPDX-License-Identifier: Apache-2.0
"""ONNX's Unique: the distinct slices along an axis."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, register
from ..rules import axis_of
from .gather import Gather
from .move import emit_slice


@register
class Unique(Operator):
    """The groups of equal slices of x, of any dtype, along an axis, for ONNX's Unique.

    Slices are compared lexicographically; NaNs are equal to each other and larger than any number.

    Results, int64: the index of the first slice of each group [count], the group of each slice [N], the size of each
    group [count], and the number of groups []. Attributes: `axis`; `sorted`: groups are ordered by value, or by first
    occurrence if it is 0; `count`, a capacity: a run with more groups fails, one with less leaves the rest 0.
    """

    kind = "unique"

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if not 0 <= attrs.axis < x.rank:
            raise ShapeError(f"{x} has no axis {attrs.axis}")
        counted = TensorType("int64", (attrs.count,))
        return counted, TensorType("int64", (x.shape[attrs.axis],)), counted, TensorType("int64", ())

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        rows = np.moveaxis(x, attrs.axis, 0).reshape(x.shape[attrs.axis], -1)
        keys = [tuple((value != value, 0 if value != value else value) for value in row) for row in rows.tolist()]
        groups = sorted(set(keys)) if attrs.sorted else list(dict.fromkeys(keys))
        if len(groups) > attrs.count:
            raise ShapeError(f"found {len(groups)} different slices; the result has a capacity of {attrs.count}")
        index_of = {key: index for index, key in enumerate(groups)}
        inverse = np.array([index_of[key] for key in keys], np.int64)
        first, sizes = np.zeros(attrs.count, np.int64), np.zeros(attrs.count, np.int64)
        first[:len(groups)] = [keys.index(key) for key in groups]
        sizes[:len(groups)] = np.bincount(inverse, minlength=len(groups))
        return first, inverse, sizes, np.array(len(groups), np.int64)


def _case(shape: tuple[int, ...], dtype: str, axis: int, count: int, values: np.ndarray | None = None,
          is_sorted: int = 1) -> Case:
    if values is None:
        values = np.random.default_rng(len(shape)).integers(0, 3, shape)
    return Case(((shape, dtype),), {"axis": axis, "sorted": is_sorted, "count": count}, values={0: np.asarray(values)})


Unique.cases = (
    _case((40,), "float32", 0, 5), _case((40,), "int64", 0, 3, is_sorted=0),
    _case((9,), "uint8", 0, 9, np.arange(9)[::-1]),
    _case((7, 3), "int32", 0, 7), _case((3, 30), "float64", 1, 27, is_sorted=0), _case((2, 11, 2), "int8", 1, 11),
    _case((8,), "float32", 0, 6, np.array([np.nan, 2, -0.0, np.nan, 0.0, -np.inf, 2, np.inf])),
    _case((1,), "bool", 0, 1))


@decomposes("Unique")
def unique(node: OnnxNode) -> tuple[str, ...]:
    """Imports Unique. Results: the distinct slices, the index of the first of each, the group of each slice, and the
    sizes of the groups."""
    value, axis, declared = node.inputs[0], node.attr("axis"), node.declared_shape()
    if node.is_string(0) and node.attr("sorted", 1):
        raise MegccError("orders strings, which is not supported; sorted = 0 is")
    if axis is None:
        (value,) = node.emit("reshape", (value,), shape=(node.type_of(value).size,))
    axis = 0 if axis is None else axis_of(axis, node.type_of(node.inputs[0]).rank)
    capacity = node.type_of(value).shape[axis] if declared is None else declared[axis]
    is_sorted = int(node.attr("sorted", 1) != 0)
    first, inverse, sizes, number_of_groups = node.emit(Unique.kind, (value,), axis=axis, sorted=is_sorted,
                                                        count=node.extent_bound(capacity))
    count = node.unbacked_extent(number_of_groups, capacity)
    first, sizes = (emit_slice(node, result, 0, 0, count) for result in (first, sizes))
    results = (*node.emit(Gather.kind, (value, first), axis=axis), first, inverse, sizes)
    return results[:node.num_outputs]
