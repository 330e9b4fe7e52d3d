# SPDX-License-Identifier: Apache-2.0
"""Where the files are that are no Python: beside the package in a checkout, inside it when installed."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import MegccError

PACKAGE = Path(__file__).resolve().parent


def c_runtime() -> Path:
    """Folder of the C runtime: include/, src/, tools/, ports/."""
    return _data("c_runtime")


def schema() -> Path:
    """The container's schema."""
    return _data("schema") / "megcc.fbs"


def examples() -> Path:
    """Folder of the network that ships with the package: digits.onnx, digits.npz."""
    return PACKAGE / "examples"


def templates() -> tuple[Path, ...]:
    """Folders of the code generator's templates, in the order of the search: those of $MEGCC_TEMPLATES, then ours."""
    own = filter(None, os.environ.get("MEGCC_TEMPLATES", "").split(os.pathsep))
    return (*map(Path, own), PACKAGE / "codegen" / "templates", PACKAGE / "kernels")


def cache() -> Path:
    """Folder for what can be made again at any time ($MEGCC_CACHE, else the user's cache folder).

    Raises:
        MegccError: the user has no home.
    """
    if own := os.environ.get("MEGCC_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "megcc"
    try:
        return Path.home() / ".cache" / "megcc"
    except RuntimeError:
        raise MegccError("there is no home folder for the cache: set MEGCC_CACHE to a folder of yours") from None


def _data(name: str) -> Path:
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
