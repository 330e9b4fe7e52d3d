# SPDX-License-Identifier: Apache-2.0
"""Which front end a file is for: its contents say so where they can, else the end of its name. Imports little: front
ends are chosen before one is imported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

#: Bytes at the beginning of a file that tell what it is.
HEAD = 64
#: Kinds of files that are not ONNX, by the end of the name.
NAMES = {".tflite": "tflite", ".gguf": "gguf", ".pt2": "program"}
#: The same, by what stands where.
_MARKS = ((4, b"TFL3", "tflite"), (0, b"GGUF", "gguf"))
#: An archive, as a program of torch.export is one: no ONNX file begins so.
_ARCHIVE = b"PK"


def head_of(path: Path) -> bytes:
    """Returns the first bytes of a file; none where it cannot be read, and of a pipe, which is read once."""
    try:
        if not os.path.isfile(path):
            return b""
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError:
        return b""


def marked(head: bytes) -> str:
    """Returns the kind that the first bytes of a file say by themselves: "tflite", "gguf" or ""."""
    return next((kind for where, mark, kind in _MARKS if head[where:].startswith(mark)), "")


def kind_of(model: Any) -> str:
    """Returns "tflite", "gguf" or "program" (of torch.export) for the path of such a file; "" for ONNX, and for what is
    no path."""
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
