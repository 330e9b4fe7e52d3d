# SPDX-License-Identifier: Apache-2.0
"""Compiles the regions of a TVM module into one object file: kernels, runtime, containers, and an entry for each
region.

The object is relocatable and exports only the entries, so that several can be linked into any library.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from .. import paths
from ..codegen.artifact import Artifact
from ..codegen.bundle import sources
from ..codegen.c_source.render import environment
from ..codegen.machines import NO_DYNAMIC, is_dynamic
from ..errors import ToolError
from ..foreign import c_string, printable
from ..ir.shapes import Bucket
from ..target import Target
from ..version import VERSION
from .build import CFLAGS
from .objects import Objects, run_tool
from .toolchain import Compiler, find_compiler

#: The ABIs by which TVM's runtime calls compiled code -> the prefix of C symbols: the current FFI, and the C API of
#: versions with Relay. The names are those of templates.
ABIS = {"ffi": "__tvm_ffi_", "packed": ""}
#: The suffix of the function that runs a region and returns the times of its kernels as JSON.
PROFILE = "_profile"
#: The largest number of characters of the ranges of shapes in an error message.
MAX_BOUNDS_TEXT = 240


@dataclass(frozen=True)
class EmbeddedModel:
    """A model in the C file that TVM calls.

    name: a C identifier; `<name>_module` is its table of kernels, `<name>_data` its container.
    size: bytes of the container.
    digest: SHA-256 of the container in hexadecimal, so that compilers' caches see when it changes.
    ranges: the values of symbolic extents that it is compiled for, for error messages; "" if it has none.
    """

    name: str
    size: int
    digest: str
    ranges: str


@dataclass(frozen=True)
class EntryFunction:
    """A function that TVM calls: a region of a TVM module, or the network of a library.

    symbol: the name by which TVM calls it.
    name: its name in error messages.
    profile: the name of the function that runs it and returns the times of its kernels.
    model: index of its model in `models`.
    """

    symbol: str
    name: str
    profile: str
    model: int


@dataclass(frozen=True)
class Library:
    """The facts that a library of functions tells its callers, each as a C string literal.

    inputs, outputs: names in the order of the function's arguments.
    description: JSON with the network's name, its targets, inputs and outputs.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    description: str


class ModuleVariables(TypedDict):
    """The context of the template `tvm/module.c.j2`, which `compile_regions` and tools/export/tvm_ffi.py render.

    version: version of tvm_megcc, such as "1.4.0".
    abi: "ffi" for the FFI of TVM since 0.21, "packed" for the C API before.
    alignment: the largest alignment of the containers and of sessions' memory, in bytes.
    models: the models whose containers the file contains or declares.
    regions: the functions that TVM calls.
    library: the facts about a network that is exported as a library; None: the functions are regions of a TVM module.
    """

    version: str
    abi: str
    alignment: int
    models: Sequence[EmbeddedModel]
    regions: Sequence[EntryFunction]
    library: Library | None


class FailingVariables(TypedDict):
    """The context of the template `tvm/failing.c.j2`, which `compile_failing` renders.

    version: version of tvm_megcc, such as "1.4.0".
    symbol: the name by which TVM calls the function.
    message: the error as a C string literal, "<type of error>: <text>".
    """

    version: str
    symbol: str
    message: str


@contextmanager
def compile_regions(regions: Mapping[str, Artifact], target: Target, abi: str = "ffi") \
        -> Iterator[tuple[Path, list[str]]]:
    """Compiles regions into one object file, which lives as long as the context.

    Args:
        regions: global symbol -> artifact. Several symbols may have the same artifact; different artifacts have
            different names.
        target: the CPU to compile for.
        abi: one of `ABIS`.

    Returns:
        The object file, and the symbols that it exports.

    Raises:
        ToolError: if a compiler or objcopy is missing or fails.
    """
    compiler = find_compiler(target)
    with tempfile.TemporaryDirectory(prefix="megcc-tvm-") as name:
        folder = Path(name)
        written = _write(regions, folder, abi)
        objects = Objects(folder, paths.cache("tvm") / target.name, compiler)
        has_dynamic = any(is_dynamic(artifact.manifest) for artifact in regions.values())
        profile = () if has_dynamic else (NO_DYNAMIC,)
        compiled = objects.compile_all(written, (*CFLAGS, *target.cflags, "-fPIC", *profile))
        joined = folder / "regions.o"
        run_tool([*compiler.command, *target.cflags, "-r", "-nostdlib", *map(str, compiled), "-o", str(joined)])
        symbols = [ABIS[abi] + symbol for region in regions for symbol in _functions(region, abi)]
        run_tool([*find_objcopy(compiler), *(f"--keep-global-symbol={symbol}" for symbol in symbols), str(joined)])
        yield joined, symbols


def _functions(region: str, abi: str) -> list[str]:
    """Returns the entry functions of a region: itself and, if the ABI can return strings, its profile."""
    return [region, region + PROFILE] if abi == "ffi" else [region]


@contextmanager
def compile_failing(symbol: str, message: str, target: Target) -> Iterator[Path]:
    """Compiles a function for TVM's C API that always fails into an object file.

    message: "<type of error>: <text>", as TVM takes it.

    Raises:
        ToolError: if the compiler is missing or fails.
    """
    compiler = find_compiler(target)
    with tempfile.TemporaryDirectory(prefix="megcc-tvm-") as name:
        source = Path(name) / "failing.c"
        source.write_text(environment().get_template("tvm/failing.c.j2").render(
            FailingVariables(symbol=symbol, message=c_string(message), version=VERSION)))
        run_tool([*compiler.command, *CFLAGS, *target.cflags, "-fPIC", "-c", str(source), "-o",
                  str(source.with_suffix(".o"))])
        yield source.with_suffix(".o")


@contextmanager
def shared_object(objects: Iterable[Path], target: Target) -> Iterator[Path]:
    """Links object files for this machine into a shared object, which lives as long as the context.

    Raises:
        ToolError: if the compiler is missing or fails.
    """
    with tempfile.TemporaryDirectory(prefix="megcc-tvm-") as name:
        path = Path(name) / "region.so"
        run_tool([*find_compiler(target).command, *target.cflags, "-shared", *map(str, objects), "-pthread", "-o",
                  str(path)])
        yield path


def _write(regions: Mapping[str, Artifact], folder: Path, abi: str) -> list[Path]:
    """Writes the sources; returns those to compile."""
    artifacts = list({artifact.name: artifact for artifact in regions.values()}.values())
    strings = sources(artifacts)
    models = []
    for artifact in artifacts:
        (folder / f"{artifact.name}.megcc").write_bytes(artifact.container)
        models.append(EmbeddedModel(artifact.name, size=len(artifact.container),
                                    digest=hashlib.sha256(artifact.container).hexdigest(), ranges=_ranges(artifact)))
    rows = [EntryFunction(symbol, name=symbol, profile=symbol + PROFILE, model=artifacts.index(artifact))
            for symbol, artifact in regions.items()]
    strings["module.c"] = environment().get_template("tvm/module.c.j2").render(ModuleVariables(
        models=models, regions=rows, abi=abi, library=None, version=VERSION,
        alignment=max(artifact.manifest["alignment"] for artifact in artifacts)))
    (folder / "runtime").symlink_to(paths.c_runtime())
    for name, text in strings.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    generated = (folder / name for name in strings if name.endswith(".c"))
    return [*generated, *sorted((folder / "runtime" / "src").glob("*.c"))]


def _ranges(artifact: Artifact) -> str:
    """Returns the values of symbolic extents that a model is compiled for; "" if it has none."""
    buckets = artifact.manifest["buckets"]
    strings = [str(Bucket(tuple((name, *limits) for name, limits in bounds.items()))) for bounds in buckets]
    return printable("; ".join(strings), MAX_BOUNDS_TEXT) if any(buckets) else ""


def find_objcopy(compiler: Compiler) -> tuple[str, ...]:
    """Returns the objcopy of a compiler: binutils' of the same triple, or LLVM's.

    Raises:
        ToolError: if there is none.
    """
    program = Path(compiler.command[0]).name
    triple = program[:program.rfind("-") + 1]
    tried = [f"{triple}objcopy", "llvm-objcopy", *(f"llvm-objcopy-{version}" for version in range(22, 13, -1))]
    for name in tried:
        path = shutil.which(name)
        if path:
            return (path,)
    raise ToolError(f"no objcopy for the objects of {compiler} (tried {', '.join(tried[:2])}); install binutils")
