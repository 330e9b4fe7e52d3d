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

    Operands: most (int64 []), going (bool []), the first of `carried` values that go round, what else the body reads.
    Results: how many turns there were (int64 []), going, the last values that went round, and what each turn gave,
    stacked along a first axis that has room for all turns. The body gets the number of the turn, going, the values
    that go round and what else it reads; it gives going, the values that go round, and what is stacked. Attribute
    `counted`: it gives no going, for no iteration changes that.
    """

    kind = "loop"
    operands = ("most", "going", "values*")


@register
class Branch(Inlines):
    """Runs one of two bodies, `yes` or `no`. Operands: the condition (bool []), what `yes` reads, what `no` reads;
    attribute `reads`: how many the former are."""

    kind = "branch"
    operands = ("condition", "values*")
