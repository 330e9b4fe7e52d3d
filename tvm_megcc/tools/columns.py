# SPDX-License-Identifier: Apache-2.0
"""Tables of plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Returns the rows as lines of columns that are as wide as their longest cell; those of `left` begin at the left
    side, the others end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if n in left else cell.rjust(width)
                      for n, (cell, width) in enumerate(zip(cells, widths, strict=True))).rstrip() for cells in rows]
