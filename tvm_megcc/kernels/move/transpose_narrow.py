# SPDX-License-Identifier: Apache-2.0
"""Transposes of matrices that have two to four rows or columns, such as the channels of an image."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ..base import Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost
from .relayout import RelayoutMatrix
from .strided import TransposeMatrix

#: Length of a task along the other axis: operand and result of floats have at most 32 KB each.
CHUNK = 2048
#: Bytes of an element -> the numbers of rows or columns that the kernel is for. `transpose.c.j2` transposes two and
#: four rows or columns of float32 by zips.
NARROW = {1: (2, 3, 4), 4: (3,)}


@dataclass(frozen=True)
class Shuffle:
    """A shuffle of two vectors, as `__builtin_shuffle` of gcc does it.

    a, b: C names of the vectors. lanes: for each element of the result, its index in the elements of a and then b.
    """

    a: str
    b: str
    lanes: tuple[int, ...]


def gathering_shuffles(sources: list[tuple[int, int]]) -> tuple[Shuffle, ...]:
    """Returns shuffles of the vectors v0, v1, … of which the last one gathers elements; `merged` is the C name of the
    result of an earlier one.

    sources: for each element of the result, (the number of its vector, its index there).
    """
    lanes = len(sources)
    shuffles = [Shuffle("v0", "v1", tuple(vector * lanes + index if vector < 2 else 0 for vector, index in sources))]
    for other in range(2, 1 + max(vector for vector, _ in sources)):
        shuffles.append(Shuffle("merged", f"v{other}", tuple(
            lanes + index if vector == other else lane for lane, (vector, index) in enumerate(sources))))
    return tuple(shuffles)


def transposing_shuffles(narrow: int, has_narrow_rows: bool, lanes: int) -> tuple[tuple[Shuffle, ...], ...]:
    """Returns, for each vector of the result of `lanes` rows or columns, the shuffles that make it."""
    if has_narrow_rows:  # element i of column c is element narrow * i + c of the operand
        vectors = [[divmod(narrow * i + c, lanes) for i in range(lanes)] for c in range(narrow)]
    else:  # element i of the result is in row i % narrow, at column i // narrow
        vectors = [[(i % narrow, i // narrow) for i in range(lanes * v, lanes * (v + 1))] for v in range(narrow)]
    return tuple(gathering_shuffles(sources) for sources in vectors)


@dataclass(frozen=True)
class TransposeNarrowParameters(UnitParameters):
    """Parameters of `transpose_narrow.c.j2`.

    lanes: the number of elements in a vector.
    bytes: the bytes of an element.
    narrow: the number of rows or of columns of a matrix, 2 to 4.
    has_narrow_rows: whether rows have `narrow` elements each; otherwise a matrix has `narrow` rows.
    chunk: the length of a task along the other axis.
    shuffles: for each vector of the result of `lanes` rows or columns, the shuffles that make it, of which each
        overwrites the C variable `merged`.
    """

    lanes: int
    bytes: int
    narrow: int
    has_narrow_rows: bool
    chunk: int
    shuffles: tuple[tuple[Shuffle, ...], ...]


class TransposeNarrow(TransposeMatrix):
    """Transposes by shuffles of vectors, a vector of rows or columns at a time."""

    name = "shuffled"

    def refuse(self, site: Site) -> str | None:
        # No compiler is known to make few instructions of a constant shuffle on RISC-V and Helium.
        isa, size = site.isa, site.x.itemsize
        if isa.lanes == 1 or isa.wide or isa.helium or (isa.name == "sse2" and size == 1):  # SSE2 lacks PSHUFB
            return "is for CPUs that shuffle such elements by few instructions"
        if size not in NARROW:
            return "is for elements of one or four bytes"
        matrices = self._matrices(site.op, site.x, site.y)
        if matrices is None:
            return "is not a transpose of matrices"
        return None if any(extent in NARROW[size] for extent in matrices[1:]) else "has too many rows and columns"

    def lower(self, site: Site) -> Lowered:
        n, r, c = extent_symbols("N", "R", "C")
        matrices, size = self._matrices(site.op, site.x, site.y), site.x.itemsize
        assert matrices is not None  # `refuse`
        has_narrow_rows = matrices[2] in NARROW[size]
        narrow, lanes = matrices[2 if has_narrow_rows else 1], 16 if size == 1 else site.isa.lanes
        assert isinstance(narrow, int)
        params = TransposeNarrowParameters(
            unit=site.x.c_type, lanes=lanes, bytes=size, narrow=narrow, has_narrow_rows=has_narrow_rows, chunk=CHUNK,
            shuffles=transposing_shuffles(narrow, has_narrow_rows, lanes))
        tasks = n * ceildiv(r if has_narrow_rows else c, CHUNK)
        return Lowered("move/transpose_narrow", params, dict(zip("NRC", matrices, strict=True)),
                       (Operand("x", 0, n * r * c),), (Operand("y", 0, n * r * c),), tasks,
                       f"transpose_{narrow}_{'columns' if has_narrow_rows else 'rows'}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=0.25 * site.x.itemsize)


class RelayoutNarrow(TransposeNarrow, RelayoutMatrix):
    """Converts between plain and nhwc with two to four channels."""
