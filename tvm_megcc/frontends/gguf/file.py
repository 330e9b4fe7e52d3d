# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file. The file is not trusted: every offset, length and type is checked here, and nowhere else.

Source: "GGUF" in docs/gguf.md of ggml, versions 2 and 3, little endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import ModelError, quoted
from ...ir.limits import MAX_BYTES

MAGIC = b"GGUF"
#: Versions that are read. Version 1 had 32-bit lengths and is no longer written.
VERSIONS = (2, 3)
MAX_AXES = 4
DEFAULT_ALIGNMENT = 32

#: The format's codes of the types of metadata that are not numbers.
_BOOL_CODE, _STRING_CODE, _ARRAY_CODE = 7, 8, 9
#: The format's codes of numeric types -> numpy dtypes.
_NUMBER_DTYPES = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}


@dataclass(frozen=True)
class Encoding:
    """A storage format of tensors: each block of `elements` elements takes `size` bytes."""

    name: str
    elements: int
    size: int


#: The format's codes (ggml_type) -> encodings: (code, name, elements of a block, bytes of a block). Those that are not
#: supported are listed too, so that the sizes of their tensors can be checked.
ENCODINGS = {
    code: Encoding(name, elements, size) for code, name, elements, size in (
        (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210), (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50), (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136), (24, "I8", 1, 1),
        (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8), (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66))}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file. shape: row-major, the reverse of the file's order. data: its bytes, uint8."""

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    data: np.ndarray


@dataclass(frozen=True)
class File:
    """The contents of a file. metadata: values by key; arrays of numbers are numpy arrays, arrays of strings lists."""

    path: Path
    metadata: Mapping[str, object]
    tensors: Mapping[str, Tensor]


def read(path: str | Path) -> File:
    """Reads a file. Tensor data are memory-mapped, and read only when they are used.

    Raises:
        ModelError: if the file cannot be read, is damaged, or is not a GGUF file.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    except OSError as error:
        raise ModelError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    return _Reader(path, data).file()


class _Reader:
    """Reads values one after another from byte `position` on, never beyond the end of the file. `data`: the file's
    bytes, uint8. Methods raise ModelError for what is damaged."""

    def __init__(self, path: Path, data: np.ndarray):
        self.path, self.data, self.position = path, data, 0

    def file(self) -> File:
        if bytes(self.data[:4]) != MAGIC:
            raise self._error("does not begin with GGUF")
        self.position = 4
        version = self._read_number("<u4")
        if version not in VERSIONS:
            swapped = int.from_bytes(struct.pack("<I", version), "big")
            raise self._error("is a big-endian file; only little-endian ones are read" if swapped in VERSIONS else
                              f"has version {version}; {' and '.join(map(str, VERSIONS))} are read")
        tensor_count, metadata_count = self._read_number("<u8"), self._read_number("<u8")
        metadata = self._read_metadata(metadata_count)
        return File(self.path, metadata, self._read_tensors(tensor_count, self._alignment(metadata)))

    def _error(self, reason: str) -> ModelError:
        """Returns an error; after the magic bytes, the file is known to be GGUF, and another copy may help."""
        return ModelError(str(self.path), [reason], "Download or convert it again" if self.position else "")

    def _read_bytes(self, size: int) -> np.ndarray:
        if size > len(self.data) - self.position:
            raise self._error(f"ends at byte {len(self.data):,}, within {size:,} bytes from byte {self.position:,} on")
        self.position += size
        return self.data[self.position - size:self.position]

    def _read_number(self, dtype: str) -> int:
        return int(self._read_bytes(np.dtype(dtype).itemsize).view(dtype)[0])

    def _read_string(self) -> str:
        return bytes(self._read_bytes(self._read_number("<u8"))).decode("utf-8", "surrogateescape")

    def _read_unused_name(self, what: str, used: Mapping[str, object]) -> str:
        """Reads a name that is not in `used`. what: what has the name, in the plural, for the message."""
        name = self._read_string()
        if name in used:
            raise self._error(f"has two {what} {quoted(name)}")
        return name

    def _read_metadata(self, count: int) -> dict[str, object]:
        found: dict[str, object] = {}
        for _ in range(count):
            key = self._read_unused_name("values", found)
            found[key] = self._read_value(self._read_number("<u4"), key)
        return found

    def _read_value(self, code: int, key: str) -> object:
        if code == _ARRAY_CODE:
            return self._read_array(key)
        if code == _STRING_CODE:
            return self._read_string()
        if code == _BOOL_CODE:
            return bool(self._read_number("<u1"))
        if code not in _NUMBER_DTYPES:
            raise self._error(f"{quoted(key)} is of type {code}, which the format does not have")
        dtype = _NUMBER_DTYPES[code]
        return self._read_bytes(np.dtype(dtype).itemsize).view(dtype)[0].item()

    def _read_array(self, key: str) -> object:
        code, count = self._read_number("<u4"), self._read_number("<u8")
        if code == _STRING_CODE:
            return [self._read_string() for _ in range(count)]
        dtype = "<u1" if code == _BOOL_CODE else _NUMBER_DTYPES.get(code)
        if dtype is None:
            raise self._error(f"{quoted(key)} is an array of type {code}, which is not read")
        return np.array(self._read_bytes(count * np.dtype(dtype).itemsize)).view(dtype)

    def _alignment(self, metadata: Mapping[str, object]) -> int:
        """Returns the number of bytes that tensors are aligned to within the file."""
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment % 8:
            raise self._error(f"general.alignment is {alignment}, and no multiple of 8")
        return alignment

    def _read_tensors(self, count: int, alignment: int) -> dict[str, Tensor]:
        """Reads the table of tensors. Their data follow it, from the next multiple of the alignment on."""
        rows: dict[str, tuple[tuple[int, ...], Encoding, int]] = {}
        for _ in range(count):
            name = self._read_unused_name("tensors", rows)
            axes = self._read_number("<u4")
            if axes > MAX_AXES:
                raise self._error(f"tensor {quoted(name)} has {axes} axes; there are {MAX_AXES} at most")
            shape = tuple(self._read_number("<u8") for _ in range(axes))[::-1]
            code = self._read_number("<u4")
            if code not in ENCODINGS:
                raise self._error(f"tensor {quoted(name)} has the encoding {code}, which is not known")
            rows[name] = shape, ENCODINGS[code], self._read_number("<u8")
        data_start = -(-self.position // alignment) * alignment
        return {name: self._tensor(name, *row, data_start, alignment) for name, row in rows.items()}

    def _tensor(self, name: str, shape: tuple[int, ...], encoding: Encoding, offset: int, data_start: int,
                alignment: int) -> Tensor:
        """Checks a row of the table and returns its tensor. offset: of its data, in bytes from `data_start` on."""
        elements, last = math.prod(shape), shape[-1] if shape else 1
        size = elements // encoding.elements * encoding.size
        if elements < 1 or last % encoding.elements:
            raise self._error(f"tensor {quoted(name)} of {list(shape)} does not consist of blocks of "
                              f"{encoding.elements} ({encoding.name})")
        if size > MAX_BYTES:
            raise self._error(f"tensor {quoted(name)} has {size:,} bytes, and no tensor may reach 2 GB")
        if offset % alignment or data_start + offset + size > len(self.data):
            raise self._error(f"tensor {quoted(name)}: {size:,} bytes from {offset:,} on are not in the file")
        return Tensor(name, shape, encoding, self.data[data_start + offset:data_start + offset + size])
