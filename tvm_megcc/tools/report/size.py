# SPDX-License-Identifier: Apache-2.0
"""`megcc inspect --size`: bytes of code and constants of a generated folder, built for size for one target."""

from __future__ import annotations

from pathlib import Path

from ...codegen.machines import STATIC_PROFILE
from ...errors import shortened
from ...runtime.build import compile_objects
from ...runtime.emulator import elf

#: Compiler flags for the smallest code, linked to fixed addresses.
FLAGS = ("-Os", "-fno-pie", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", *STATIC_PROFILE)


def size(folder: Path, target=None, cc: str | None = None) -> dict:
    """Returns sizes by object file. The container is data and is reported by itself."""
    built, objects = compile_objects(folder, target, cc, FLAGS)
    rows = []
    for source, path in objects:
        part = "runtime" if source.parts[0] == "runtime" else "kernels" if source.parts[0] == "kernels" else "tables"
        if source.name.endswith("_data.c"):
            part = "container"
        sections = elf.total(path)
        rows.append({"part": part, "file": source.as_posix(), "text": sections.text, "rodata": sections.rodata,
                     "data": sections.data, "bss": sections.bss})
    parts = {}
    for row in rows:
        totals = parts.setdefault(row["part"], {"text": 0, "rodata": 0, "data": 0, "bss": 0})
        for column in totals:
            totals[column] += row[column]
    containers = {path.name: path.stat().st_size for path in sorted(folder.glob("*.megcc"))}
    return {"folder": str(folder), "target": str(built.target), "compiler": str(built.compiler),
            "flags": list(FLAGS), "parts": parts, "files": rows, "containers": containers}


def text(report: dict) -> str:
    lines = [f"{report['folder']} for {report['target']}, {report['compiler']}",
             f"  {'':<40} {'text':>9} {'rodata':>9} {'data':>7} {'bss':>7}"]
    for part, totals in report["parts"].items():
        lines.append(_row(part, totals))
        files = [row for row in report["files"] if row["part"] == part and row["text"] + row["rodata"] + row["data"]]
        lines += [_row("  " + Path(row["file"]).name, row)
                  for row in sorted(files, key=lambda row: -row["text"] - row["rodata"])]
    code = [totals for part, totals in report["parts"].items() if part != "container"]
    lines.append(_row("all code", {column: sum(totals[column] for totals in code)
                                    for column in ("text", "rodata", "data", "bss")}))
    lines += [f"  {name}: {count:,} bytes" for name, count in report["containers"].items()]
    return "\n".join(lines) + "\n"


def _row(name: str, row: dict) -> str:
    return f"  {shortened(name, 40):<40} {row['text']:>9,} {row['rodata']:>9,} {row['data']:>7,} {row['bss']:>7,}"
