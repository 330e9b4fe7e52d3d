# SPDX-License-Identifier: Apache-2.0
"""Recognises a library that was built of the files that a generated folder has now, without reading them.

`build` compares the contents of all sources with what was compiled, which takes some 50 ms and a run of the compiler.
After a build it records the sizes and times of the files here. While they are the same, the library is up to date.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import folders
from ..codegen.manifest import BUILD
from ..target import Target
from .toolchain import Compiler, is_local

#: The names of compilers that `find_compiler` tries first, and the variables that name another one.
_COMPILERS, _VARIABLES = ("cc", "gcc", "clang"), ("CC", "MEGCC_CC")
#: Times of files are those of a clock that ticks every 1 to 10 ms. A file that is written again within a tick has the
#: same time; so files younger than this many nanoseconds are not recorded.
_TICK_NS = 50_000_000


class Record:
    """The record of a library, a file beside it.

    Args:
        folder: the generated folder.
        library: the path of the library.
        sources: files outside of the folder that are compiled into it.
        target: what it is built for.
        cc: the compiler that the caller asked for, or None.
        flags: flags of the compiler.
    """

    def __init__(self, folder: Path, library: Path, sources: Sequence[Path], target: Target, cc: str | None,
                 flags: Sequence[str]):
        self._path = library.with_name(library.name + ".current")
        self._library = library
        self._folder = folder
        self._sources = sources
        self._given = [target.name, cc, *flags]
        self._is_local = is_local(target)
        named = (cc, *map(os.environ.get, _VARIABLES))
        self._compilers = [*_COMPILERS, *(command.split()[0] for command in named if command and command.strip())]

    def compiler(self) -> Compiler | None:
        """Returns the compiler that built the library; None if it has to be built, or compared by contents."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(folders.read(self._path, 1 << 20))
            if found["facts"] == self._facts():
                return Compiler(tuple(found["command"]), found["version"], found["static"])
        return None

    def write(self, compiler: Compiler) -> None:
        """Records the library. Does nothing if the folder cannot be written to, or if a file is too young."""
        if not self._is_local or compiler.command[0] not in self._compilers:
            return
        with suppress(OSError):
            facts = self._facts()
            newest = max(changed for *_, changed in facts["sources"])
            if time.time_ns() - newest < _TICK_NS:
                return
            with folders.scratch(self._path.parent) as staging:
                written = staging / "record"
                written.write_text(json.dumps({"facts": facts, "command": compiler.command,
                                               "version": compiler.version, "static": compiler.static}))
                written.replace(self._path)

    def _facts(self) -> dict[str, Any]:
        """Returns what the library depends on. Raises OSError if a file is missing."""
        compilers = [path for name in self._compilers if (path := shutil.which(name))]
        tools = [[path, *_identity(os.stat(path))] for path in (*compilers, *map(str, self._sources))]
        return {"given": [*self._given, *map(os.environ.get, _VARIABLES)], "tools": tools,
                "library": _identity(os.stat(self._library)),
                "sources": [[name, *_identity(facts)] for name, facts in _sources_of(str(self._folder), "")]}


def _identity(facts: os.stat_result) -> list[int]:
    """Returns what changes when a file is written or replaced; times in nanoseconds. No program can set the last."""
    return [facts.st_size, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns]


def _sources_of(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields name and status of the C files and headers of a generated folder, sorted, except those that builds wrote.
    prefix: of the names."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith((".c", ".h")):
            yield prefix + entry.name, entry.stat()
        elif entry.is_dir() and prefix + entry.name != BUILD:
            yield from _sources_of(entry.path, f"{prefix}{entry.name}/")
