# SPDX-License-Identifier: Apache-2.0
"""The tiles of products by panels: P rows by vectors of columns of a panel, which has `n` columns from `column` on."""

from __future__ import annotations

from itertools import product

from ..parameters import Scope
from .printer import Printer
from .tile import Multiply


class PanelTile:
    """Prints what is done for each row p and vector v of a tile.

    Statements are given with {p}, {v}, {at} for the first column of v in the panel, and {n} for its valid columns.
    """

    def __init__(self, vectors: int, scope: Scope, multiply: Multiply | None = None):
        self.vectors, self.scope, self.multiply = range(vectors), scope, multiply or Multiply()

    def begin(self, P: int, statement: str) -> str:
        """Declares the numbers of valid columns; the statement declares a sum."""
        c, L = Printer(), self.scope.isa.lanes
        for v in self.vectors:
            n = f"n - {v * L}" if v else "n"
            c(f"const int32_t n{v} = {n} < 0 ? 0 : {n} < {L} ? {n} : {L};",
              *(statement.format(p=p, v=v, at=v * L, n=f"n{v}") for p in range(P)))
        return c.text

    def for_each(self, P: int, statement: str) -> str:
        return "\n".join(statement.format(p=p, v=v, at=v * self.scope.isa.lanes, n=f"n{v}")
                         for p, v in product(range(P), self.vectors))

    def products(self, P: int, b: str, x: str, separate: bool = False) -> str:
        """Adds to sums `a` the products of an element x of each row with vectors named b. separate: each a block."""
        c = Printer()
        for p in range(P):
            name = "x" if separate else f"x{p}"
            with c.block("", when=separate):
                c(self.multiply.load(name, x.format(p=p)),
                  *(self.multiply.add(f"a{p}_{v}", f"{b}{v}", name) for v in self.vectors))
        return c.text

    def store(self, P: int, value: str) -> str:
        """Prints the stores of values; rows of y are N apart."""
        c, L = Printer(), self.scope.isa.lanes
        for p, v in product(range(P), self.vectors):
            total = value.format(p=p, v=v, at=v * L, n=f"n{v}")
            c(self.scope.ep.store("y", f"at + {p} * N + {v * L}", total, f"column + {v * L}", f"n{v}") + ";")
        return c.text
