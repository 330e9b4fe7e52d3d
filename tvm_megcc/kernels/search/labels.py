# SPDX-License-Identifier: Apache-2.0
"""The kernel of the text of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class LabelsParameters(Parameters):
    """Parameters of `labels.c.j2`. strip: whether a space at the beginning of a string is left out."""

    strip: bool


class LabelsCopies(Kernel):
    """Copies the labels of one row in a task."""

    name = "copies"
    dtypes = (("int64",), ("int64",), ("uint8",), ("int32",))
    constants = (2, 3)

    def lower(self, site: Site) -> Lowered:
        N, L, V, B, M = extent_symbols("N", "L", "V", "B", "M")
        table, ends = site.inputs[2:]
        assert table is not None and ends is not None, "both are required"
        extents = {"N": site.x.shape[0], "L": site.x.shape[1], "B": table.shape[0], "V": ends.shape[0],
                   "M": site.attrs.most}
        return Lowered("search/labels", LabelsParameters(bool(site.attrs.strip)), extents,
                       (Operand("tokens", 0, N * L), Operand("numbers", 1, N), Operand("table", 2, B),
                        Operand("ends", 3, V)), (Operand("strings", 0, N * M), Operand("sizes", 1, N)), N,
                       "labels" + "_strip" * bool(site.attrs.strip), self.name)
