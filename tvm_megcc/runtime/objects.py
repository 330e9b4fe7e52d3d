# SPDX-License-Identifier: Apache-2.0
"""Compiles C files, and caches the object files by a digest of sources and flags: in the generated folder, and in a
store that all builds of the user share.

Models share kernels, and every folder has the same runtime, so a build can copy object files of earlier builds.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock

from .. import folders, paths
from ..codegen.headers import HEADER, header_for
from ..errors import MegccError, ToolError
from . import calls
from .precompiled import intrinsics
from .toolchain import Compiler

logger = logging.getLogger(__name__)

#: The number of C compilers that run in parallel.
JOBS = os.cpu_count() or 2
#: The largest size of the store in bytes. Beyond it, the least recently used files are removed.
STORE_BYTES = 1 << 30
#: Flags that make an object file depend on its folder or this machine; such files are not shared.
_PRIVATE = re.compile(r"-g(?!no)|-f(profile|test-coverage|file-prefix|debug)|--coverage|.*=native$")
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]+(\S+)", re.MULTILINE)


class Objects:
    """The object files of a folder.

    Args:
        folder: the folder with the C files and the runtime's headers.
        cache: the folder of the object files.
        compiler: the C compiler.
    """

    def __init__(self, folder: Path, cache: Path, compiler: Compiler):
        self.include = (f"-I{folder / 'runtime' / 'include'}", f"-I{folder}", f"-I{folder / 'runtime' / 'src'}")
        self.cache = cache
        self.compiler = compiler
        self.headers = sorted([*folder.glob("*.h"), *(folder / "runtime").rglob("*.h")])
        self._texts: dict[Path, bytes] = {}
        self._resolved: dict[tuple[Path, ...], dict[tuple[str, bytes], Path | None]] = {}

    def compile_all(self, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
        """Returns the object files of the sources, in their order."""
        self.cache.mkdir(parents=True, exist_ok=True)
        folders.sweep(self.cache)
        with ThreadPoolExecutor(JOBS) as pool:
            compiled = list(pool.map(lambda source: self.compile(source, flags), sources))
        if store := _store():
            _limit(store)
        return compiled

    def compile(self, source: Path, flags: Sequence[str]) -> Path:
        """Returns the object file of a source. Raises ToolError if the compiler fails."""
        included = self._included(source, [Path(flag[2:]) for flag in flags if flag.startswith("-I")])
        # If the included files are not known, the object file depends on all headers and on the paths of folders.
        texts = included or {str(path): self._text(path) for path in (source, *self.headers)}
        named_flags = [flag for flag in flags if not included or not flag.startswith("-I")]
        key = _digest([str(self.compiler).encode(), source.name.encode(), " ".join(named_flags).encode(),
                       *(part for name in sorted(texts) for part in (name.encode(), _code_digest(texts[name])))]).hex()
        cached = self.cache / f"{source.stem[:80]}-{key[:24]}.o"
        store = _store() if included and not any(map(_PRIVATE.match, (*self.compiler.command, *flags))) else None
        stored = store / f"{key}.o" if store else None
        if not _complete(cached, flags) and not (stored and _complete(stored, flags) and _copied(stored, cached)):
            self._run(source, flags, cached)
            if stored:
                _copied(cached, stored)
        return cached

    def _run(self, source: Path, flags: Sequence[str], result: Path) -> None:
        """Compiles a source to an object file, and moves the call graph that the compiler wrote next to it."""
        with folders.scratch(self.cache) as staging:
            output = staging / "o.o"
            precompiled_header = intrinsics(self.compiler, flags, source.read_text())
            run_tool([*self.compiler.command, *flags, *precompiled_header, *self.include, "-c", str(source), "-o",
                      str(output)])
            if output.with_suffix(calls.ENDING).exists():
                output.with_suffix(calls.ENDING).replace(result.with_suffix(calls.ENDING))
            output.replace(result)

    def _included(self, source: Path, folders: Sequence[Path]) -> Mapping[str, bytes] | None:
        """Returns the contents of a file and of all files that it includes from these folders, by name. Returns None if
        a macro names an included file, or two included files with the same name differ."""
        search = (*(Path(flag[2:]) for flag in self.include), *folders)
        resolved = self._resolved.setdefault(search, {})
        texts: dict[str, bytes] = {}
        visited, pending = set(), [source]
        while pending:
            path = pending.pop()
            visited.add(path)
            text = self._text(path) if path != source else path.read_bytes()
            if path.name == Path(HEADER).name:
                # Without the prototypes of kernels that the source does not use. The source is visited before it.
                text = header_for(texts[source.name].decode("utf-8", "replace"), text.decode()).encode()
            if texts.setdefault(path.name, text) != text:
                return None
            for name in _includes(text):
                if name[:1] not in (b'"', b"<"):
                    return None
                key = str(path.parent), name
                if key not in resolved:
                    named = (folder / os.fsdecode(name[1:-1]) for folder in (path.parent, *search))
                    resolved[key] = next(filter(Path.is_file, named), None)
                if (named_file := resolved[key]) is not None and named_file not in visited:
                    pending.append(named_file)
        return texts

    def _text(self, path: Path) -> bytes:
        if path not in self._texts:
            self._texts[path] = path.read_bytes()
        return self._texts[path]


def link(compiler: Compiler, flags: Sequence[str], objects: Sequence[Path], output: Path) -> Path:
    """Links objects to a library or program, unless the same objects were linked to it before. Returns `output`."""
    stamp = output.with_name(output.name + ".from")
    key = _digest([str(compiler).encode(), *(str(item).encode() for item in (*flags, *objects))]).hex()
    if not (output.exists() and stamp.exists() and stamp.read_text() == key):
        folders.sweep(output.parent)
        with folders.scratch(output.parent) as staging:
            linked, its_key = staging / "made", staging / "key"
            run_tool([*compiler.command, *map(str, objects), *flags, "-o", str(linked)])
            its_key.write_text(key)
            stamp.unlink(missing_ok=True)
            linked.replace(output)
            its_key.replace(stamp)
    return output


def run_tool(command: Sequence[str]) -> None:
    """Runs a compiler. Raises ToolError with its first messages if it fails."""
    logger.debug("%s", " ".join(command))
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise ToolError(f"the C compiler failed: {' '.join(command)}\n" + "\n".join(lines[:20]))


def _digest(parts: Sequence[bytes]) -> bytes:
    """Returns the SHA-256 of byte strings and of their lengths, so that other parts of the same bytes differ."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@lru_cache(maxsize=1024)
def _includes(text: bytes) -> tuple[bytes, ...]:
    """Returns the operands of #include in a C file, with quotes or brackets."""
    return tuple(_INCLUDE.findall(text))


@lru_cache(maxsize=1024)
def _code_digest(text: bytes) -> bytes:
    """Returns the digest of a C file without its head comment, which names the operators of a model that use it."""
    return _digest([text.partition(b"*/")[2] if text.startswith(b"/*") else text])


def _store() -> Path | None:
    """Returns the folder of object files that all builds share; None if it cannot be created."""
    try:
        store = paths.cache("objects")
    except MegccError:
        return None
    return store if os.access(store, os.W_OK) else None


def _complete(path: Path, flags: Sequence[str]) -> bool:
    """Whether an object file exists, with the call graph next to it if the flags ask for one."""
    return path.exists() and (calls.FLAG not in flags or path.with_suffix(calls.ENDING).exists())


def _copied(path: Path, to: Path) -> bool:
    """Copies an object file, and the call graph next to it, each atomically. Returns whether that succeeded."""
    try:
        for ending in (calls.ENDING, path.suffix):  # the object file last: if it exists, the other one does too
            if path.with_suffix(ending).exists() or ending == path.suffix:
                _copy(path.with_suffix(ending), to.with_suffix(ending))
        for ending in (calls.ENDING, path.suffix):  # what is used is not removed by `_limit`
            with suppress(OSError):
                os.utime(path.with_suffix(ending))
        return True
    except OSError:
        return False


def _copy(path: Path, to: Path) -> None:
    descriptor, staging = tempfile.mkstemp(dir=to.parent)
    try:
        os.close(descriptor)
        shutil.copyfile(path, staging)
        os.replace(staging, to)
    except BaseException:
        os.unlink(staging)
        raise


_limited: set[Path] = set()
_lock = Lock()


def _limit(store: Path) -> None:
    """Removes the least recently used files if the store is too large; at most once in a process."""
    with _lock:
        if store in _limited:
            return
        _limited.add(store)
    with suppress(OSError):
        facts = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(store))
        over = sum(size for _, size, _ in facts) - STORE_BYTES
        for _, size, path in facts:
            if over <= 0:
                break
            over -= size
            with suppress(OSError):
                os.unlink(path)
