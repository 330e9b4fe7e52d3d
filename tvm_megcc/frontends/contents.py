# SPDX-License-Identifier: Apache-2.0
"""Recognises the format of a model file: by its magic bytes if it has any, else by its suffix. `models.py` chooses the
front end by it. This module imports little, since no front end is imported before one is chosen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

#: The number of leading bytes of a file that are examined.
MAGIC_SIZE = 64
#: Suffix -> kind, for files that are not ONNX.
_KIND_BY_SUFFIX = {".tflite": "tflite", ".gguf": "gguf", ".pt2": "program"}
#: Files with magic bytes: (offset of the bytes in the file, magic bytes, kind).
_KIND_BY_MAGIC = ((4, b"TFL3", "tflite"), (0, b"GGUF", "gguf"))
#: The magic bytes of a ZIP archive, such as a program of torch.export. No ONNX file begins with them.
_ZIP_MAGIC = b"PK"


def leading_bytes(path: Path) -> bytes:
    """Returns the first bytes of a file; b"" for one that cannot be read, and for a pipe, which can be read only
    once."""
    try:
        if not os.path.isfile(path):
            return b""
        with path.open("rb") as file:
            return file.read(MAGIC_SIZE)
    except OSError:
        return b""


def kind_by_magic(head: bytes) -> str:
    """Returns the kind of a file by its magic bytes: "tflite", "gguf" or ""."""
    return next((kind for offset, magic, kind in _KIND_BY_MAGIC if head[offset:].startswith(magic)), "")


def kind_of(model: Any) -> str:
    """Returns "tflite", "gguf" or "program" (of torch.export) for the path of such a file; "" for ONNX, or if `model`
    is not a path. An ONNX file with a suffix of another format is ONNX."""
    if not isinstance(model, (str, Path)):
        return ""
    path = Path(model)
    head = leading_bytes(path)
    if kind := kind_by_magic(head):
        return kind
    kind = _KIND_BY_SUFFIX.get(path.suffix.lower(), "")
    may_be_onnx = kind and head and not head.startswith(_ZIP_MAGIC)
    return "" if may_be_onnx and is_onnx(path) else kind


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
