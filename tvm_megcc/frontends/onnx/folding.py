# SPDX-License-Identifier: Apache-2.0
"""The budget of constant folding. A node of forty bytes can ask for gigabytes, and a hundred of them for hours, so the
budget grows with the constants that the model holds."""

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

#: Shapes and the like: what is as small is always computed.
SMALL = 1 << 16
#: A result may have so many bytes, or so many times those of its operands, where the model can compute it instead.
RESULT, GROWTH = 64 << 20, 4
#: One that no kernel computes, such as weights filled with a value, may have so many bytes.
NEEDED = 400 << 20
#: A table that an importer makes of attributes and extents may have so many numbers.
TABLE = 1 << 25
#: All results together: bytes read, written and multiplied, over the model's own constants.
WORK, WORK_PER_BYTE = 600 << 20, 16


@dataclass
class Folding:
    """held: bytes of the model's own constants. spent: of what was computed from them."""

    held: int = 0
    spent: int = 0

    def takes(self, kind: str, attrs: Attrs, inputs: Sequence[np.ndarray | None], types: Sequence[TensorType | None],
              results: Sequence[TensorType]) -> bool:
        """Whether an operator on constants is computed now; counts it if so."""
        read = sum(array.nbytes for array in inputs if array is not None)
        written = sum(number(type_.bytes) for type_ in results)
        declaration = operator(kind)
        most = max(RESULT if declaration.kernels else NEEDED, GROWTH * read)
        work = read + written + number(declaration.macs(attrs, tuple(types), tuple(results)))
        if work <= SMALL:
            return True
        if written > most or self.spent + work > WORK + WORK_PER_BYTE * self.held:
            return False
        self.spent += work
        return True

    def require_budget(self, extents: Sequence[Dim]) -> None:
        """Counts a table that is about to be made.

        Raises:
            ShapeError: where an extent is not known, the table is too large, or enough was computed already.
        """
        known = static(extents)
        if known is None:
            raise ShapeError(f"needs a table of {' × '.join(map(str, extents))} numbers, whose extents have to be "
                             "known; give the input a shape")
        if min(known, default=0) < 0:
            raise ShapeError(f"needs a table of {min(known)} numbers")
        work = 8 * math.prod(known)
        if work > 8 * TABLE or (work > SMALL and self.spent + work > WORK + WORK_PER_BYTE * self.held):
            raise ShapeError(f"needs a table of {math.prod(known):,} numbers that is computed before the model runs, "
                             "which is too large, or too much with others of this model; use smaller extents")
        self.spent += work if work > SMALL else 0
