# SPDX-License-Identifier: Apache-2.0
"""C is compiled once in a run of the tests, however many folders have it: every folder has the same runtime."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tvm_megcc.codegen.headers import HEADER, seen_by
from tvm_megcc.runtime import build
from tvm_megcc.runtime.calls import ENDING

_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]+(\S+)", re.MULTILINE)


def strings(source: Path, folders: Sequence[Path]) -> dict[str, bytes] | None:
    """The file and all that it includes of these folders, by name; None where a macro says what it includes."""
    found: dict[str, bytes] = {}
    left = [source]
    while left:
        path = left.pop()
        text = path.read_bytes()
        if path.name == Path(HEADER).name:
            text = seen_by(source.read_text(), text.decode()).encode()
        if found.setdefault(path.name, text) != text:
            return None
        for name in _INCLUDE.findall(text):
            if name[:1] not in (b'"', b"<"):
                return None
            places = (folder / name[1:-1].decode() for folder in (path.parent, *folders))
            left += [place for place in places if place.is_file() and place.name not in found][:1]
    return found


#: What builds do outside of these tests, and in those that are about building.
ALONE = build.Objects.compile


def sharing(store: Path) -> Callable[[build.Objects, Path, Sequence[str]], Path]:
    """`Objects.compile` that keeps all object files in the store, and copies those that another folder's build made."""
    def compile(objects: build.Objects, source: Path, flags: Sequence[str]) -> Path:
        folders = [Path(flag[2:]) for flag in (*objects.include, *flags) if flag.startswith("-I")]
        found = strings(source, folders)
        if found is None:
            return ALONE(objects, source, flags)
        said = [flag for flag in flags if not flag.startswith("-I")]
        digest = hashlib.sha256(repr((objects.compiler, said, source.name, sorted(found.items()))).encode()).hexdigest()
        kept, own = store / f"{digest}.o", objects.cache / f"{source.stem[:80]}-{digest[:24]}.o"
        if not own.exists():
            if not kept.exists():
                made = ALONE(objects, source, flags)
                if made.with_suffix(ENDING).exists():
                    copy(made.with_suffix(ENDING), kept.with_suffix(ENDING))
                copy(made, kept)
            if kept.with_suffix(ENDING).exists():
                copy(kept.with_suffix(ENDING), own.with_suffix(ENDING))
            copy(kept, own)
        return own
    return compile


def copy(path: Path, to: Path) -> None:
    """In one step, whoever else does the same."""
    descriptor, aside = tempfile.mkstemp(dir=to.parent)
    os.close(descriptor)
    shutil.copy(path, aside)
    os.replace(aside, to)
