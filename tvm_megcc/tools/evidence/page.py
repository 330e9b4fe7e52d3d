# SPDX-License-Identifier: Apache-2.0
"""Writes evidence as files: a page, JSON, and the trace as CSV in both directions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from ...errors import shortened
from .evidence import complete


def files(facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the files of the folder with the evidence: name -> contents. facts: the result of `evidence`."""
    return {"index.html": page(facts).encode(), "evidence.json": (json.dumps(facts, indent=1) + "\n").encode(),
            "operators.csv": _csv(_operator_cells(facts["operators"])),
            "functions.csv": _csv([{**row, "operators": " | ".join(row["operators"])} for row in facts["functions"]])}


def page(facts: Mapping[str, Any]) -> str:
    """Returns the page as HTML; every text in it is escaped."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
                                     trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"short": shortened, "count": lambda number: f"{number:,}"}
    return environment.get_template("evidence.html.j2").render(
        facts=facts, complete=complete(facts), operators=_operator_cells(facts["operators"]))


def text(facts: Mapping[str, Any]) -> str:
    """Returns the summary for the terminal."""
    failed = [f"  {row['name']}: {', '.join(row['against'][:3])}" for row in facts["properties"] if not row["holds"]]
    loops = (*facts["loops"], *facts["runtime_loops"])
    unknown = [f"  no bound: {row['place']} {row['head']}" for row in loops if row["at_most"] is None]
    deepest = max(facts["stack"]["entries"], key=lambda row: int(row["bytes"]))
    lines = [f"{facts['model']} for {facts['target']}: the evidence is {'' if complete(facts) else 'not '}complete",
             f"  {len(facts['properties']) - len(failed)} of {len(facts['properties'])} properties hold",
             *failed, f"  {len(loops) - len(unknown)} of {len(loops)} loops have a bound", *unknown[:5],
             f"  stack {deepest['bytes']:,} bytes at most ({deepest['entry']})",
             f"  {len(facts['operators'])} rows of operators, {len(facts['functions'])} functions, "
             f"{len(facts['gaps'])} gaps", *(f"  {gap}" for gap in facts["gaps"][:5])]
    if facts["analysis"]:
        rows = facts["analysis"]["rows"]
        clean = sum(not row["alarms"] and not row["reason"] for row in rows)
        lines.insert(-1, f"  {clean} of {len(rows)} parts of the C (kernels, runtime) have no undefined behaviour "
                         f"({facts['analysis']['tool']})")
    if "most" in facts["calls"]:
        lines.insert(-1, f"  {facts['calls']['most']:,} instructions at most in {len(facts['calls']['runs'])} runs"
                         + (f", bound {facts['calls']['at_most']:,}" if "at_most" in facts["calls"] else ""))
    return "\n".join(lines) + "\n"


def _operator_cells(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of the trace with one text in each cell."""
    def memory(row: Mapping[str, Any], direction: str) -> str:
        return "; ".join(f"{part['memory']} {part['offset']}+{part['bytes']}" for part in row.get("memory", ())
                         if part["direction"] == direction)

    return [{"operator": row["operator"] or "(inserted by the compiler)", "kind": row["kind"], "result": row["result"],
             "passes": ", ".join(row["passes"]), "call": row.get("call", ""),
             "function": row.get("function", row.get("end", "")), "file": row.get("file", ""),
             "reads": memory(row, "in"), "writes": memory(row, "out"), "test": row["test"]} for row in rows]


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue().encode()
