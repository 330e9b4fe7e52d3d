# SPDX-License-Identifier: Apache-2.0
"""`megcc export`: writes a generated folder as a package for a build system or a language."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...codegen.embedding import AUTO, TEXT
from ...codegen.manifest import read_manifest
from ...codegen.packages import base as sources
from ...codegen.packages.language_model import LanguageModel
from ...codegen.packages.program import packaged
from ...codegen.packages.systems import SYSTEMS
from ...errors import MegccError
from ...target import machine
from . import npm, tvm_ffi, wheel


def default_target(system: str) -> str:
    """Returns the default targets of a package: those of the system or, for wheels, of this machine."""
    return SYSTEMS[system].target or wheel.TARGETS_OF.get(machine(), "native")


def embedding(system: str, asked: str | None) -> bool | str:
    """Returns how a model for the system is embedded (`codegen.bundle`), by default or as asked for."""
    row = SYSTEMS[system]
    if row.weights_file:
        return False
    return asked or (TEXT if row.text or row.text_only else AUTO)


def export(folder: Path, system: str, output: str | Path | None, version: str = "1.0.0", url: str = "",
           force: bool = False, name: str | None = None, cc: str | None = None) -> dict:
    """Writes the package and returns a report: its folder, system, version, number of files and bytes.

    Args:
        folder: as `megcc compile` writes it.
        system: a row of `SYSTEMS`.
        output: the package's folder, by default the models' names and the system's.
        url: home page, for registries that require one.
        force: replace an existing folder whatever is in it.
        name: name of the package, by default the models'.
        cc: the C compiler, for packages that contain a library.

    Raises:
        MegccError: if there is no package of such a folder for the system, and as `folders.write_new`.
        ToolError: if there is no compiler, or it fails.
    """
    manifest = read_manifest(folder)
    program = packaged(folder, manifest)
    models = [program] if program else manifest["models"]
    bound = [model["name"] for model in models if model["options"].get("caller_inputs")]
    if bound:
        raise MegccError(f"{', '.join(bound)}: examples of packages write inputs into a session's memory; compile "
                         "without --caller-inputs, or take the folder as it is")
    split = [model["name"] for model in models if "regions" in model["options"]]
    if split:
        raise MegccError(f"{', '.join(split)}: examples of packages have one block of memory; compile without "
                         "--region, or take the folder as it is")
    if not SYSTEMS[system].programs and (program or LanguageModel.of(folder, manifest)):
        having = ", ".join(name for name, row in SYSTEMS.items() if row.programs)
        what = "program of several networks" if program else "language model"
        raise MegccError(f"{folder} is a {what}, which has no package for {system}: export it for {having}, or "
                         "take the folder as it is, which make and CMake build")
    output = Path(output or "_".join([*(model["name"] for model in models), system.replace("-", "_")]))
    folders.refuse_precious(output)
    folder_name = output.resolve().name
    if system == "npm":
        files = npm.package(folder, name, version, url, cc, folder_name=folder_name)
    elif SYSTEMS[system].built:
        files = {"wheel": wheel, "tvm-ffi": tvm_ffi}[system].package(folder, name, version, cc)
    else:
        files = sources.package(folder, system, version, url, name, folder_name)
    folders.write_new(output, files, force)
    return {"package": str(output), "system": system, "what": SYSTEMS[system].what, "version": version,
            "files": len(files), "bytes": sum(map(len, files.values()))}


def text(report: dict) -> str:
    return (f"{report['package']}: {report['what']}, {report['files']} files, {report['bytes']:,} bytes; "
            f"{report['package']}/README.md says how to use it\n")
