# SPDX-License-Identifier: Apache-2.0
"""Builds a generated folder for one target as a library, a program or firmware, with any C compiler."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import folders, paths
from ..codegen.manifest import BUILD, MANIFEST, read_manifest
from ..errors import MegccError, MissingTool, ToolError
from ..target import TARGETS, Target, parse_targets
from . import calls
from .objects import Objects, link
from .toolchain import Compiler, find_compiler, runs_here
from .up_to_date import Record

logger = logging.getLogger(__name__)

#: Flags of every C file. Without contraction of multiply-adds, all compilers and builds give the same bits. The last
#: flag makes incompatible types of pointers an error also in old compilers, so that a kernel cannot read an operand as
#: another type.
CFLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections",
          "-Werror=incompatible-pointer-types")
#: The optimisation flag for files of a firmware that are not kernels: they take little time, so size matters more.
SMALL = "-Os"
#: The functions of a library that Python calls.
_PYTHON = Path(__file__).with_name("megcc_py.c")


@dataclass(frozen=True)
class Build:
    """A compiled folder.

    library: a shared library for ctypes, if this machine runs the target; else None.
    program: a program or a firmware image, if it does not.
    model: the name of the model, if the folder has several and this one was built alone; else "".
    """

    folder: Path
    target: Target
    compiler: Compiler
    library: Path | None
    program: Path | None
    model: str = ""


def build(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
          cflags: Sequence[str] = (), limits: Mapping[str, int] | None = None, model: str | None = None) -> Build:
    """Compiles a generated folder into its subfolder `build/<target>/`. Files that did not change are not compiled
    again.

    Args:
        target: one of the folder's targets; by default one that this machine runs, else the first.
        cc: the compiler; by default the one that `find_compiler` finds.
        cflags: additional flags.
        limits: bytes of "flash", "ram" and "stack" of a microcontroller; by default those of the example board.
        model: the model to build, if the folder has several; by default the firmware of a microcontroller has all.

    Raises:
        MegccError: if it is no generated folder, has other targets or models, or exceeds the limits.
        ToolError: if there is no compiler or it fails.
    """
    folder = Path(folder)
    logger.info("building %s", folder)
    with building_in(folder), _other_versions_named(folder):
        manifest = read_manifest(folder)
        target = target_of(manifest, target, folder)
        if limits and not target.bare_metal:
            raise MegccError(f"{target} is no microcontroller: sizes of {' and '.join(limits)} are for those "
                             f"({', '.join(t.name for t in TARGETS.values() if t.bare_metal)})")
        model_names = [row["name"] for row in manifest["models"]]
        names = model_names if target.bare_metal and model is None else [model_of(manifest, model, folder)["name"]]
        part_name = names[0] if len(names) < len(model_names) else ""
        output = folder / BUILD / target.name
        flags = (*CFLAGS, *target.cflags, *cflags)
        library = output / f"lib{names[0]}.so" if runs_here(target) and not target.bare_metal else None
        record = library and Record(folder, library, (_PYTHON,), target, cc, flags)
        if record and (compiler := record.compiler()):
            return Build(folder, target, compiler, library, None, part_name)
        compiler = find_compiler(target, cc)
        objects = Objects(folder, output / "objects", compiler)
        program = None
        if target.bare_metal:
            from .emulator import firmware

            program = firmware_image(folder, names, target, objects, flags, output / firmware.image(part_name),
                                     limits or {})
        elif library and record:
            flags = (*flags, "-fPIC")
            compiled = [*objects.compile_all(c_sources(folder), flags),
                        objects.compile(_PYTHON, (*flags, *_defines(folder, names[0])))]
            link(compiler, ("-shared", "-pthread"), compiled, library)
            record.write(compiler)
        else:
            tool = paths.c_runtime() / "tools" / "megcc_run.c"
            compiled = [*objects.compile_all(c_sources(folder), flags),
                        objects.compile(tool, (*flags, *_defines(folder, names[0])))]
            threads = () if "-DMEGCC_NO_THREADS" in target.cflags else ("-pthread",)
            link_flags = (*(("-static",) if compiler.static else ()), *threads, "-Wl,--gc-sections")
            program = link(compiler, link_flags, compiled, output / "_".join(["megcc_run", *filter(None, [part_name])]))
    return Build(folder, target, compiler, library, program, part_name)


def build_all(folder: Path, target: Target | str | None = None, cc: str | None = None,
              limits: Mapping[str, int] | None = None) -> list[Build]:
    """Builds all models of a folder: one firmware with all of them, or a library or program for each."""
    manifest = read_manifest(folder)
    if target_of(manifest, target, folder).bare_metal:
        return [build(folder, target, cc, limits=limits)]
    return [build(folder, target, cc, limits=limits, model=model["name"]) for model in manifest["models"]]


def _defines(folder: Path, model: str) -> tuple[str, ...]:
    """Returns the macros about the model that megcc_py.c and megcc_run.c need."""
    module = f"-DMEGCC_MODULE={model}_module"
    if not (folder / f"{model}_data.c").exists():
        return (module,)
    return (module, f'-DMEGCC_HEADER="{model}.h"', f"-DMEGCC_DATA={model}_data",
            f"-DMEGCC_DATA_BYTES={model.upper()}_CONTAINER_BYTES")


@contextmanager
def building_in(folder: Path) -> Iterator[None]:
    """Excludes other processes from building in the generated folder and from replacing it.

    Raises:
        MegccError: if it is no generated folder, or something has to be built and the folder cannot be written to.
    """
    read_manifest(folder)
    try:
        with folders.locked(folder):
            yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        raise MegccError(f"{folder} is not built, and cannot be: {error.strerror} ({error.filename or folder}). Build "
                         "a copy of it in a folder that is writable and has free space; models are compiled into "
                         f"$MEGCC_CACHE ({paths.cache()})") from None


@contextmanager
def _other_versions_named(folder: Path) -> Iterator[None]:
    """Raises MegccError for a failure of the compiler if another version of this package made the folder: the runtime
    in it and the files of this package that call it do not fit each other."""
    try:
        yield
    except MissingTool:
        raise
    except ToolError as error:
        header = Path("include", "megcc.h")
        if (folder / "runtime" / header).read_bytes() == (paths.c_runtime() / header).read_bytes():
            raise
        raise MegccError(f"{folder} was compiled by another version of tvm_megcc, and its runtime does not fit this "
                         "one: compile the model again") from error


def firmware_image(folder: Path, models: Sequence[str], target: Target, objects: Objects, flags: Sequence[str],
                   image: Path, limits: Mapping[str, int], main: str = "run.c", defines: Sequence[str] = ()) -> Path:
    """Links the models with the example board's start-up code into one image, with their containers in flash. Returns
    the image.

    Args:
        main: the file of the port with the main program.
        defines: additional flags for it.
    """
    from ..codegen.device_model import container_part
    from ..codegen.embedding import data_source, read_container
    from ..codegen.machines import static_profile
    from .emulator import firmware

    image.parent.mkdir(parents=True, exist_ok=True)
    embedded = {model for model in models if (folder / f"{model}_data.c").exists()}
    containers = {model: read_container(folder, model, target) for model in models}
    containers |= {model: container_part(data, {target.isa.code}) for model, data in containers.items()
                   if model not in embedded}
    input_bytes = {row["name"]: firmware.given_bytes(row) for row in read_manifest(folder)["models"]}
    regions = {row["name"]: next(p for p in row["programs"] if p["target"] == target.name).get("regions", ())
               for row in read_manifest(folder)["models"]}
    generated = {image.with_suffix(".c"): firmware.table(containers, embedded, input_bytes, regions)}
    generated |= {image.with_name(f"{model}_data.c"): data_source(model, (target,), (data,), declared=False)
                  for model, data in containers.items() if model not in embedded}
    for path, text in generated.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    sources = [*c_sources(folder), firmware.port() / "start.c", *generated]
    built_models = [row for row in read_manifest(folder)["models"] if row["name"] in models]
    profile_flags = static_profile(built_models, trusted_data=True)
    # clang has no such option: then the stack of the firmware is not computed.
    call_graph_flags = (calls.FLAG,) if "gcc" in Path(objects.compiler.command[0]).name else ()
    firmware_flags = (*flags, *profile_flags, *firmware.FLAGS, *call_graph_flags,
                      *firmware.include_flags(target))
    kernels = [source for source in sources if source.parent == folder / "kernels"]
    compiled = [*objects.compile_all(kernels, firmware_flags),
                *objects.compile_all([source for source in sources if source not in kernels],
                                     (*firmware_flags, SMALL)),
                objects.compile(firmware.port() / main, (*firmware_flags, SMALL, *defines))]
    image.with_suffix(calls.ENDING).write_text("".join(
        path.with_suffix(calls.ENDING).read_text() for path in compiled if path.with_suffix(calls.ENDING).exists()))
    try:
        linked = firmware.link_flags(target, limits, sum(input_bytes[model] for model in models))
        linked += ["-Xlinker", f"-Map={image.with_suffix('.map').resolve()}"]  # -Wl would split at commas
        return link(objects.compiler, (*flags, *linked), compiled, image)
    except ToolError as error:
        raise firmware.refusal(target, models, error, limits) from None


def compile_objects(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
                    cflags: Sequence[str] = ()) -> tuple[Build, list[tuple[Path, Path]]]:
    """Compiles the C files of a generated folder, except main.c, without linking. Returns (source, object file) of each
    one. Arguments and errors are those of `build`."""
    folder = Path(folder)
    with building_in(folder):
        target = target_of(read_manifest(folder), target, folder)
        compiler = find_compiler(target, cc)
        objects = Objects(folder, folder / BUILD / target.name / "objects", compiler)
        sources = c_sources(folder)
        compiled = objects.compile_all(sources, (*CFLAGS, *target.cflags, *cflags))
    return (Build(folder, target, compiler, None, None),
            [(source.relative_to(folder), path) for source, path in zip(sources, compiled, strict=True)])


def c_sources(folder: Path) -> list[Path]:
    """Returns the C files of a generated folder except main.c."""
    return [source for pattern in ("*.c", "kernels/*.c", "runtime/src/*.c")
            for source in sorted(folder.glob(pattern)) if source.name != "main.c"]


def generated_folder(path: Path) -> tuple[Path, str | None]:
    """Returns the generated folder for a path, which is the folder or a .megcc file in it, and the name of the file's
    model, or None.

    Raises:
        MegccError: for a path that does not exist, or that is a model which has to be compiled first.
    """
    folders.require_exists(path)
    if path.is_dir():
        return path, None
    if path.suffix == ".megcc":
        if not (path.parent / MANIFEST).exists():
            raise MegccError(f"{path} is the data of a model alone; its code is in the folder that 'megcc compile' "
                             "wrote it to: give it there, or that folder")
        return path.parent, path.stem
    raise MegccError(f"{path} is a file, not a folder that was compiled from a model; compile it first: "
                     f"tvm_megcc.compile({str(path)!r}).save('{path.stem}_megcc'), "
                     f"or 'megcc compile {path} -o {path.stem}_megcc'")


def model_of(manifest: dict, model: str | None, folder: Path) -> dict:
    """Returns the manifest's facts about a model of the folder. model: its name; None: the only one.

    Raises:
        MegccError: if the folder has no such model, or several and `model` is None; if it is a program, whose networks
            have no container of their own.
    """
    if program := manifest.get("program"):
        raise MegccError(f"{folder} is the program '{program['name']}' of several networks: 'megcc program "
                         f"run {folder}' builds and runs it, and so does its Makefile")
    models = {row["name"]: row for row in manifest["models"]}
    if model is None and len(models) == 1:
        return next(iter(models.values()))
    if model in models:
        return models[model]
    if model is None:
        raise MegccError(f"{folder} has the models {', '.join(models)}: say which with --model")
    raise MegccError(f"{folder} has no model '{model}'; it has {', '.join(models)}")


def target_of(manifest: Mapping[str, Any], target: Target | str | None, folder: Path) -> Target:
    """Returns the target of the folder to build for. target: by default one that this machine runs, else the first.

    Raises:
        MegccError: for a target that does not exist, or that the folder was not compiled for.
    """
    offered = [TARGETS[name] for name in manifest["models"][0]["targets"]]
    here = [t for t in offered if runs_here(t)]
    if target is None:
        return (here or offered)[0]
    if str(target) == "native" and here:
        return here[0]
    requested, *others = (target,) if isinstance(target, Target) else parse_targets(target)
    if others:
        raise MegccError(f"{folder} is built for one target at a time, not for {target}")
    if requested not in offered:
        names = [t.name for t in offered]
        raise MegccError(f"{folder} was compiled for {', '.join(names)}, not for {requested}; "
                         f"compile the model again with --target {','.join([*names, requested.name])}")
    return requested
