# SPDX-License-Identifier: Apache-2.0
"""Limits the work of constant folding. A node of forty bytes can ask for gigabytes, and a hundred nodes for hours of
work, so the budget is proportional to the constants that the model contains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim, number, static
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ...ops.base import operator

#: Operators of at most this much work in bytes, such as those on shapes, are always folded and cost no budget.
MAX_FREE_WORK = 1 << 16
#: The largest folded result in bytes if a kernel can compute it instead.
MAX_RESULT_BYTES = 64 << 20
#: The largest folded result as a multiple of its operands' bytes; the greater of both limits holds.
MAX_RESULT_GROWTH = 4
#: The largest folded result in bytes if no kernel can compute it, such as weights filled with a value.
MAX_REQUIRED_BYTES = 400 << 20
#: The most elements of a table that an importer computes from attributes and extents.
MAX_TABLE_ELEMENTS = 1 << 25
#: The budget in units of work, which are bytes read or written and multiply-accumulates: a fixed part, and a part for
#: each byte of the model's constants.
WORK_BUDGET, WORK_PER_BYTE = 600 << 20, 16


@dataclass
class FoldingBudget:
    """The budget of one import. constant_bytes: of the model's own constants. spent: the work done so far."""

    constant_bytes: int = 0
    spent: int = 0

    def charge(self, kind: str, attrs: Attrs, inputs: Sequence[np.ndarray | None], types: Sequence[TensorType | None],
              results: Sequence[TensorType]) -> bool:
        """Whether an operator on constants is folded; if so, its work is charged to the budget.

        inputs: the arrays; None for absent operands. types: their types. results: the types of the results.
        """
        read = sum(array.nbytes for array in inputs if array is not None)
        written = sum(number(type_.bytes) for type_ in results)
        declaration = operator(kind)
        max_bytes = max(MAX_RESULT_BYTES if declaration.kernels else MAX_REQUIRED_BYTES, MAX_RESULT_GROWTH * read)
        work = read + written + number(declaration.macs(attrs, tuple(types), tuple(results)))
        if work <= MAX_FREE_WORK:
            return True
        if written > max_bytes or self._exceeds(work):
            return False
        self.spent += work
        return True

    def _exceeds(self, work: int) -> bool:
        """Whether this much more work exceeds the budget."""
        return self.spent + work > WORK_BUDGET + WORK_PER_BYTE * self.constant_bytes

    def require_budget(self, extents: Sequence[Dim]) -> None:
        """Charges a table of float64 or int64 of this shape, which the importer is about to compute, to the budget.

        Raises:
            ShapeError: if an extent is not known, the table is too large, or the budget is spent.
        """
        known = static(extents)
        if known is None:
            raise ShapeError(f"needs a table of {' × '.join(map(str, extents))} numbers, whose extents have to be "
                             "known; give the input a shape")
        if min(known, default=0) < 0:
            raise ShapeError(f"needs a table of {min(known)} numbers")
        elements = math.prod(known)
        work = 8 * elements   # 8 bytes an element
        if elements > MAX_TABLE_ELEMENTS or (work > MAX_FREE_WORK and self._exceeds(work)):
            raise ShapeError(f"needs a table of {elements:,} numbers that is computed before the model runs, "
                             "which is too large, or too much with others of this model; use smaller extents")
        self.spent += work if work > MAX_FREE_WORK else 0
