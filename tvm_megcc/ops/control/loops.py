# SPDX-License-Identifier: Apache-2.0
"""Loops and branches: operators with subgraphs."""

from __future__ import annotations

from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Operator, register


class Inlines(Operator):
    """An operator that is replaced by the instructions of its subgraphs. Attribute `types`: of the results."""

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        types: tuple[TensorType, ...] = attrs.types
        return types

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        return False


@register
class Loop(Inlines):
    """Runs `body` repeatedly, at most `most` times and while `going` holds, as ONNX's Loop.

    Operands: most (the maximum trip count, int64 []), going (the condition, bool []), `carried` initial loop-carried
    values, and captured values of the body. Results: the trip count (int64 []), going, the final loop-carried values,
    and scan outputs, stacked along a first axis with the capacity of all iterations. Inputs of the body: the iteration
    number, going, the loop-carried values and the captured ones. Its outputs: going, the loop-carried values, and a row
    of each scan output. Attribute `counted`: the body has no output going, since no iteration changes it.
    """

    kind = "loop"
    operands = ("most", "going", "values*")


@register
class Branch(Inlines):
    """Runs one of two bodies, `yes` or `no`. Operands: the condition (bool []), the captured values of `yes`, those of
    `no`. Attribute `reads`: the number of the former."""

    kind = "branch"
    operands = ("condition", "values*")
