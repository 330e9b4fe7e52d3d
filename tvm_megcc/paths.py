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
    """Returns the folder of the C runtime, with include/, src/, tools/ and ports/."""
    return _data("c_runtime")


def schema() -> Path:
    """Returns the path of the container's FlatBuffers schema."""
    return _data("schema") / "megcc.fbs"


def examples() -> Path:
    """Returns the folder of the example network: digits.onnx, digits.npz."""
    return PACKAGE / "examples"


def templates() -> tuple[Path, ...]:
    """Returns the folders of templates in search order: those of $MEGCC_TEMPLATES, then the package's."""
    folders = filter(None, os.environ.get("MEGCC_TEMPLATES", "").split(os.pathsep))
    return (*map(Path, folders), PACKAGE / "codegen" / "templates", PACKAGE / "kernels")


class NoHome(MegccError):
    """The user has no home folder, so there is no cache."""


def cache(*parts: str) -> Path:
    """Returns the cache folder ($MEGCC_CACHE, else the user's) or a folder below it, and creates it. Nothing in it is
    needed: it can be deleted at any time.

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
    with suppress(OSError):  # the first write to the folder reports the error
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        status = folder.stat()
    except OSError:
        return
    if not hasattr(os, "geteuid"):  # Windows
        return
    what = "megcc loads and runs what lies in its cache, and the folder"
    if status.st_uid not in (os.geteuid(), 0):
        raise MegccError(f"{what} {folder} belongs to another user: set MEGCC_CACHE to a folder of yours")
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)):
        raise MegccError(f"{what} {folder} can be written to by others: look at what is in it and 'chmod go-w' it, or "
                         "set MEGCC_CACHE to a folder of yours")


def _is_private(group: int) -> bool:
    """Returns whether a group is the user private group: named like the user, with no other member."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (entry.gr_name, entry.gr_gid) == (user.pw_name, user.pw_gid) and {*entry.gr_mem} <= {user.pw_name}


def _data(name: str) -> Path:
    """Returns a folder of the project: inside the installed package, or next to it in a checkout."""
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
