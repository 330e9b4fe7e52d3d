# SPDX-License-Identifier: Apache-2.0
"""Loops and branches: operators whose attributes hold subgraphs (`Body`), from ONNX's Loop, Scan and If and TFLite's
WHILE and IF."""

from __future__ import annotations

from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Operator, register


class Inlines(Operator):
    """The base of operators that codegen/inline.py replaces by the steps of their subgraphs. Attribute `types`: the
    types of the results."""

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        types: tuple[TensorType, ...] = attrs.types
        return types

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        return False


@register
class Loop(Inlines):
    """Runs a subgraph repeatedly, at most `max_trip_count` times and while a condition holds, as ONNX's Loop.

    Operands: max_trip_count int64 []; condition bool []; the initial loop-carried values; the values that the body
    captures. Results: the trip count int64 []; the condition after it; the final loop-carried values; and the scan
    outputs, stacked along a first axis, whose extent is the capacity for all iterations.

    Attributes: `body`: the subgraph; `carried`: the number of loop-carried values; `counted`: the body has no output
    condition, since no iteration changes it. Inputs of the body: the iteration number, the condition, the loop-carried
    values and the captured ones. Its outputs: the condition, the loop-carried values, and a row of each scan output.
    """

    kind = "loop"
    operands = ("max_trip_count", "condition", "values*")


@register
class Branch(Inlines):
    """Runs one of two subgraphs, as ONNX's If.

    Operands: condition bool []; the values that `yes` captures; those that `no` captures. Attributes: `yes`, `no`: the
    subgraphs; `reads`: the number of values that `yes` captures.
    """

    kind = "branch"
    operands = ("condition", "values*")
