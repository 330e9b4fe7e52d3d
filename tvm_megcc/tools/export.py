# SPDX-License-Identifier: Apache-2.0
"""`megcc export`: a generated folder as a package of an embedded build system."""

from __future__ import annotations

from pathlib import Path

from .. import folders
from ..codegen.manifest import read_manifest
from ..codegen.package import SYSTEMS, package
from ..errors import MegccError, refused_by_system


def export(folder: Path, system: str, output: str | Path | None, version: str = "1.0.0", url: str = "",
           force: bool = False) -> dict:
    """Writes the package (`codegen.package.package`) and returns what it is.

    Args:
        output: its folder, by default the models' names and the system's.
        force: replace an existing folder whatever is in it.

    Raises:
        MegccError: if the folder cannot be packed, or something else stands where it should be written.
    """
    files = package(folder, system, version, url)
    names = [model["name"] for model in read_manifest(folder)["models"]]
    output = Path(output or "_".join([*names, system.replace("-", "_")]))
    if output.exists() and not force and not (output.is_dir() and not any(output.iterdir())):
        raise MegccError(f"{output} exists already; choose another --output, or replace it with --force")
    try:
        folders.replace(output, files, keep="build")
    except OSError as error:
        raise refused_by_system(error, f"{output} cannot be written") from None
    return {"package": str(output), "system": system, "what": SYSTEMS[system], "version": version,
            "files": len(files), "bytes": sum(map(len, files.values()))}


def text(report: dict) -> str:
    return (f"{report['package']}: {report['what']}, {report['files']} files, {report['bytes']:,} bytes; "
            f"{report['package']}/README.md says how to use it\n")
