# SPDX-License-Identifier: Apache-2.0
"""`megcc inspect --size`: bytes of code and constants of a generated folder, built for size for one target."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from ..runtime.build import compile_objects

#: Smallest code: no unwind tables, the static profile of the runtime.
FLAGS = ("-Os", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-DMEGCC_NO_STDIO", "-DMEGCC_NO_STRINGS",
         "-DMEGCC_NO_DYNAMIC", "-DMEGCC_NO_THREADS")
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS = 1, 2, 4, 8


@dataclass(frozen=True)
class Sections:
    """Bytes of a relocatable ELF file by what they become: code, constants, initialised and zeroed data."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0

    def __add__(self, other: Sections) -> Sections:
        return Sections(self.text + other.text, self.rodata + other.rodata, self.data + other.data,
                        self.bss + other.bss)


def size(folder: Path, target=None, cc: str | None = None) -> dict:
    """Sizes by object file. The container is data and is reported by itself."""
    built, objects = compile_objects(folder, target, cc, FLAGS)
    rows = []
    for source, path in objects:
        part = "runtime" if source.parts[0] == "runtime" else "kernels" if source.parts[0] == "kernels" else "tables"
        if source.name.endswith("_data.c"):
            part = "container"
        sections = elf_sections(path)
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
        files = sorted((row for row in report["files"] if row["part"] == part), key=lambda r: -r["text"] - r["rodata"])
        lines += [_row("  " + Path(row["file"]).name, row) for row in files]
    code = [totals for part, totals in report["parts"].items() if part != "container"]
    lines.append(_row("all code", {c: sum(t[c] for t in code) for c in ("text", "rodata", "data", "bss")}))
    lines += [f"  {name}: {count:,} bytes" for name, count in report["containers"].items()]
    return "\n".join(lines) + "\n"


def _row(name: str, row: dict) -> str:
    name = name if len(name) <= 40 else name[:39] + "…"
    return f"  {name:<40} {row['text']:>9,} {row['rodata']:>9,} {row['data']:>7,} {row['bss']:>7,}"


def elf_sections(path: Path) -> Sections:
    """Section sizes of an ELF object, 32 or 64 bit, little-endian.

    Raises:
        ToolError: if the compiler made something else.
    """
    elf = path.read_bytes()
    if elf[:4] != b"\x7fELF" or elf[5] != 1:
        raise ToolError(f"{path} is no little-endian ELF file: sizes cannot be read from it")
    wide = elf[4] == 2
    table, = struct.unpack_from("<Q" if wide else "<I", elf, 0x28 if wide else 0x20)
    entry, count = struct.unpack_from("<HH", elf, 0x3A if wide else 0x2E)
    total = Sections()
    for index in range(count):
        at = table + index * entry
        kind, = struct.unpack_from("<I", elf, at + 4)
        flags, = struct.unpack_from("<Q" if wide else "<I", elf, at + 8)
        length, = struct.unpack_from("<Q" if wide else "<I", elf, at + (0x20 if wide else 0x14))
        if flags & SHF_ALLOC:
            total += _classify(kind, flags, length)
    return total


def _classify(kind: int, flags: int, length: int) -> Sections:
    if kind == SHT_NOBITS:
        return Sections(bss=length)
    if flags & SHF_EXECINSTR:
        return Sections(text=length)
    return Sections(data=length) if flags & SHF_WRITE else Sections(rodata=length)
