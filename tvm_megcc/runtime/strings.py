# SPDX-License-Identifier: Apache-2.0
"""Converts string inputs to codes, and codes to string outputs. The code of a string is its index in the model's list
of strings; a string that is not in the list gets a negative code for one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class StringTable:
    """The list of strings of a model. known: the strings; the index is the code."""

    def __init__(self, known: Sequence[str]):
        self.known = tuple(known)
        self._codes = {text: code for code, text in enumerate(self.known)}

    @staticmethod
    def are(value: object) -> bool:
        """Returns whether a value consists of strings, not of codes."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        return array.dtype.kind in "OUST"   # numpy's kinds object, str, bytes and StringDType

    def codes(self, value: npt.ArrayLike, others: dict[str, int]) -> Array:
        """Converts strings (str, or bytes of UTF-8) to codes, int64. others: unknown string -> its negative code; new
        ones are added.

        Raises:
            TypeError: for an element that is not a string.
        """
        array = np.asarray(value, dtype=object)
        return np.array([self._code(text, others) for text in array.reshape(-1)], np.int64).reshape(array.shape)

    def _code(self, text: object, others: dict[str, int]) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__} is no string")
        code = self._codes.get(text)
        return others.setdefault(text, -1 - len(others)) if code is None else code

    def strings(self, codes: Array, others: dict[str, int]) -> Array:
        """Converts codes to strings, an array of str. others: string that is not in the list -> its negative code; ""
        for a code that is in neither."""
        unknown = {code: text for text, code in others.items()}
        texts = [self.known[code] if 0 <= code < len(self.known) else unknown.get(code, "")
                 for code in codes.reshape(-1).tolist()]
        result = np.empty(codes.shape, object)
        result.reshape(-1)[:] = texts
        return result
