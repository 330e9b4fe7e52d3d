# SPDX-License-Identifier: Apache-2.0
"""Computes which rows of its operands an operator reads to compute some rows of its result. `strips.py` uses it.

Rows are indices of axis 2, the height, of tensors [1, C, H, W].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import Attrs, Graph, Op
from ...ir.types import TensorType
from ...ops.base import operator

#: The axis of rows.
HEIGHT = 2

#: Operators that read a window around each position, with `pads`, `strides` and `dilations`: kind -> function that
#: returns the window's height from the attributes and the types of operands.
WINDOWS = {
    "conv2d": lambda attrs, types: types[1].shape[2],
    "conv2d_integer": lambda attrs, types: types[1].shape[2],
    "max_pool": lambda attrs, types: attrs.kernel[0],
    "sum_pool": lambda attrs, types: attrs.kernel[0],
    "sum_pool_integer": lambda attrs, types: attrs.kernel[0],
}
#: Operators, besides expressions, whose result at a position depends only on that position of the first operand.
POINTWISE = ("lookup", "copy")


@dataclass(frozen=True)
class Strip:
    """The rows [first, end) of a value."""

    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first

    def with_(self, other: Strip) -> Strip:
        """Returns the smallest strip that contains both."""
        return Strip(min(self.first, other.first), max(self.end, other.end))


@dataclass(frozen=True)
class Reads:
    """An operator on a strip. attrs: its attributes. operands: the rows of each operand; None: all of it is read."""

    attrs: Attrs
    operands: tuple[Strip | None, ...]


def has_rows(graph: Graph, op: Op) -> bool:
    """Returns whether strips of the operator's one result can be computed from strips of its operands."""
    types = [graph.type_of(name) for name in (*op.inputs, *op.outputs)]
    if len(op.outputs) != 1 or any(t is not None and not t.is_static for t in types):
        return False
    y = graph.types[op.outputs[0]]
    if y.rank != 4 or y.shape[0] != 1:
        return False
    if op.kind in WINDOWS:
        # Not with `ceil`, whose last windows reach beyond the pads. Two strides: no pools of 1 or 3 dimensions.
        return op.attrs.get("ceil", 0) == 0 and len(op.attrs.strides) == 2
    return op.kind in POINTWISE or operator(op.kind).expression(op.attrs) is not None


def rows_read(graph: Graph, op: Op, strip: Strip) -> Reads | None:
    """Returns the rows from which a strip of the result is computed; None if it would read padding only.

    Args:
        op: an operator for which `has_rows` is true.
    """
    types = graph.input_types(op)
    y = graph.types[op.outputs[0]]
    operands = [_pointwise(t, y, strip) for t in types]
    attrs, inputs = op.attrs, len(op.own_inputs)
    if op.kind in POINTWISE:
        operands[1:inputs] = [None] * (inputs - 1)
    if op.kind in WINDOWS:
        height, extent = types[0].shape[HEIGHT], WINDOWS[op.kind](attrs, types)
        top, left, _, right = attrs.pads
        first = strip.first * attrs.strides[0] - top
        end = (strip.end - 1) * attrs.strides[0] - top + (extent - 1) * attrs.dilations[0] + 1
        existing = Strip(max(first, 0), min(end, height))
        if existing.count <= 0:
            return None
        attrs = Attrs(attrs, pads=(existing.first - first, left, end - existing.end, right))
        operands[:inputs] = [existing, *(None,) * (inputs - 1)]
    return Reads(attrs, tuple(operands))


def _pointwise(type_: TensorType | None, y: TensorType, strip: Strip) -> Strip | None:
    """Returns the rows of a broadcast operand that a strip reads; None if it reads all of it."""
    if type_ is None or type_.rank < 2 or type_.shape[-2] == 1 or y.shape[HEIGHT] == 1:
        return None
    return strip


def strips_of(height: int, count: int) -> Sequence[Strip]:
    """Divides rows into at most `count` strips, all except the last of equal height."""
    rows = -(-height // count)
    return [Strip(first, min(first + rows, height)) for first in range(0, height, rows)]
