# SPDX-License-Identifier: Apache-2.0
"""Reads arrays from safetensors files, which are not trusted.

The format: eight bytes with the length of a header, the header as JSON, and the bytes of all arrays. The header has of
each array its dtype, shape and place: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import ModelError, quoted, refused_by_system

Array = npt.NDArray[Any]

#: Dtypes of the format -> those of numpy.
_DTYPES: dict[str, npt.DTypeLike] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
    "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8}
#: The most bytes of a header.
_MOST_HEADER = 100_000_000


def read(path: str | Path, names: Sequence[str]) -> dict[str, Array]:
    """Returns arrays of a file by their names, those that are there; they are read-only and mapped from the file.

    Raises:
        ModelError: if the file is damaged, or an array has another dtype than integers of 8 to 64 bits and floats.
    """
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            data = file.read(size) if size <= _MOST_HEADER else b""
        content = np.memmap(path, np.uint8, "r", offset=8 + size) if len(data) == size else None
        header = json.loads(data)
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from None
    except (ValueError, RecursionError) as error:  # ValueError: numpy maps no file without content, too
        raise ModelError(str(path), [f"the header is damaged: {error}"]) from None
    if content is None or not isinstance(header, dict):
        raise ModelError(str(path), ["the header is damaged"])
    return {name: _array(path, name, header[name], content) for name in names if name in header}


def _array(path: str | Path, name: str, entry: object, content: Array) -> Array:
    fields = entry if isinstance(entry, dict) else {}
    shape, offsets, kind = fields.get("shape"), fields.get("data_offsets"), fields.get("dtype")
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise ModelError(str(path), [f"{quoted(name)} has the dtype {quoted(str(kind))}; those that are read are "
                                     f"{', '.join(_DTYPES)}"])
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2 \
            or any(type(size) is not int or size < 0 for size in (*shape, *offsets)):
        raise ModelError(str(path), [f"the entry of {quoted(name)} in the header is damaged"])
    dtype, (begin, end) = np.dtype(_DTYPES[kind]), offsets
    if not begin <= end <= len(content) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ModelError(str(path), [f"the bytes of {quoted(name)} are not all in the file, or do not fit its shape"])
    return np.asarray(content[begin:end]).view(dtype).reshape(shape)
