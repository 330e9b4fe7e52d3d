# SPDX-License-Identifier: Apache-2.0
"""`megcc cv`: operators on images as a library in C."""

from __future__ import annotations

from pathlib import Path

from ... import folders
from ...codegen.packages import image_library
from ...errors import MegccError
from ...target import parse_targets


def write(target: str, output: str | Path, force: bool = False) -> dict:
    """Writes the library for one target and returns a report: folder, target, number of files, C sources.

    Raises:
        MegccError: for several targets, and as `folders.write_new`.
    """
    targets, output = parse_targets(target), Path(output)
    if len(targets) != 1:
        raise MegccError("one target a folder; write one for each CPU")
    folders.refuse_precious(output)
    rendered = image_library.files(targets[0])
    folders.write_new(output, rendered, force)
    return {"folder": str(output), "target": targets[0].name, "files": len(rendered),
            "sources": sorted(name for name in rendered if name.endswith(".c"))}


def text(report: dict) -> str:
    return (f"{report['folder']}: {', '.join(report['sources'])} for {report['target']}; "
            f"{report['folder']}/megcc_cv.h says how to use them\n")
