# SPDX-License-Identifier: Apache-2.0
"""`megcc cv`: operators on images as a library in C."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...codegen.packages import image_library
from ...errors import MegccError, refused_by_system
from ...target import parse_targets


def write(target: str, output: str | Path, force: bool = False) -> dict:
    """Writes the library for one target and says what it is.

    Raises:
        MegccError: for several targets, or where something else stands that should be written.
    """
    targets, output = parse_targets(target), Path(output)
    if len(targets) != 1:
        raise MegccError("one target a folder; write one for each CPU")
    folders.refuse_precious(output)
    if output.exists() and not force and not (output.is_dir() and not any(output.iterdir())):
        raise MegccError(f"{output} exists already; choose another --output, or replace it with --force")
    rendered = image_library.files(targets[0])
    try:
        folders.replace(output, rendered, keep="build")
    except OSError as error:
        raise refused_by_system(error, f"{output} cannot be written") from None
    return {"folder": str(output), "target": targets[0].name, "files": len(rendered),
            "sources": sorted(name for name in rendered if name.endswith(".c"))}


def text(report: dict) -> str:
    return (f"{report['folder']}: {', '.join(report['sources'])} for {report['target']}; "
            f"{report['folder']}/megcc_cv.h says how to use them\n")
