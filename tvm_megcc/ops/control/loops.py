# SPDX-License-Identifier: Apache-2.0
"""Loops and branches: operators with graphs in them."""

from __future__ import annotations

from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Operator, register


class Inlines(Operator):
    """An operator that is replaced by the steps of its graphs. Attribute `types`: of the results."""

    @staticmethod
    def infer(attrs: Attrs, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        return attrs.types

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        return False


@register
class Loop(Inlines):
    """Runs `body` again and again, at most `most` times and while `going` holds.

    Operands: most (int64 []), going (bool []), the initial loop-carried values, as many as attribute `carried` says,
    and what else the body reads. Results: the trip count (int64 []), going, the last loop-carried values, and scan
    outputs, stacked along a first axis that has room for all iterations. The body gets the iteration number, going, the
    loop-carried values and what else it reads; it gives going, the loop-carried values, and a row of each scan output.
    Attribute `counted`: it gives no going, for no iteration changes that.
    """

    kind = "loop"
    operands = ("most", "going", "values*")


@register
class Branch(Inlines):
    """Runs one of two bodies, `yes` or `no`. Operands: the condition (bool []), what `yes` reads, what `no` reads;
    attribute `reads`: how many the former are."""

    kind = "branch"
    operands = ("condition", "values*")
