# SPDX-License-Identifier: Apache-2.0
"""The weights of a container as a list of pieces, so that a model of gigabytes is in memory only once."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator

from ...folders import Bytes


class Weights:
    """The weights of a container: pieces at multiples of `alignment` bytes. Equal pieces are stored once, and no piece
    is copied."""

    def __init__(self, alignment: int = 64):
        self.alignment = alignment
        self._pieces: list[memoryview] = []
        self._begins: list[int] = []
        self._offsets: dict[bytes, int] = {}
        self._size = 0

    def add(self, data: Bytes, digest: bytes | None = None) -> int:
        """Adds `data` unless equal bytes are there, and returns its byte offset. digest: its SHA-256, if known."""
        key = digest or hashlib.sha256(data).digest()
        if key not in self._offsets:
            begin = self._size + -self._size % self.alignment
            self._pieces.append(memoryview(data))
            self._begins.append(begin)
            self._offsets[key], self._size = begin, begin + len(data)
        return self._offsets[key]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, range_: slice) -> memoryview:
        """Returns a range of byte offsets, which must lie in one piece."""
        index = bisect_right(self._begins, range_.start) - 1
        begin = self._begins[index]
        return self._pieces[index][range_.start - begin:range_.stop - begin]

    def pieces(self) -> Iterator[Bytes]:
        """Yields all pieces in order, with the zeros between them."""
        end = 0
        for begin, piece in zip(self._begins, self._pieces, strict=True):
            if begin != end:
                yield bytes(begin - end)
            yield piece
            end = begin + len(piece)
