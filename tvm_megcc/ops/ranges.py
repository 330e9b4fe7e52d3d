# SPDX-License-Identifier: Apache-2.0
"""Derives the valid values of a model's inputs from the operators that use them as indices. The manifest lists them
(codegen/facts.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..ir.dims import Dim
from ..ir.extent_bounds import limits
from ..ir.graph import Graph, Op
from .base import operator

#: Operators whose results consist of unchanged values of operands: kind -> the numbers of these operands, None for all.
_VALUE_PRESERVING = {
    **dict.fromkeys(("reshape", "transpose", "slice", "expand", "tile", "cast", "copy", "gather", "gather_elements",
                     "gather_nd", "reverse_sequence", "pad", "relayout"), (0,)),
    "concat": None, "where": (1, 2), "scatter_elements": (0, 2), "scatter_nd": (0, 2)}

Range = tuple[float, float]


def input_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """Returns the least and the largest valid value of each input whose values operators restrict, by its name.

    All values in these ranges are valid; others may be too, such as indices that count from the end. Inputs that are
    not restricted on both sides are left out, and inputs for which no valid value is known.
    """
    ranges: dict[str, Range] = {}
    # From the last operator to the first: when it is one's turn, the range of its result is known.
    for op in reversed(graph.ops):
        types = tuple(map(graph.type_of, op.own_inputs))
        # The values that the operator accepts of its own operands, such as indices.
        for index, (lower, upper) in operator(op.kind).accepted(op.attrs, types).items():
            if index < len(op.inputs):  # the operand may be optional and absent
                _narrow(ranges, op.inputs[index], (_smallest_value(lower), _smallest_value(upper)))
        if op.outputs[0] in ranges:
            for name, range_ in _operand_ranges(graph, op, ranges[op.outputs[0]]):
                _narrow(ranges, name, range_)
    return {name: (math.ceil(lower), math.floor(upper)) for name, (lower, upper) in ranges.items()
            if name in graph.inputs and -math.inf < lower <= upper < math.inf}


def _smallest_value(dim: Dim) -> float:
    """Returns the smallest value of an extent: an upper limit that depends on symbols is valid for all their values
    then. Lower limits are numbers."""
    lower, _ = limits(dim)
    return -math.inf if lower is None else lower


def _narrow(ranges: dict[str, Range], name: str, range_: Range) -> None:
    """Intersects a value's range with another. If the intersection is empty, as for an index that wraps in one branch,
    the first range stays."""
    lower, upper = ranges.get(name, (-math.inf, math.inf))
    intersection = max(lower, range_[0]), min(upper, range_[1])
    if name and intersection[0] <= intersection[1]:
        ranges[name] = intersection


def _operand_ranges(graph: Graph, op: Op, range_: Range) -> Iterator[tuple[str, Range]]:
    """Yields operands of an operator, with the ranges that they must be in so that its result is in `range_`."""
    lower, upper = range_
    if op.kind in _VALUE_PRESERVING:
        for index in _VALUE_PRESERVING[op.kind] or range(len(op.inputs)):
            yield op.inputs[index], range_
    elif op.kind == "logical_not" and lower == upper and lower in (0, 1):
        yield op.inputs[0], (1 - lower, 1 - lower)
    elif op.kind == "equal" and lower == upper == 1:
        for value, other in (op.inputs, op.inputs[::-1]):
            constant = graph.constants.get(other)
            if constant is not None and constant.size == 1 and constant.dtype.kind in "iub":
                yield value, (int(constant.item()),) * 2
    elif op.kind in ("add", "sub", "mul") and len(op.inputs) == 2:
        for value, other in (op.inputs, op.inputs[::-1]):
            constant = graph.constants.get(other)
            if constant is None or not constant.size or constant.dtype.kind not in "iu" \
                    or (op.kind == "sub" and other == op.inputs[0]):
                continue
            smallest, largest = int(np.min(constant)), int(np.max(constant))
            if op.kind == "add":
                yield value, (lower - smallest, upper - largest)
            elif op.kind == "sub":
                yield value, (lower + largest, upper + smallest)
            elif smallest > 0:
                yield value, (max(lower / smallest, lower / largest), min(upper / smallest, upper / largest))
