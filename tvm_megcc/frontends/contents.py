# SPDX-License-Identifier: Apache-2.0
"""Chooses the front end for a file, by its contents if they tell, else by its suffix. Imports little, since no front
end is imported before one is chosen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

#: The number of leading bytes of a file that are examined.
HEAD = 64
#: Kinds of files that are not ONNX, by suffix.
NAMES = {".tflite": "tflite", ".gguf": "gguf", ".pt2": "program"}
#: The same by magic bytes: (offset, bytes, kind).
_MARKS = ((4, b"TFL3", "tflite"), (0, b"GGUF", "gguf"))
#: The magic bytes of a ZIP archive, such as a program of torch.export. No ONNX file begins with them.
_ARCHIVE = b"PK"


def head_of(path: Path) -> bytes:
    """Returns the first bytes of a file; b"" for one that cannot be read, and for a pipe, which can be read only
    once."""
    try:
        if not os.path.isfile(path):
            return b""
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""


def marked(head: bytes) -> str:
    """Returns the kind of a file by its magic bytes: "tflite", "gguf" or ""."""
    return next((kind for where, mark, kind in _MARKS if head[where:].startswith(mark)), "")


def kind_of(model: Any) -> str:
    """Returns "tflite", "gguf" or "program" (of torch.export) for the path of such a file; "" for ONNX, or if `model`
    is not a path."""
    if not isinstance(model, (str, Path)):
        return ""
    path = Path(model)
    head, named = head_of(path), NAMES.get(path.suffix.lower(), "")
    if found := marked(head):
        return found
    return "" if named and head and not head.startswith(_ARCHIVE) and is_onnx(path) else named


def is_tflite(model: Any) -> bool:
    return kind_of(model) == "tflite"


def is_gguf(model: Any) -> bool:
    return kind_of(model) == "gguf"


def is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model by its contents."""
    import onnx
    from google.protobuf.message import DecodeError

    from ..folders import read

    try:
        return bool(onnx.ModelProto.FromString(read(path)).graph.output)
    except (DecodeError, OSError):
        return False
