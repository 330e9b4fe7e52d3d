# SPDX-License-Identifier: Apache-2.0
"""Kernels whose results have data-dependent extents."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ...ir.types import DTYPES
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class NonZeroParameters(Parameters):
    """Parameters of `nonzero.c.j2`. rank: the number of axes of the operand."""

    rank: int


class NonZeroCount(Kernel):
    """Counts the elements that are not 0, in one task."""

    name = "scan"

    def refuse(self, site: Site):
        # The elements of a storage-only dtype (which has a carrier) cannot be compared in C.
        return f"not on {site.x.dtype}" if DTYPES[site.x.dtype].carrier else None

    def lower(self, site: Site) -> Lowered:
        (n,) = extent_symbols("N")
        return Lowered("sort/count_nonzero", Parameters(), {"N": site.x.size}, (Operand("x", 0, n),),
                       (Operand("y", 0, 1),), 1, site.kind, self.name)


class NonZeroScan(NonZeroCount):
    """Lists the indices of the elements that are not 0, in one task."""

    def lower(self, site: Site) -> Lowered:
        x, rank = site.x, site.x.rank
        axes = extent_symbols(*(f"X{axis}" for axis in range(rank)))
        (count,) = extent_symbols("COUNT")
        extents = {**{f"X{axis}": extent for axis, extent in enumerate(x.shape)}, "COUNT": site.attrs.count}
        return Lowered("sort/nonzero", NonZeroParameters(rank), extents, (Operand("x", 0, product(axes)),),
                       (Operand("y", 0, rank * count),), 1, f"nonzero{rank}", self.name)


@dataclass(frozen=True)
class NonMaxParameters(Parameters):
    """Parameters of `non_max.c.j2`.

    counted: whether the number of boxes is a result; otherwise it must be COUNT, or the call fails.
    is_vectorised: whether corner coordinates and areas of accepted boxes are copied to five arrays, which are compared
        by vectors.
    """

    counted: bool
    is_vectorised: bool


class NonMaxSearch(Kernel):
    """Non-maximum suppression in one task.

    For each class, it repeatedly takes the best remaining box, and accepts it unless an accepted box overlaps it.
    """

    name = "search"
    dtypes = (FLOAT32, FLOAT32, ("int64",), FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        attrs, (batch, boxes, _) = site.attrs, site.x.shape
        counted = len(site.outputs) == 2
        B, C, N, count = extent_symbols("B", "C", "N", "COUNT")
        extents = {"B": batch, "C": site.inputs[1].shape[1], "N": boxes, "COUNT": attrs.count}
        operands = (Operand("boxes", 0, 4 * B * N), Operand("scores", 1, B * C * N), Operand("max_boxes", 2, 1),
                    Operand("overlap_threshold", 3, 1),
                    Operand("score_threshold", 4, 1))
        results = (Operand("y", 0, 3 * count), *((Operand("count", 1, 1),) if counted else ()))
        lanes = site.isa.lanes
        is_vectorised = lanes > 1 and not site.compact
        # Scratch: corners float32 [N][4], areas float32 [N] and a heap int32 [N]; with vectors also the corners and
        # areas of accepted boxes, float32 [5][N + lanes].
        return Lowered("sort/non_max", NonMaxParameters(counted, is_vectorised), extents, operands, results, 1,
                       "non_max_suppression" + "_counted" * counted, self.name,
                       scratch=24 * N + (20 * (N + lanes) if is_vectorised else 0))

    def cost(self, site: Site) -> float:
        # 8 to compare a box with an accepted one, of which there may be 32: a guess.
        return 8.0 * site.likely.inputs[1].size * 32
