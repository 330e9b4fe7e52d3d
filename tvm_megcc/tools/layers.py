# SPDX-License-Identifier: Apache-2.0
"""Formats the time of each layer, largest first, and the total of each kind of operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import shortened

#: The most characters of an operator's name and of a kernel's in a table; longer ones lose their middle.
NAME_WIDTH, KERNEL_WIDTH = 44, 56


def layers(calls: Sequence[Mapping], seconds: Sequence[float]) -> list[dict]:
    """Returns a row for each call, in the order of execution: {name, kind, kernel, seconds, share, gflops}.

    calls: those of a manifest's program. gflops: two operations for each multiply-add; None if there are none.
    """
    total = sum(seconds) or 1.0
    return [{"name": call["origin"] or call["kind"], "kind": call["kind"], "kernel": call["kernel"],
             "seconds": time, "share": time / total,
             "gflops": 2e-9 * call["macs"] / time if call["macs"] and time else None}
            for call, time in zip(calls, seconds, strict=True)]


def kinds(rows: Sequence[Mapping]) -> list[dict]:
    """Returns {kind, calls, seconds, share} for each kind of operator, largest first."""
    found: dict[str, dict] = {}
    for row in rows:
        total = found.setdefault(row["kind"], {"kind": row["kind"], "calls": 0, "seconds": 0.0, "share": 0.0})
        total["calls"] += 1
        total["seconds"] += row["seconds"]
        total["share"] += row["share"]
    return sorted(found.values(), key=lambda total: -total["seconds"])


def text(rows: Sequence[Mapping]) -> list[str]:
    """Returns the lines of both tables; `#` is the index in the order of execution."""
    if not rows:
        return []
    names = [shortened(row["name"], NAME_WIDTH) for row in rows]
    width = max(8, *map(len, names))
    lines = [f"     #         ms      %  GFLOP/s  {'operator':{width}}  kernel"]
    for index in sorted(range(len(rows)), key=lambda index: -rows[index]["seconds"]):
        row = rows[index]
        rate = f"{row['gflops']:.2f}" if row["gflops"] else ""
        lines.append(f"  {index:4d} {row['seconds'] * 1e3:10.4f} {100 * row['share']:6.1f} {rate:>8}  "
                     f"{names[index]:{width}}  {shortened(row['kernel'], KERNEL_WIDTH)}")
    lines.append("  calls        ms      %  by kind")
    lines += [f"  {total['calls']:4d} {total['seconds'] * 1e3:10.4f} {100 * total['share']:6.1f}  {total['kind']}"
              for total in kinds(rows)]
    return lines
