# SPDX-License-Identifier: Apache-2.0
"""Embeds containers in the program: as C text, or as files that the assembler or the compiler includes."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import MegccError
from ..target import TARGETS, Target
from ..version import VERSION
from .c_source.render import environment
from .machines import by_machine, machine_of
from .manifest import read_manifest

#: How a container is embedded: as C text, or as a file that the assembler or `#embed` includes. `AUTO` chooses the file
#: for models that are too large to be compiled quickly as text.
TEXT, INCBIN, AUTO = "text", "incbin", "auto"
LARGE = 1 << 20


def data_source(name: str, targets: Sequence[Target], parts: Sequence[bytes], declared: bool = True,
                regions: Sequence[object] = ()) -> str:
    """Prints containers as C, one for each machine that the targets can be built for, each as a zero-padded array of
    little-endian 64-bit words. declared: whether the model's header declares it, as for every embedded model. regions:
    the memory regions that get an array."""
    return _render("data.c", {"name": name, "version": VERSION, "declared": declared, "regions": regions,
                              "arrays": by_machine(targets, [_array(name, part) for part in parts])})


def part_files(name: str, parts: int) -> list[str]:
    """Returns the names of the container files that C includes: one for each machine that the model can be built
    for."""
    return [f"{name}_data.bin"] if parts == 1 else [f"{name}_data_{index}.bin" for index in range(parts)]


def including_source(name: str, targets: Sequence[Target], parts: Sequence[bytes],
                     regions: Sequence[object] = ()) -> str:
    """Prints C that includes a file's content as an array. The text contains a digest, so that it changes with the
    file.
    """
    rows = [f'#define DATA_FILE "{file}" /* sha256 {hashlib.sha256(part).hexdigest()} */'
            for file, part in zip(part_files(name, len(parts)), parts, strict=True)]
    return _render("incbin.c", {"name": name, "version": VERSION, "regions": regions,
                                "files": by_machine(targets, rows)})


def _array(name: str, part: bytes) -> str:
    words = [f"0x{word:x}" for (word,) in struct.iter_unpack("<Q", part + bytes(-len(part) % 8))]
    rows = (",".join(words[start:start + 5]) for start in range(0, len(words), 5))
    return "\n".join([f"ALIGNED const uint64_t {name}_data[{len(words)}] = {{",
                      *(f"    {row}," for row in rows), "};"])


def read_container(folder: Path, name: str, target: Target) -> bytes:
    """Returns a container with the program for a target from a generated folder: the container file, which has all
    programs, or the embedded container for a machine that runs the target."""
    path = folder / f"{name}.megcc"
    if path.exists():
        return path.read_bytes()
    model = next(m for m in read_manifest(folder)["models"] if m["name"] == name)
    sizes = model.get("embedded_bytes", ())
    index = min(machine_of([TARGETS[t] for t in model["targets"]], target), max(len(sizes) - 1, 0))
    part = folder / (part_files(name, len(sizes)) or [f"{name}_data.bin"])[index]
    if part.exists():
        return part.read_bytes()
    arrays = re.findall(r"= \{\n(.*?)\};", (folder / f"{name}_data.c").read_text("ascii", "replace"), re.DOTALL)
    if not arrays or len(arrays) != len(sizes):
        raise MegccError(f"{folder} is damaged: {name}_data.c is not the one that was generated; compile it again")
    words = re.findall(r"\b0x[0-9a-f]+\b", arrays[index])
    return b"".join(int(word, 16).to_bytes(8, "little") for word in words)[:sizes[index]]


def _render(name: str, context: Mapping[str, object]) -> str:
    return environment().get_template(f"bundle/{name}.j2").render(context)
