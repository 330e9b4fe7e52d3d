# SPDX-License-Identifier: Apache-2.0
"""Kernels of CTC decoding. One task decodes one row of a batch.

Extents: N rows, T frames, C classes, R sequences of a row, L tokens of the longest sequence, B prefixes in a beam. All
kernels read scores float32 [N, T, C] and, if it is there, lengths int64 [N], the number of frames of each row.
`numbers` counts the tokens of each sequence. ops/search/ctc.py says what operands and results mean.
"""

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
    """Takes the best class of each frame, once for each run of equal ones, and leaves out blanks.

    Results: tokens int64 [N, L]; frames int64 [N, L], the first frame of each token; values float32 [N, L], the scores
    of these frames; numbers int64 [N].
    """

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
    """Prefix beam search. The prefixes are a tree, whose capacity is the largest number of prefixes of a search: the
    empty one, and B more for each frame.

    Results: tokens int64 [N, R, L], the best sequences; numbers int64 [N, R]; values float32 [N, R], the logarithms of
    the sequences' probabilities.
    """

    name = "prefixes"
    dtypes = (FLOAT32, _INT64)

    def lower(self, site: Site) -> Lowered:
        N, T, C, R, L, B = extent_symbols("N", "T", "C", "R", "L", "B")
        params = CtcParameters(site.attrs.blank, site.has(1))
        # Scratch: double [C], the scores of a frame; two beams of B hypotheses and a heap of B candidates; and the
        # tree, of B * T + 1 nodes.
        return Lowered("search/ctc_beam", params, {**_extents(site), "R": site.attrs.sequences, "L": site.attrs.most,
                                                   "B": site.attrs.beam},
                       present(site, Operand("scores", 0, N * T * C), Operand("lengths", 1, N)),
                       (Operand("tokens", 0, N * R * L), Operand("numbers", 1, N * R), Operand("values", 2, N * R)),
                       N, f"ctc_beam{params.name}", self.name,
                       scratch=beam_bytes(T, C, B))


class CtcAlignment(Kernel):
    """Aligns given sequences to frames: finds the best path through the states of each by dynamic programming
    (Viterbi). A sequence of n tokens has 2 * n + 1 states: each token, and a blank before, between and after them.

    Operands: also tokens int64 [N, R, L] and numbers int64 [N, R]. Results: frames int64 [N, R, L], the first frame of
    each token; values float32 [N, R], the logarithms of the paths' probabilities.
    """

    name = "states"
    dtypes = (FLOAT32, _INT64)

    def lower(self, site: Site) -> Lowered:
        N, T, C, R, L = extent_symbols("N", "T", "C", "R", "L")
        params = CtcParameters(site.attrs.blank, site.has(3))
        states = 2 * L + 1
        # Scratch: double [states], the score of the best path to each state; then uint8 [T][states], by how many states
        # that path advanced in each frame, for the way back.
        return Lowered("search/ctc_align", params, {**_extents(site), "R": site.y.shape[1],
                                                    "L": site.y.shape[2]},
                       present(site, Operand("scores", 0, N * T * C), Operand("tokens", 1, N * R * L),
                               Operand("numbers", 2, N * R), Operand("lengths", 3, N)),
                       (Operand("frames", 0, N * R * L), Operand("values", 1, N * R)), N,
                       f"ctc_align{params.name}", self.name, scratch=8 * states + states * T)


def _extents(site: Site) -> dict[str, Dim]:
    return dict(zip(("N", "T", "C"), site.x.shape, strict=True))
