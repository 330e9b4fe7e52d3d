# SPDX-License-Identifier: Apache-2.0
"""A generated folder, compiled for one target: a library to load, a program or firmware to run. Any C compiler does."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .. import paths
from ..codegen.bundle import BUILD, data_source, read_container, read_manifest
from ..errors import MegccError, ToolError
from ..target import TARGETS, Target
from . import firmware
from .precompiled import intrinsics
from .toolchain import Compiler, find_compiler, runs_here

#: Of every C file. No contraction: gcc and clang, this build and a user's own then agree bit by bit.
CFLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")
#: The runtime without what a static network on a small device does not need.
STATIC_PROFILE = ("-DMEGCC_NO_STDIO", "-DMEGCC_NO_STRINGS", "-DMEGCC_NO_DYNAMIC", "-DMEGCC_NO_THREADS")
#: C compilers at work at a time.
JOBS = os.cpu_count() or 2


@dataclass(frozen=True)
class Build:
    """A compiled folder.

    library: for ctypes, where this machine runs it. program: a command, or a firmware image, for other machines.
    """

    folder: Path
    target: Target
    compiler: Compiler
    library: Path | None
    program: Path | None


def build(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
          cflags: Sequence[str] = (), limits: Mapping[str, int] | None = None) -> Build:
    """Compiles a generated folder into its `build/<target>/`; files that did not change are not compiled again.

    Args:
        target: one of those the folder was made for; by default one that this machine runs, else the first.
        cc: the compiler, instead of the one that is found.
        cflags: further flags, after ours.
        limits: bytes of "flash", "ram" and "stack" of a microcontroller, where they are not the example board's.

    Raises:
        MegccError: if the folder is none of ours or was made for other targets, or does not fit the limits.
        ToolError: if there is no compiler or it fails.
    """
    folder = Path(folder)
    model, target = model_and_target(read_manifest(folder), target, folder)
    compiler = find_compiler(target, cc)
    output = folder / BUILD / target.name
    embedded = (f"-DMEGCC_DATA={model}_data",) if (folder / f"{model}_data.c").exists() else ()
    flags = (*CFLAGS, *target.cflags, f"-DMEGCC_MODULE={model}_module", *embedded, *cflags)
    objects = Objects(folder, output / "objects", compiler)
    library = program = None
    if runs_here(target):
        sources = [*c_sources(folder), Path(__file__).with_name("megcc_py.c")]
        compiled = objects.compile_all(sources, (*flags, "-fPIC"))
        library = _link(compiler, ("-shared", "-pthread"), compiled, output / f"lib{model}.so")
    elif not target.bare_metal:
        sources = [*c_sources(folder), paths.c_runtime() / "tools" / "megcc_run.c"]
        compiled = objects.compile_all(sources, flags)
        link = (*(("-static",) if compiler.static else ()), "-pthread", "-Wl,--gc-sections")
        program = _link(compiler, link, compiled, output / "megcc_run")
    else:
        program = _firmware(folder, model, objects, flags, output, limits or {})
    return Build(folder, target, compiler, library, program)


def _firmware(folder: Path, model: str, objects: Objects, flags: Sequence[str], output: Path,
              limits: Mapping[str, int]) -> Path:
    """The model with the example board's start-up, in one image; the container lies in flash."""
    sources = [*c_sources(folder), *firmware.sources()]
    if not (folder / f"{model}_data.c").exists():
        data = output / f"{model}_data.c"
        data.parent.mkdir(parents=True, exist_ok=True)
        data.write_text(data_source(model, read_container(folder, model)))
        sources.append(data)
    compiled = objects.compile_all(sources, (*flags, *STATIC_PROFILE, *firmware.defines(model)))
    try:
        return _link(objects.compiler, (*flags, *firmware.link_flags(limits)), compiled, output / "firmware.elf")
    except ToolError as error:
        raise firmware.refusal(model, error, limits) from None


def compile_objects(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
                    cflags: Sequence[str] = ()) -> tuple[Build, list[tuple[Path, Path]]]:
    """Only compiles; returns (source below the folder, object file) for every C file of the folder but main.c."""
    folder = Path(folder)
    _, target = model_and_target(read_manifest(folder), target, folder)
    compiler = find_compiler(target, cc)
    objects = Objects(folder, folder / BUILD / target.name / "objects", compiler)
    sources = c_sources(folder)
    made = objects.compile_all(sources, (*CFLAGS, *target.cflags, *cflags))
    return (Build(folder, target, compiler, None, None),
            [(source.relative_to(folder), path) for source, path in zip(sources, made, strict=True)])


def c_sources(folder: Path) -> list[Path]:
    """The C files of a generated folder but main.c."""
    return [source for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c")
            for source in sorted(folder.glob(pattern)) if source.name != "main.c"]


def model_and_target(manifest: dict, target: Target | str | None, folder: Path) -> tuple[str, Target]:
    """The folder's first model, and the target as one of those it was compiled for."""
    model = manifest["models"][0]
    offered = [TARGETS[name] for name in model["targets"]]
    here = [t for t in offered if runs_here(t)]
    if target is None:
        return model["name"], (here or offered)[0]
    name = here[0].name if str(target) == "native" and here else str(target)
    if name not in model["targets"]:
        wanted = ",".join([*model["targets"], name])
        raise MegccError(f"{folder} was compiled for {', '.join(model['targets'])}, not for {name}; "
                         f"compile it again with --target {wanted}")
    return model["name"], TARGETS[name]


class Objects:
    """Object files by the hash of everything that went into them."""

    def __init__(self, folder: Path, cache: Path, compiler: Compiler):
        self.include = (f"-I{folder / 'runtime' / 'include'}", f"-I{folder}", f"-I{folder / 'runtime' / 'src'}")
        self.cache = cache
        self.compiler = compiler
        headers = sorted([*folder.glob("*.h"), *(folder / "runtime").rglob("*.h")])
        self.seed = _digest([str(compiler).encode(), *(path.read_bytes() for path in headers)])

    def compile_all(self, sources: Sequence[Path], flags: Sequence[str]) -> list[Path]:
        """The object files of the sources, in their order."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(lambda source: self.compile(source, flags), sources))

    def compile(self, source: Path, flags: Sequence[str]) -> Path:
        key = _digest([self.seed, " ".join(flags).encode(), source.read_bytes()]).hex()[:24]
        result = self.cache / f"{source.stem[:80]}-{key}.o"
        if not result.exists():
            with tempfile.TemporaryDirectory(dir=self.cache) as aside:
                made = Path(aside) / "o.o"
                first = intrinsics(self.compiler, flags, source.read_text())
                run_tool([*self.compiler.command, *flags, *first, *self.include, "-c", str(source), "-o", str(made)])
                made.replace(result)
        return result


def _link(compiler: Compiler, flags: Sequence[str], objects: Sequence[Path], output: Path) -> Path:
    """Links unless the same objects were linked to the same file before."""
    stamp = output.with_name(output.name + ".from")
    key = _digest([str(compiler).encode(), *(str(item).encode() for item in (*flags, *objects))]).hex()
    if not (output.exists() and stamp.exists() and stamp.read_text() == key):
        aside = output.with_name(output.name + ".new")
        run_tool([*compiler.command, *map(str, objects), *flags, "-o", str(aside)])
        aside.replace(output)
        stamp.write_text(key)
    return output


def run_tool(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise ToolError(f"the C compiler failed: {' '.join(command)}\n" + "\n".join(lines[:20]))


def _digest(parts: Sequence[bytes]) -> bytes:
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little") + part)
    return h.digest()
