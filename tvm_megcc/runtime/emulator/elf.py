# SPDX-License-Identifier: Apache-2.0
"""Section sizes of ELF files, objects and programs alike.

Names and offsets of fields are those of the System V ABI, chapter 4: `Elf32_Ehdr` and `Elf32_Shdr`, or those of Elf64.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from pathlib import Path

from ...errors import ToolError

#: Flags of a section (sh_flags), and the type (sh_type) of one that has no bytes in the file.
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS = 1, 2, 4, 8
#: Indices in e_ident, and their values.
EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB = 4, 5, 2, 1


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
    if elf[:4] != b"\x7fELF" or elf[EI_DATA] != ELFDATA2LSB:
        raise ToolError(f"{path} is no little-endian ELF file: sizes cannot be read from it")
    wide = elf[EI_CLASS] == ELFCLASS64
    word = "<Q" if wide else "<I"
    (table,) = struct.unpack_from(word, elf, 0x28 if wide else 0x20)  # e_shoff
    # e_shentsize, e_shnum, e_shstrndx
    entry, count, names_index = struct.unpack_from("<HHH", elf, 0x3A if wide else 0x2E)
    fields_at = (8, 24, 32) if wide else (8, 16, 20)  # sh_flags, sh_offset, sh_size in a section header

    def header(index: int) -> tuple[int, int, int, int, int]:
        """Returns sh_name, sh_type, sh_flags, sh_offset and sh_size of a section."""
        start = table + index * entry
        name, kind = struct.unpack_from("<II", elf, start)
        return name, kind, *(struct.unpack_from(word, elf, start + field)[0] for field in fields_at)

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
