# SPDX-License-Identifier: Apache-2.0
"""The tiles of matrix products that work on panels of b: P rows of a by the columns of a panel, in vectors. The panel
holds `n` columns of b from `column` on; its other columns are zeros."""

from __future__ import annotations

from itertools import product

from ..parameters import Scope
from .printer import Printer
from .tile import Multiply


class PanelTile:
    """Prints C for each row and each vector of a tile.

    A `statement` is C with placeholders: {p} for the row, {v} for the vector, {at} for the vector's first column in the
    panel, and {n} for the number of its columns that are in b.
    """

    def __init__(self, vectors: int, scope: Scope, multiply: Multiply | None = None):
        self.vectors, self.scope, self.multiply = range(vectors), scope, multiply or Multiply()

    def begin(self, P: int, statement: str) -> str:
        """Declares n{v}, the number of columns in b, for each vector, and prints the statement for each row p and
        vector v, with `{p}`, `{v}`, `{at}` (the vector's first column in the panel) and `{n}` (n{v}) filled in. The
        statement declares the sum."""
        c, L = Printer(), self.scope.isa.lanes
        for v in self.vectors:
            n = f"n - {v * L}" if v else "n"
            c(f"const int32_t n{v} = {n} < 0 ? 0 : {n} < {L} ? {n} : {L};",
              *(statement.format(p=p, v=v, at=v * L, n=f"n{v}") for p in range(P)))
        return c.text

    def for_each(self, P: int, statement: str) -> str:
        """Prints the statement for each row and vector."""
        return "\n".join(statement.format(p=p, v=v, at=v * self.scope.isa.lanes, n=f"n{v}")
                         for p, v in product(range(P), self.vectors))

    def products(self, P: int, b: str, x: str, separate: bool = False) -> str:
        """Adds to the sums a{p}_{v} the products of an element of row p with the vectors of b.

        b: prefix of the names of these vectors. x: C with {p}, the element. separate: each row is a block in braces.
        """
        c = Printer()
        for p in range(P):
            name = "x" if separate else f"x{p}"
            with c.block("", when=separate):
                c(self.multiply.load(name, x.format(p=p)),
                  *(self.multiply.add(f"a{p}_{v}", f"{b}{v}", name) for v in self.vectors))
        return c.text

    def store(self, P: int, value: str) -> str:
        """Prints the epilogue and the store of each row and vector.

        value: C with the placeholders of a statement, the sum before the epilogue. The C variable y_index is the index
        in y of the tile's first element; rows of y are N elements apart. Only n{v} columns of a vector are stored, as
        many as are in b.
        """
        c, L = Printer(), self.scope.isa.lanes
        for p, v in product(range(P), self.vectors):
            total = value.format(p=p, v=v, at=v * L, n=f"n{v}")
            c(self.scope.ep.store("y", f"y_index + {p} * N + {v * L}", total, f"column + {v * L}", f"n{v}") + ";")
        return c.text
