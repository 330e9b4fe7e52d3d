# SPDX-License-Identifier: Apache-2.0
"""Opens the files of a folder: maps containers into memory, loads libraries."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import shutil
import tempfile
from pathlib import Path

import numpy as np

from .session import Array

#: Path -> inode of each library that this process has loaded.
_loaded: dict[Path, int] = {}


def map_file(path: Path) -> Array:
    """Returns the bytes of a file, uint8 [size], without reading them: the system reads what is used.

    Asks for large pages, which Linux has for files since 6.16 (ext4, XFS): a network that reads all its weights once in
    a run would otherwise wait for page tables as long as for the weights.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is empty.
    """
    mapped = np.memmap(path, np.uint8, "r")
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # kernels without large pages refuse the advice
            mapped.base.madvise(mmap.MADV_HUGEPAGE)  # type: ignore[union-attr]
    return mapped


def open_library(path: Path) -> ctypes.CDLL:
    """Loads the library at a path, which has no symbolic links. If the file was replaced since an earlier load, a copy
    is loaded: dlopen would return the earlier library.

    Raises:
        OSError: it is no library for this machine.
    """
    inode = path.stat().st_ino
    if _loaded.setdefault(path, inode) == inode:
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(shutil.copy2(path, folder))
