# SPDX-License-Identifier: Apache-2.0
"""`megcc export`: writes a generated folder as a package for a build system or a language."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...codegen.embedding import AUTO, TEXT
from ...codegen.manifest import read_manifest
from ...codegen.packages import base as sources
from ...codegen.packages.systems import SYSTEMS
from ...errors import MegccError, refused_by_system
from ...target import machine
from . import npm, tvm_ffi, wheel


def default_target(system: str) -> str:
    """Returns the targets that a model is compiled for where none is given; portable C if the system supports many
    CPUs."""
    return SYSTEMS[system].target or wheel.TARGETS_OF.get(machine(), "native")


def embedding(system: str, asked: str | None) -> bool | str:
    """Returns how a model for the system is embedded (`codegen.bundle`), by default or as asked for."""
    row = SYSTEMS[system]
    if row.weights_file:
        return False
    return asked or (TEXT if row.text or row.text_only else AUTO)


def export(folder: Path, system: str, output: str | Path | None, version: str = "1.0.0", url: str = "",
           force: bool = False, name: str | None = None, cc: str | None = None) -> dict:
    """Writes the package (`codegen.package.package`, `npm.package`) and returns what it is.

    Args:
        output: its folder, by default the models' names and the system's.
        force: replace an existing folder whatever is in it.
        name: name of the package, by default the models'.
        cc: the compiler, where something is built.

    Raises:
        MegccError: if the folder cannot be packed, or something else stands where it should be written.
        ToolError: if there is no compiler, or it fails.
    """
    if "program" in read_manifest(folder):
        raise MegccError(f"{folder} is a program of several networks: packages are of models; take the folder as it is")
    bound = [model["name"] for model in read_manifest(folder)["models"] if model["options"].get("caller_inputs")]
    if bound:
        raise MegccError(f"{', '.join(bound)}: examples of packages write inputs into a session's memory; compile "
                         "without --caller-inputs, or take the folder as it is")
    split = [model["name"] for model in read_manifest(folder)["models"] if "regions" in model["options"]]
    if split:
        raise MegccError(f"{', '.join(split)}: examples of packages have one block of memory; compile without "
                         "--region, or take the folder as it is")
    names = [model["name"] for model in read_manifest(folder)["models"]]
    output = Path(output or "_".join([*names, system.replace("-", "_")]))
    folders.refuse_precious(output)
    folder_name = output.resolve().name
    if system == "npm":
        files = npm.package(folder, name, version, url, cc, folder_name=folder_name)
    elif SYSTEMS[system].built:
        files = {"wheel": wheel, "tvm-ffi": tvm_ffi}[system].package(folder, name, version, cc)
    else:
        files = sources.package(folder, system, version, url, name, folder_name)
    if output.exists() and not force and not (output.is_dir() and not any(output.iterdir())):
        raise MegccError(f"{output} exists already; choose another --output, or replace it with --force")
    try:
        folders.replace(output, files, keep="build")
    except OSError as error:
        raise refused_by_system(error, f"{output} cannot be written") from None
    return {"package": str(output), "system": system, "what": SYSTEMS[system].what, "version": version,
            "files": len(files), "bytes": sum(map(len, files.values()))}


def text(report: dict) -> str:
    return (f"{report['package']}: {report['what']}, {report['files']} files, {report['bytes']:,} bytes; "
            f"{report['package']}/README.md says how to use it\n")
