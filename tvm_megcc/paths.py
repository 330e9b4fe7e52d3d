# SPDX-License-Identifier: Apache-2.0
"""Locations of the files that are not Python: next to the package in a checkout, inside it when installed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from .errors import MegccError

PACKAGE = Path(__file__).resolve().parent


def c_runtime() -> Path:
    """Folder of the C runtime: include/, src/, tools/, ports/."""
    return _data("c_runtime")


def schema() -> Path:
    """Returns the container's schema."""
    return _data("schema") / "megcc.fbs"


def examples() -> Path:
    """Folder of the network that ships with the package: digits.onnx, digits.npz."""
    return PACKAGE / "examples"


def templates() -> tuple[Path, ...]:
    """Folders of the code generator's templates, in the order of the search: those of $MEGCC_TEMPLATES, then ours."""
    folders = filter(None, os.environ.get("MEGCC_TEMPLATES", "").split(os.pathsep))
    return (*map(Path, folders), PACKAGE / "codegen" / "templates", PACKAGE / "kernels")


class NoHome(MegccError):
    """The user has no home folder, so there is no cache."""


def cache(*parts: str) -> Path:
    """Returns the cache folder ($MEGCC_CACHE, else the user's), or one below it. Everything in it can be made again.

    Files in it are loaded and run, so each folder on the path must belong to the user, and be writable for nobody else.

    Raises:
        NoHome: the user has no home; MegccError: a folder belongs to somebody else, or others may write to it.
    """
    folder = _cache()
    _require_own(folder)
    for part in parts:
        folder /= part
        _require_own(folder)
    return folder


def _cache() -> Path:
    if folder := os.environ.get("MEGCC_CACHE"):
        return Path(folder)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "megcc"
    try:
        return Path.home() / ".cache" / "megcc"
    except RuntimeError:
        raise NoHome("there is no home folder for the cache: set MEGCC_CACHE to a folder of yours") from None


def _require_own(folder: Path) -> None:
    """Makes the folder if it does not exist. Raises MegccError if others could have put something into it."""
    with suppress(OSError):  # who writes there says what is wrong
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = folder.stat()
    except OSError:
        return
    if not hasattr(os, "geteuid"):  # Windows
        return
    what = "megcc loads and runs what lies in its cache, and the folder"
    if found.st_uid not in (os.geteuid(), 0):
        raise MegccError(f"{what} {folder} belongs to another user: set MEGCC_CACHE to a folder of yours")
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid)):
        raise MegccError(f"{what} {folder} can be written to by others: look at what is in it and 'chmod go-w' it, or "
                         "set MEGCC_CACHE to a folder of yours")


def _is_private(group: int) -> bool:
    """Whether it is the user private group that some systems make for each user."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (found.gr_name, found.gr_gid) == (user.pw_name, user.pw_gid) and {*found.gr_mem} <= {user.pw_name}


def _data(name: str) -> Path:
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
