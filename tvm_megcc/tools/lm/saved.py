# SPDX-License-Identifier: Apache-2.0
"""Saves and loads, as bytes, the tokens that a text has read, and its keys and values."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import MegccError
from ...runtime.session import Array

#: The name of the array of tokens.
_TOKENS = "read tokens"


def pack(tokens: list[int], arrays: Mapping[str, Array]) -> bytes:
    """Returns tokens and arrays as bytes, in numpy's format npz."""
    parts: dict[str, Any] = {_TOKENS: np.array(tokens, np.int64), **arrays}
    written = io.BytesIO()
    np.savez(written, **parts)
    return written.getvalue()


def unpack(saved: bytes, what: str, vocabulary: int, longest: float) -> tuple[list[int], dict[str, Array]]:
    """Returns the tokens and arrays that `pack` has written; the bytes are not trusted.

    Args:
        what: what was saved, for messages.
        vocabulary: the number of tokens that there are.
        longest: the most tokens of a text.

    Raises:
        MegccError: if the bytes are damaged, or have no tokens, unknown ones or too many.
    """
    try:
        with np.load(io.BytesIO(saved), allow_pickle=False) as found:
            given = {name: found[name] for name in found.files}
    except Exception as error:  # numpy lets the errors of zipfile, zlib and its own parser through
        raise MegccError(f"the saved {what} is damaged: {error}") from None
    tokens = given.pop(_TOKENS, None)
    if tokens is None or tokens.dtype != np.int64 or tokens.ndim != 1 or len(tokens) > longest \
            or not ((tokens >= 0) & (tokens < vocabulary)).all():
        raise MegccError(f"the saved {what} has no tokens, or tokens that this model does not have")
    return tokens.tolist(), given
