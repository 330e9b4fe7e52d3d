# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices of bytes that have two to four rows or columns, such as the channels of an image."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ..base import Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost
from .relayout import RelayoutMatrix
from .strided import TransposeMatrix

#: Bytes of a vector.
VECTOR = 16
#: The length of a task along the other axis: its operand and its result have at most 8 KB.
CHUNK = 2048
#: The numbers of rows or columns that the kernel is for.
SHORT = (2, 3, 4)


@dataclass(frozen=True)
class Shuffle:
    """A shuffle of two vectors of bytes, as `__builtin_shuffle` of gcc does it.

    a, b: C names of the vectors. lanes: for each byte of the result, its index in the bytes of a and then b.
    """

    a: str
    b: str
    lanes: tuple[int, ...]


def gather_bytes(sources: list[tuple[int, int]]) -> tuple[Shuffle, ...]:
    """Returns shuffles of the vectors v0, v1, … of which the last one gathers bytes; `merged` is the C name of the
    result of an earlier one.

    sources: for each byte of the result, (the number of its vector, its index there).
    """
    shuffles = [Shuffle("v0", "v1", tuple(vector * VECTOR + index if vector < 2 else 0 for vector, index in sources))]
    for other in range(2, 1 + max(vector for vector, _ in sources)):
        shuffles.append(Shuffle("merged", f"v{other}", tuple(
            VECTOR + index if vector == other else lane for lane, (vector, index) in enumerate(sources))))
    return tuple(shuffles)


@dataclass(frozen=True)
class TransposeBytesParameters(UnitParameters):
    """Parameters of `transpose_bytes.c.j2`.

    short: the number of rows or of columns of a matrix, 2 to 4.
    has_short_rows: whether a matrix has `short` columns, so that its rows are short; otherwise it has `short` rows.
    chunk: the length of a task along the other axis.
    shuffles: for each vector of the result of 16 rows or columns, the shuffles that make it, of which each overwrites
        the C variable `merged`.
    """

    short: int
    has_short_rows: bool
    chunk: int
    shuffles: tuple[tuple[Shuffle, ...], ...]


def transposing_shuffles(short: int, has_short_rows: bool) -> tuple[tuple[Shuffle, ...], ...]:
    """Returns, for each vector of the result of 16 rows or columns, the shuffles that make it."""
    if has_short_rows:  # byte i of column c is byte short * i + c of the operand
        vectors = [[divmod(short * i + c, VECTOR) for i in range(VECTOR)] for c in range(short)]
    else:  # byte i of the result is in row i % short, at column i // short
        vectors = [[(i % short, i // short) for i in range(VECTOR * v, VECTOR * (v + 1))] for v in range(short)]
    return tuple(gather_bytes(sources) for sources in vectors)


class TransposeBytes(TransposeMatrix):
    """Transposes by shuffles of vectors, 16 rows or columns at a time."""

    name = "shuffled"

    def refuse(self, site: Site):
        # SSE2 lacks PSHUFB. On RISC-V and Helium no compiler is known to make few instructions of a constant shuffle.
        isa = site.isa
        if isa.lanes == 1 or isa.wide or isa.helium or isa.name == "sse2":
            return "is for CPUs that shuffle bytes by few instructions"
        if site.x.itemsize != 1:
            return "is for elements of one byte"
        matrices = self._matrices(site.op, site.x, site.y)
        if matrices is None:
            return "is not a transpose of matrices"
        return None if any(extent in SHORT for extent in matrices[1:]) else "has no two to four rows or columns"

    def lower(self, site: Site) -> Lowered:
        n, r, c = extent_symbols("N", "R", "C")
        extents = dict(zip("NRC", self._matrices(site.op, site.x, site.y), strict=True))
        has_short_rows = extents["C"] in SHORT
        short = extents["C" if has_short_rows else "R"]
        params = TransposeBytesParameters(
            unit=site.x.c_type, short=short, has_short_rows=has_short_rows, chunk=CHUNK,
            shuffles=transposing_shuffles(short, has_short_rows))
        return Lowered("move/transpose_bytes", params, extents, (Operand("x", 0, n * r * c),),
                       (Operand("y", 0, n * r * c),), n * ceildiv(r if has_short_rows else c, CHUNK),
                       f"transpose_{short}_{'columns' if has_short_rows else 'rows'}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=0.25)


class RelayoutBytes(TransposeBytes, RelayoutMatrix):
    """Converts between plain and nhwc with two to four channels."""
