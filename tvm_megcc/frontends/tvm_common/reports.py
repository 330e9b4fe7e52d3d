# SPDX-License-Identifier: Apache-2.0
"""The report on a partitioned module of TVM, which the front ends fill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ... import notebook
from ...foreign import printable

#: The most reasons that are shown for an operator.
_MAX_REASONS = 3
#: The value of symbolic extents when multiply-accumulates are counted.
EXTENT_OF_SYMBOLS = 64


@dataclass
class Report:
    """The report on a module.

    regions: name of a region → number of its operators.
    ours, theirs: operator → number of its calls in regions, and of those that stayed with TVM.
    reasons: operator → why its calls stayed with TVM, with the number of calls for each reason.
    our_macs, their_macs: multiply-accumulates, with symbolic extents at `EXTENT_OF_SYMBOLS`; None if shapes are not
        known.
    tir, tir_macs: those of ours whose kernels are printed from TVM's loops.
    dispatched: a text for each function with clones for ranges of shapes.
    """

    regions: dict[str, int] = field(default_factory=dict)
    ours: Counter = field(default_factory=Counter)
    theirs: Counter = field(default_factory=Counter)
    reasons: dict[str, Counter] = field(default_factory=dict)
    our_macs: int = 0
    their_macs: int | None = 0
    tir: Counter = field(default_factory=Counter)
    tir_macs: int = 0
    dispatched: list[str] = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """Our share of the multiply-accumulates, from 0 to 1; None if some cannot be counted."""
        if self.their_macs is None:
            return None
        total = self.our_macs + self.their_macs
        return self.our_macs / total if total else 1.0

    def _repr_html_(self) -> str:
        rows = [*((name, count, "", "") for name, count in sorted(self.ours.items())),
                *((name, "", count, "; ".join(reason for reason, _ in self.reasons[name].most_common(_MAX_REASONS)))
                  for name, count in sorted(self.theirs.items()))]
        return notebook.page(str(self).partition("\n")[0],
                             notebook.table(("operator", "ours", "TVM's", "why"), rows),
                             notebook.folded(f"{len(self.regions)} regions",
                                             notebook.table(("region", "operators"), self.regions.items())))

    def __str__(self) -> str:
        ours, theirs = sum(self.ours.values()), sum(self.theirs.values())
        share = "?" if self.share is None else f"{self.share:.1%}"
        lines = [f"megcc: {ours} of {ours + theirs} operators in {len(self.regions)} regions, {share} of "
                 f"{self.our_macs + (self.their_macs or 0):,} MACs"]
        lines += [f"  dispatch {text}" for text in self.dispatched]
        if self.tir:
            operators = ", ".join(f"{count} x {name}" for name, count in sorted(self.tir.items()))
            part = f"{self.tir_macs / self.our_macs:.1%}" if self.our_macs else "none"
            lines.append(f"  made of TVM's loops: {operators}; {part} of our MACs")
        lines += [f"  region {name}: {count} operators" for name, count in self.regions.items()]
        if self.theirs:
            lines.append("  with TVM:")
        for name, count in sorted(self.theirs.items()):
            lines.append(f"    {count} x {name}")
            lines += [f"        {reason}" for reason, _ in self.reasons[name].most_common(_MAX_REASONS)]
        return "\n".join(lines)


#: Sizes in pixels and colours of the diagram.
_ROW_HEIGHT, _WIDTH, _PAD = 18, 420, 10
_OUR_COLOR, _TVM_COLOR = "#bfe0c4", "#d5d5d5"


def box_diagram(boxes: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Returns an SVG of stacked boxes. boxes: (name of a region, its operators), or ("", one operator of TVM)."""
    lines, y = [], _PAD
    for title, operators in boxes:
        strings = [title, *operators] if title else operators
        height = _ROW_HEIGHT * len(strings) + _PAD
        lines.append(f'<rect x="{_PAD}" y="{y}" width="{_WIDTH - 2 * _PAD}" height="{height}" rx="4" '
                     f'fill="{_OUR_COLOR if title else _TVM_COLOR}"/>')
        for row, text in enumerate(strings):
            weight = ' font-weight="bold"' if title and row == 0 else ""
            lines.append(f'<text x="{2 * _PAD}" y="{y + _ROW_HEIGHT * (row + 1) - 2}"{weight}>{printable(text)}</text>')
        y += height + _PAD
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" font-family="monospace" '
            f'font-size="13">\n' + "\n".join(lines) + "\n</svg>\n")
