# SPDX-License-Identifier: Apache-2.0
"""The C of a generated folder as its compiler sees it: preprocessed, compiled, with call graphs and symbols."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...errors import ToolError
from ...runtime import calls
from ...runtime.build import CFLAGS, c_sources, compile_objects
from ...runtime.emulator import firmware
from ...runtime.objects import JOBS
from ...runtime.toolchain import Compiler
from ...target import Target

#: Compiler flags besides those of every build: variable-length arrays are errors, constant tables need no writable
#: section, and call graphs are written.
FLAGS = ("-Wvla", "-Werror=vla", "-fno-pie", calls.FLAG)
#: A line marker of the preprocessor: the lines after it are of this file.
_MARKER = re.compile(r'^# \d+ "([^"]*)"')


def _freestanding(target: Target) -> tuple[str, ...]:
    """Returns the flags of a firmware's files, for targets without an operating system."""
    return firmware.FLAGS if target.bare_metal else ()


@dataclass(frozen=True)
class Sources:
    """The C files of a folder for one of its targets.

    folder: the generated folder.
    compiler: the C compiler.
    objects: source, relative to the folder -> object file.
    """

    folder: Path
    target: Target
    compiler: Compiler
    objects: Mapping[str, Path] = field(compare=False)

    @classmethod
    def of(cls, folder: Path, target: Target, cc: str | None = None) -> Sources:
        """Compiles a folder.

        Raises:
            ToolError: if there is no compiler, if it fails, or if it is not gcc, which writes call graphs.
        """
        built, compiled = compile_objects(folder, target, cc, (*_freestanding(target), *FLAGS))
        missing = [source for source, path in compiled if not path.with_suffix(calls.ENDING).exists()]
        if missing:
            raise ToolError(f"{built.compiler} writes no call graphs ({calls.FLAG}): give a gcc with --cc")
        return cls(folder, target, built.compiler, {source.as_posix(): path for source, path in compiled})

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler, without folders."""
        return (*CFLAGS, *self.target.cflags, *_freestanding(self.target))

    @cached_property
    def preprocessed(self) -> dict[str, str]:
        """The text of each source after the preprocessor, with line markers."""
        def text(source: Path) -> str:
            include = (f"-I{self.folder / 'runtime' / 'include'}", f"-I{self.folder}")
            command = [*self.compiler.command, "-E", *self.flags, *include, str(source)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise ToolError(f"{' '.join(command)} failed: {result.stderr.strip()[:300]}")
            return result.stdout

        paths = c_sources(self.folder)
        with ThreadPoolExecutor(JOBS) as pool:
            texts = pool.map(text, paths)
            return {path.relative_to(self.folder).as_posix(): found for path, found in zip(paths, texts, strict=True)}

    def own_lines(self, source: str) -> Iterator[tuple[str, str]]:
        """Yields file and text of each preprocessed line that stands in a file of the folder."""
        place = ""
        for line in self.preprocessed[source].splitlines():
            if marker := _MARKER.match(line):
                place = marker[1]
            elif Path(place).is_relative_to(self.folder):
                yield Path(place).relative_to(self.folder).as_posix(), line

    @cached_property
    def graph_text(self) -> str:
        """The call graphs of all files, one after the other."""
        return "".join(path.with_suffix(calls.ENDING).read_text() for path in self.objects.values())

    @property
    def nm(self) -> str:
        """The program that lists symbols, of the compiler's family."""
        command = self.compiler.command[0]
        return f"{command.removesuffix('gcc')}nm" if command.endswith("gcc") else "nm"

    @cached_property
    def symbols(self) -> list[tuple[str, str, str]]:
        """Source, name and nm's letter of every symbol of the object files."""
        return [(source, name, letter) for source, path in self.objects.items()
                for name, letter in self._symbols_of(path)]

    def defined(self, image: Path) -> set[str]:
        """Returns the symbols that a linked file defines."""
        return {name for name, letter in self._symbols_of(image) if letter != "U"}

    def _symbols_of(self, path: Path) -> list[tuple[str, str]]:
        result = subprocess.run([self.nm, "-P", str(path)], capture_output=True, text=True, check=False)
        if result.returncode:
            raise ToolError(f"{self.nm} failed: {result.stderr.strip()[:300]}")
        rows = (line.split() for line in result.stdout.splitlines())
        return [(row[0], row[1]) for row in rows if len(row) > 1]
