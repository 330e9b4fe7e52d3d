# SPDX-License-Identifier: Apache-2.0
"""The report of a partitioned module of TVM: filled by the front ends, read by people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_REASONS = 3
#: What a symbolic extent counts as.
SYMBOLIC = 64


@dataclass
class Report:
    """regions: name → number of operators. ours, theirs: operator → number of calls. reasons: for what is theirs.

    our_macs, their_macs: multiply-accumulates, with symbolic extents at `SYMBOLIC`; None where shapes are not known.
    tir, tir_macs: those of ours whose kernels are not hand-written, but made of TVM's loops.
    """

    regions: dict[str, int] = field(default_factory=dict)
    ours: Counter = field(default_factory=Counter)
    theirs: Counter = field(default_factory=Counter)
    reasons: dict[str, Counter] = field(default_factory=dict)
    our_macs: int = 0
    their_macs: int | None = 0
    tir: Counter = field(default_factory=Counter)
    tir_macs: int = 0

    @property
    def share(self) -> float | None:
        """Our share of the multiply-accumulates; None where the module has some that cannot be counted."""
        if self.their_macs is None:
            return None
        total = self.our_macs + self.their_macs
        return self.our_macs / total if total else 1.0

    def __str__(self) -> str:
        ours, theirs = sum(self.ours.values()), sum(self.theirs.values())
        share = "?" if self.share is None else f"{self.share:.1%}"
        lines = [f"megcc: {ours} of {ours + theirs} operators in {len(self.regions)} regions, {share} of "
                 f"{self.our_macs + (self.their_macs or 0):,} MACs"]
        if self.tir:
            listed = ", ".join(f"{count} x {name}" for name, count in sorted(self.tir.items()))
            part = f"{self.tir_macs / self.our_macs:.1%}" if self.our_macs else "none"
            lines.append(f"  made of TVM's loops: {listed}; {part} of our MACs")
        lines += [f"  region {name}: {count} operators" for name, count in self.regions.items()]
        if self.theirs:
            lines.append("  with TVM:")
        for name, count in sorted(self.theirs.items()):
            lines.append(f"    {count} x {name}")
            lines += [f"        {reason}" for reason, _ in self.reasons[name].most_common(_REASONS)]
        return "\n".join(lines)
