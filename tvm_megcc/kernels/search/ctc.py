# SPDX-License-Identifier: Apache-2.0
"""Kernels of CTC decoding. One task decodes one row of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim
from ...ops.search.ctc import beam_bytes
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..parameters import Parameters
from ..site import Site

_INT64 = ("int64",)


@dataclass(frozen=True)
class CtcParameters(Parameters):
    """Parameters of `ctc_greedy.c.j2`, `ctc_beam.c.j2` and `ctc_align.c.j2`.

    blank: the class of the blank.
    lengths: whether there is an operand with the frames of each row.
    """

    blank: int
    lengths: bool

    @property
    def name(self) -> str:
        return f"_blank_{self.blank}" + "_lengths" * self.lengths


class CtcGreedySearch(Kernel):
    """Takes the best class of each frame."""

    name = "frames"
    dtypes = (FLOAT32, _INT64)

    def lower(self, site: Site) -> Lowered:
        N, T, C, L = extent_symbols("N", "T", "C", "L")
        params = CtcParameters(site.attrs.blank, site.has(1))
        return Lowered("search/ctc_greedy", params, {**_extents(site), "L": site.attrs.most},
                       present(site, Operand("scores", 0, N * T * C), Operand("lengths", 1, N)),
                       (Operand("tokens", 0, N * L), Operand("frames", 1, N * L), Operand("values", 2, N * L),
                        Operand("numbers", 3, N)), N, f"ctc_greedy{params.name}", self.name)


class CtcBeamSearch(Kernel):
    """Keeps the best prefixes in a tree, which has room for all that a search can make."""

    name = "prefixes"
    dtypes = (FLOAT32, _INT64)

    def lower(self, site: Site) -> Lowered:
        N, T, C, R, L, B = extent_symbols("N", "T", "C", "R", "L", "B")
        params = CtcParameters(site.attrs.blank, site.has(1))
        return Lowered("search/ctc_beam", params, {**_extents(site), "R": site.attrs.sequences, "L": site.attrs.most,
                                                   "B": site.attrs.beam},
                       present(site, Operand("scores", 0, N * T * C), Operand("lengths", 1, N)),
                       (Operand("tokens", 0, N * R * L), Operand("numbers", 1, N * R), Operand("values", 2, N * R)),
                       N, f"ctc_beam{params.name}", self.name,
                       scratch=beam_bytes(T, C, B))


class CtcAlignment(Kernel):
    """Finds the best way through the states of each sequence by dynamic programming."""

    name = "states"
    dtypes = (FLOAT32, _INT64)

    def lower(self, site: Site) -> Lowered:
        N, T, C, R, L = extent_symbols("N", "T", "C", "R", "L")
        params = CtcParameters(site.attrs.blank, site.has(3))
        states = 2 * L + 1
        return Lowered("search/ctc_align", params, {**_extents(site), "R": site.y.shape[1],
                                                    "L": site.y.shape[2]},
                       present(site, Operand("scores", 0, N * T * C), Operand("tokens", 1, N * R * L),
                               Operand("numbers", 2, N * R), Operand("lengths", 3, N)),
                       (Operand("frames", 0, N * R * L), Operand("values", 1, N * R)), N,
                       f"ctc_align{params.name}", self.name, scratch=8 * states + states * T)


def _extents(site: Site) -> dict[str, Dim]:
    return dict(zip(("N", "T", "C"), site.x.shape, strict=True))
