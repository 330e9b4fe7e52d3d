# SPDX-License-Identifier: Apache-2.0
"""Prefetches of the keys and values of a cache, which a task with few queries reads from memory."""

from __future__ import annotations

from ...ir.types import DTYPES
from ...ops.cache_rows import SCALE_ELEMENTS
from ..microkernel.printer import Printer
from ..parameters import Scope

#: Bytes from the row that a tile reads to the one that it prefetches. On Zen 4, 3 KB to 8 KB take at most 5 % longer.
AHEAD_BYTES = 6144
#: Bytes of a page of memory.
PAGE_BYTES = 4096
#: Bytes of a cache line, and of the float in which `mgc_prefetch_ahead` counts.
LINE_BYTES, FLOAT_BYTES = 64, 4


class CachePrefetch:
    """Prints prefetches of rows of a cache.

    A head's rows are in few pages. The hardware prefetcher stops at the end of each one, and each one's address has to
    be looked up, so tiles would wait for memory most of the time. There are two prefetches. Each tile prefetches the
    rows `AHEAD_BYTES` later; the values follow the keys, and the next keys the values. And a task prefetches a line of
    each page of the next head, so that the CPU knows the pages' addresses by then.

    unit: C type of keys and values.
    """

    def __init__(self, scope: Scope, cache: str, prefix: str):
        """cache: the dtype of keys and values if it is not float32, else "". prefix: the beginning of the names of
        functions."""
        dtype = DTYPES[cache or "float32"]
        self.unit, self.size, self.prefix = dtype.c_type, dtype.bytes, prefix
        self.lanes, self.scale_elements = scope.isa.lanes, SCALE_ELEMENTS * (cache == "int8")

    def function(self, name: str, elements: int) -> str:
        """Prints the function that prefetches `elements` elements of a row."""
        c, units = Printer(), FLOAT_BYTES // self.size
        offset = "at" if units == 1 else f"at / {units}"
        c(f"/* Prefetches {elements} elements of a row. Rows from `next` on follow the `rows` rows from `from` on. */")
        with c.function(f"static MGC_INLINE void {self.prefix}{name}(const {self.unit} *from, const {self.unit} *next, "
                        "ptrdiff_t stride, int32_t row, int32_t rows)"):
            c(f"const {self.unit} *first = row < rows ? from : next;",
              "const ptrdiff_t at = (row < rows ? row : row - rows) * stride;")
            floats = range(0, -(-elements // units), LINE_BYTES // FLOAT_BYTES)
            c(*(f"mgc_prefetch_ahead(first, {offset}{f' + {begin}' if begin else ''});" for begin in floats),
              "(void)at;")
        return c.text

    def call(self, name: str, source: str, stride: str, elements: int, row: int, rows: str) -> str:
        """Returns the call that prefetches a row `AHEAD_BYTES` later.

        Args:
            source, stride, rows: C: the row that is read now, elements to the next one, rows from there to the last.
            elements: those of a row.
            row: added to the number of the row.
        """
        return f"{self.prefix}{name}({source}, next, {stride}, {self.rows(elements, AHEAD_BYTES) + row}, {rows});"

    def rows(self, elements: int, count: int) -> int:
        """Returns how many rows of so many elements `count` bytes have, at least 1."""
        return max(count // ((elements + self.scale_elements) * self.size), 1)

    def pages(self, source: str, stride: str, elements: int, offset: str) -> str:
        """Prints the prefetch of one line of each page of `rows` rows.

        Args:
            source, offset: C: rows that are read now, and elements from there to the first row of the pages.
            stride: C: elements from one row to the next. elements: those of a row.
        """
        c, units = Printer(), FLOAT_BYTES // self.size
        at = f"{offset} + row * {stride}"
        with c.block(f"for (int32_t row = 0; row < rows; row += {self.rows(elements, PAGE_BYTES)})"):
            c(f"mgc_prefetch_ahead({source}, {at if units == 1 else f'({at}) / {units}'});")
        return c.text
