# SPDX-License-Identifier: Apache-2.0
"""Limits constant folding. A node of forty bytes can ask for gigabytes, and a hundred nodes for hours of work, so the
budget is proportional to the constants that the model contains."""

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

#: Operators of at most this much work in bytes, such as those on shapes, are always folded.
SMALL = 1 << 16
#: The largest folded result, in bytes and as a multiple of its operands' bytes, if a kernel can compute it instead.
RESULT, GROWTH = 64 << 20, 4
#: The largest folded result in bytes if no kernel computes it, such as weights filled with a value.
NEEDED = 400 << 20
#: The most elements of a table that an importer computes from attributes and extents.
TABLE = 1 << 25
#: The budget in bytes read, written and multiplied: a fixed part, and a part for each byte of the model's constants.
WORK, WORK_PER_BYTE = 600 << 20, 16


@dataclass
class Folding:
    """The budget of one import. constant_bytes: of the model's own constants. spent: the work done so far, in bytes."""

    constant_bytes: int = 0
    spent: int = 0

    def takes(self, kind: str, attrs: Attrs, inputs: Sequence[np.ndarray | None], types: Sequence[TensorType | None],
              results: Sequence[TensorType]) -> bool:
        """Whether an operator on constants is folded; if so, its work is charged to the budget."""
        read = sum(array.nbytes for array in inputs if array is not None)
        written = sum(number(type_.bytes) for type_ in results)
        declaration = operator(kind)
        most = max(RESULT if declaration.kernels else NEEDED, GROWTH * read)
        work = read + written + number(declaration.macs(attrs, tuple(types), tuple(results)))
        if work <= SMALL:
            return True
        if written > most or self.spent + work > WORK + WORK_PER_BYTE * self.constant_bytes:
            return False
        self.spent += work
        return True

    def require_budget(self, extents: Sequence[Dim]) -> None:
        """Charges a table of this shape, which the importer is about to compute, to the budget.

        Raises:
            ShapeError: if an extent is not known, the table is too large, or the budget is spent.
        """
        known = static(extents)
        if known is None:
            raise ShapeError(f"needs a table of {' × '.join(map(str, extents))} numbers, whose extents have to be "
                             "known; give the input a shape")
        if min(known, default=0) < 0:
            raise ShapeError(f"needs a table of {min(known)} numbers")
        work = 8 * math.prod(known)
        if work > 8 * TABLE or (work > SMALL and self.spent + work > WORK + WORK_PER_BYTE * self.constant_bytes):
            raise ShapeError(f"needs a table of {math.prod(known):,} numbers that is computed before the model runs, "
                             "which is too large, or too much with others of this model; use smaller extents")
        self.spent += work if work > SMALL else 0
