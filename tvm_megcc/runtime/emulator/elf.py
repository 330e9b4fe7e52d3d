# SPDX-License-Identifier: Apache-2.0
"""Section sizes of ELF files, objects and programs alike."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from pathlib import Path

from ...errors import ToolError

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS = 1, 2, 4, 8


@dataclass(frozen=True)
class Sections:
    """Bytes by kind: code, constants, initialised data, zeroed data."""

    text: int = 0
    rodata: int = 0
    data: int = 0
    bss: int = 0

    def __add__(self, other: Sections) -> Sections:
        return Sections(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def sections(path: Path) -> dict[str, Sections]:
    """Returns the sizes of the allocated sections of a 32-bit or 64-bit little-endian ELF file, by name. Sizes of
    sections with the same name are added.

    Raises:
        ToolError: if it is another kind of file.
    """
    elf = path.read_bytes()
    if elf[:4] != b"\x7fELF" or elf[5] != 1:
        raise ToolError(f"{path} is no little-endian ELF file: sizes cannot be read from it")
    wide = elf[4] == 2
    word, offset_at, flags_at, size_at = ("<Q", 24, 8, 32) if wide else ("<I", 16, 8, 20)
    (table,) = struct.unpack_from(word, elf, 0x28 if wide else 0x20)
    entry, count, names_index = struct.unpack_from("<HHH", elf, 0x3A if wide else 0x2E)

    def header(index: int) -> tuple[int, int, int, int, int]:
        start = table + index * entry
        name, kind = struct.unpack_from("<II", elf, start)
        offsets = (flags_at, offset_at, size_at)
        return name, kind, *(struct.unpack_from(word, elf, start + field)[0] for field in offsets)

    names = header(names_index)[3]
    found: dict[str, Sections] = {}
    for index in range(count):
        name_at, kind, flags, _, size = header(index)
        if flags & SHF_ALLOC:
            name = elf[names + name_at:elf.index(b"\0", names + name_at)].decode()
            found[name] = found.get(name, Sections()) + _classify(kind, flags, size)
    return found


def total(path: Path) -> Sections:
    """Returns the total size of the allocated sections of a file."""
    return sum(sections(path).values(), start=Sections())


def _classify(kind: int, flags: int, size: int) -> Sections:
    if kind == SHT_NOBITS:
        return Sections(bss=size)
    if flags & SHF_EXECINSTR:
        return Sections(text=size)
    return Sections(data=size) if flags & SHF_WRITE else Sections(rodata=size)
