# SPDX-License-Identifier: Apache-2.0
"""Maps containers into memory."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

import numpy as np

from .session import Array


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
