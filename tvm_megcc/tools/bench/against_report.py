# SPDX-License-Identifier: Apache-2.0
"""Summarises the times of `against.py`: the best peer, our relative speed, and tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..columns import aligned
from .peers import OURS, REFERENCE


def standing(engines: Mapping[str, Mapping]) -> dict:
    """Returns the peer with the best median, and our speed relative to it: median, minimum and maximum of the rounds'
    ratios.

    Args:
        engines: `seconds` and `rounds`, the seconds of each round, by name.
    """
    peers = {name: found["seconds"] for name, found in engines.items() if name != OURS}
    best = min(peers, key=peers.__getitem__) if peers else None
    if best is None or OURS not in engines:
        return {"best": best, "speed": None}
    ratios = [theirs / ours for theirs, ours in zip(engines[best]["rounds"], engines[OURS]["rounds"], strict=True)]
    return {"best": best, "speed": {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}}


def mean_speed(rows: Iterable[Mapping]) -> float | None:
    """Returns the geometric mean of our speed over the rows that have one."""
    logs = [math.log(row["speed"]["median"]) for row in rows if row["speed"]]
    return math.exp(statistics.mean(logs)) if logs else None


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(report: Mapping) -> list[Table]:
    """Returns tables by model and engine: latency with our speed, errors, memory, and start-up. Cells without data are
    blank."""
    engines = report["engines"]

    def by_engine(title: str, cell: Callable[[Mapping], str]) -> Table:
        return Table(title, ("model", *engines), tuple(
            (row["model"], *(cell(row["engines"][name]) if name in row["engines"] else "" for name in engines))
            for row in report["rows"] if row["engines"]))

    latency = by_engine("", lambda found: milliseconds(found["seconds"]))
    macs = {row["model"]: "" if row["macs"] is None else f"{row['macs'] / 1e6:.1f}" for row in report["rows"]}
    speeds = {row["model"]: (row["best"] or "", speed_text(row["speed"])) for row in report["rows"]}
    return [
        Table("latency: ms of an inference; speed: ours relative to the best peer's",
              ("model", "MMAC", *engines, "best peer", "speed"),
              tuple((model, macs[model], *cells, *speeds[model]) for model, *cells in latency.rows)),
        by_engine("errors: the largest, relative to the largest magnitude", error_text),
        by_engine("memory: MB at most, over the interpreter with the engine imported",
                  lambda found: "" if found["peak"] is None else f"{(found['peak'] - found['bare']) / 1e6:.1f}"),
        by_engine("start: ms to load the model / to its first result, loading included",
                  lambda found: f"{milliseconds(found['load'])} / {milliseconds(found['first'])}"),
    ]


def error_text(found: Mapping) -> str:
    if "share" in found:
        return f"{found['share']:.1%} differ"
    return "" if found["error"] is None else f"{found['error']:.0e}"


def milliseconds(seconds: float) -> str:
    """Formats seconds as milliseconds with three digits."""
    value = 1e3 * seconds
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def speed_text(speed: Mapping | None) -> str:
    return f"{speed['median']:.2f} ({speed['low']:.2f} to {speed['high']:.2f})" if speed else ""


def remarks(report: Mapping) -> list[str]:
    """Returns a line for each gap with its reason, and notes on the figures."""
    rows = report["rows"]
    lines = [f"{row['model']}: no {'error, for no reference' if name == REFERENCE else name}: {reason}"
             for row in rows for name, reason in row["absent"].items()]
    free = [name for name in report["engines"]
            if any(not row["engines"][name]["held"] for row in rows if name in row["engines"])]
    if free:
        lines.append(f"{', '.join(free)} cannot be held to {report['target']}: they use what the CPU has")
    if not all(found["alone"] for row in rows for found in row["engines"].values()):
        lines.append("no real-time class here (RLIMIT_RTPRIO, CAP_SYS_NICE): other programs could disturb the bursts")
    return lines


def heading(report: Mapping) -> str:
    counts = ", ".join(f"{report[what]} {what[:-1] if report[what] == 1 else what}" for what in ("threads", "rounds"))
    return f"{report['machine']}, {report['target']}, -O {report['optimize']}, {counts}"


def versions(report: Mapping) -> dict[str, str]:
    """Returns the versions of the engines that ran."""
    return {name: found["version"] for row in report["rows"] for name, found in row["engines"].items()
            if found["version"]}


def text(report: Mapping) -> str:
    used = ", ".join(f"{name} {version}" for name, version in versions(report).items())
    lines = [heading(report), *([used] if used else [])]
    for table in tables(report):
        if table.rows:
            lines += ["", table.title, *("  " + line for line in aligned((table.columns, *table.rows), left={0}))]
    mean = mean_speed(report["rows"])
    if mean is not None and len(report["rows"]) > 1:
        lines += ["", f"geometric mean of the speeds: {mean:.2f}"]
    notes = remarks(report)
    return "\n".join(lines + ([""] if notes else []) + notes) + "\n"
