# SPDX-License-Identifier: Apache-2.0
"""Derives the valid values of a model's inputs from the operators that use them as indices."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..ir.dims import Dim, limits
from ..ir.graph import Graph, Op
from .base import operator

#: Operators whose results consist of unchanged values of these operands; None: of all operands.
_MOVED = {**dict.fromkeys(("reshape", "transpose", "slice", "expand", "tile", "cast", "copy", "gather",
                           "gather_elements", "gather_nd", "reverse_sequence", "pad", "relayout"), (0,)),
          "concat": None, "where": (1, 2), "scatter_elements": (0, 2), "scatter_nd": (0, 2)}

Range = tuple[float, float]


def input_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """Returns input -> the least and the largest valid value of its elements, if operators restrict them.

    All values in these ranges are valid; others may be too, such as indices that count from the end. Inputs without
    restrictions are left out, and those for which no valid value is known.
    """
    wanted: dict[str, Range] = {}
    for op in reversed(graph.ops):
        types = tuple(map(graph.type_of, op.own_inputs))
        for index, (low, high) in operator(op.kind).accepted(op.attrs, types).items():
            if index < len(op.inputs):
                _narrow(wanted, op.inputs[index], (_least(low), _least(high)))
        if op.outputs[0] in wanted:
            for name, range_ in _operand_ranges(graph, op, wanted[op.outputs[0]]):
                _narrow(wanted, name, range_)
    return {name: (math.ceil(low), math.floor(high)) for name, (low, high) in wanted.items()
            if name in graph.inputs and -math.inf < low <= high < math.inf}


def _least(dim: Dim) -> float:
    low, _ = limits(dim)
    return -math.inf if low is None else low


def _narrow(wanted: dict[str, Range], name: str, range_: Range) -> None:
    """Intersects a value's range with another. If the intersection is empty, as for an index that wraps in one branch,
    the first range stays."""
    low, high = wanted.get(name, (-math.inf, math.inf))
    both = max(low, range_[0]), min(high, range_[1])
    if name and both[0] <= both[1]:
        wanted[name] = both


def _operand_ranges(graph: Graph, op: Op, range_: Range) -> Iterator[tuple[str, Range]]:
    """Yields operands of an operator, with the ranges that they must be in so that its result is in a range."""
    low, high = range_
    if op.kind in _MOVED:
        for index in _MOVED[op.kind] or range(len(op.inputs)):
            yield op.inputs[index], range_
    elif op.kind == "logical_not" and low == high and low in (0, 1):
        yield op.inputs[0], (1 - low, 1 - low)
    elif op.kind == "equal" and low == high == 1:
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
            least, most = int(np.min(constant)), int(np.max(constant))
            if op.kind == "add":
                yield value, (low - least, high - most)
            elif op.kind == "sub":
                yield value, (low + most, high + least)
            elif least > 0:
                yield value, (max(low / least, low / most), min(high / least, high / most))
