# SPDX-License-Identifier: Apache-2.0
"""Embeds containers in C programs: as the text of C arrays, or as files that the assembler or the compiler includes."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..errors import MegccError
from ..target import TARGETS, Target
from ..version import VERSION
from .c_source.render import environment
from .machines import by_machine, machine_of
from .manifest import read_manifest

#: How a container is embedded: as C text, or as a file that the assembler (`.incbin`) or `#embed` includes. `AUTO`
#: chooses the file for containers of more than AUTO_TEXT_BYTES, which take long to compile as text.
TEXT, INCBIN, AUTO = "text", "incbin", "auto"
AUTO_TEXT_BYTES = 1 << 20


@dataclass(frozen=True)
class MemoryRegion:
    """A memory region of a session as the templates see it.

    name: as given by --region, such as "dtcm".
    bytes: the size of the session's block in it, for the program that needs most; 1 for the first region, whose size
        only the macro has; 0: no program uses the region.
    size: C that defines the macro with the size.
    """

    name: str
    bytes: int
    size: str = ""

    @property
    def macro(self) -> str:
        """The name in capitals, the end of macros such as `RESNET_MEMORY_BYTES_DTCM`."""
        return self.name.upper()


class DataVariables(TypedDict, total=False):
    """The context of bundle/data.c.j2 (`data_source`) and bundle/incbin.c.j2 (`including_source`).

    version: version of tvm_megcc, such as "1.4.0".
    name: the model's, a C identifier.
    declared: whether the model's header declares the array `<name>_data`; else the file does.
    regions: the memory regions that get an array; none: the caller gives all memory.
    arrays: the definitions of the array `<name>_data` in C, in `#if` for each machine if there are several.
    files: the definitions of the macro DATA_FILE, the name of the container's file in quotes, in `#if` for each
        machine.
    """

    version: str
    name: str
    declared: bool
    regions: Sequence[MemoryRegion]
    arrays: str
    files: str


def data_source(name: str, targets: Sequence[Target], parts: Sequence[bytes], declared: bool = True,
                regions: Sequence[MemoryRegion] = ()) -> str:
    """Returns C source with the containers as arrays of little-endian 64-bit words, the last one padded with zeros.

    Args:
        name: the model's.
        parts: the container of each machine that the targets can be built for (`machines.machines`).
        declared: whether the model's header declares the array, as it does for every embedded model; if not, the
            source declares it.
        regions: the memory regions that get an array.
    """
    return _render("data.c", DataVariables(name=name, version=VERSION, declared=declared, regions=regions,
                                           arrays=by_machine(targets, [_array(name, part) for part in parts])))


def part_files(name: str, parts: int) -> list[str]:
    """Returns the names of the container files that C includes: one for each machine that the model can be built
    for."""
    return [f"{name}_data.bin"] if parts == 1 else [f"{name}_data_{index}.bin" for index in range(parts)]


def including_source(name: str, targets: Sequence[Target], parts: Sequence[bytes],
                     regions: Sequence[MemoryRegion] = ()) -> str:
    """Returns C source that includes the files of `part_files` as arrays; the arguments are those of `data_source`. The
    text contains the digests of the files, so that it changes with them, and build systems compile it again."""
    rows = [f'#define DATA_FILE "{file}" /* sha256 {hashlib.sha256(part).hexdigest()} */'
            for file, part in zip(part_files(name, len(parts)), parts, strict=True)]
    return _render("incbin.c", DataVariables(name=name, version=VERSION, regions=regions,
                                             files=by_machine(targets, rows)))


def _array(name: str, part: bytes) -> str:
    """Returns the definition of a C array with these bytes, five words a line."""
    words = [f"0x{word:x}" for (word,) in struct.iter_unpack("<Q", part + bytes(-len(part) % 8))]
    rows = (",".join(words[start:start + 5]) for start in range(0, len(words), 5))
    return "\n".join([f"ALIGNED const uint64_t {name}_data[{len(words)}] = {{",
                      *(f"    {row}," for row in rows), "};"])


def read_container(folder: Path, name: str, target: Target) -> bytes:
    """Returns a container with the program for a target from a generated folder: the container file, which has all
    programs, or the embedded container for a machine that runs the target.

    Raises:
        MegccError: if the folder does not have the container that its manifest names.
    """
    path = folder / f"{name}.megcc"
    if path.exists():
        return path.read_bytes()
    model = next(m for m in read_manifest(folder)["models"] if m["name"] == name)
    sizes = model.get("embedded_bytes", ())  # of each machine's container; one if all machines have the same
    source = folder / f"{name}_data.c"
    if not sizes or not source.exists():
        raise MegccError(f"{folder} is damaged: it has neither {path.name} nor {source.name}; compile it again")
    index = min(machine_of([TARGETS[t] for t in model["targets"]], target), len(sizes) - 1)
    part = folder / part_files(name, len(sizes))[index]
    if part.exists():
        return part.read_bytes()
    arrays = re.findall(r"= \{\n(.*?)\};", source.read_text("ascii", "replace"), re.DOTALL)
    if not arrays or len(arrays) != len(sizes):
        raise MegccError(f"{folder} is damaged: {name}_data.c is not the one that was generated; compile it again")
    words = re.findall(r"\b0x[0-9a-f]+\b", arrays[index])
    return b"".join(int(word, 16).to_bytes(8, "little") for word in words)[:sizes[index]]


def _render(name: str, context: DataVariables) -> str:
    return environment().get_template(f"bundle/{name}.j2").render(context)
