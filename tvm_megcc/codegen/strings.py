# SPDX-License-Identifier: Apache-2.0
"""Prepares the values for the template of `<model>_strings.h`, the table of a model's strings. A model computes on the
indices of its strings in this table (codes); with the header, C code converts strings to codes and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..foreign import c_string
from ..version import VERSION

#: Bytes of the longest string that is printed as a literal: ISO C99 promises 4095 characters. Longer strings become
#: arrays of numbers.
MAX_LITERAL_BYTES = 4000
#: Numbers in a line of such an array.
_NUMBERS_A_LINE = 24


class StringsVariables(TypedDict):
    """The context of the template `bundle/strings.h.j2`.

    version: version of tvm_megcc, such as "1.4.0".
    name: the model's, a C identifier.
    rows: (C expression of the string, its bytes in UTF-8) for each code; the expression is a literal, or the name of an
        array for a long string.
    arrays: (code, lines of comma-separated bytes) for each string that is too long for a literal.
    sorted_codes: the codes in the order of their strings' bytes, for a binary search, as lines of numbers with
        commas.
    """

    version: str
    name: str
    rows: Sequence[tuple[str, int]]
    arrays: Sequence[tuple[int, Sequence[str]]]
    sorted_codes: Sequence[str]


def strings_context(name: str, strings: Sequence[str]) -> StringsVariables:
    """Returns the values for the template `bundle/strings.h.j2`. name: the model's."""
    encoded = [string.encode() for string in strings]
    is_long = [len(data) > MAX_LITERAL_BYTES for data in encoded]
    rows = [(f"{name}_string_{code}" if is_long[code] else c_string(strings[code]), len(data))
            for code, data in enumerate(encoded)]
    arrays = [(code, _lines([*data, 0])) for code, data in enumerate(encoded) if is_long[code]]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    return {"version": VERSION, "name": name, "rows": rows, "arrays": arrays, "sorted_codes": _lines(order)}


def _lines(numbers: Sequence[int]) -> list[str]:
    return [", ".join(map(str, numbers[start:start + _NUMBERS_A_LINE]))
            for start in range(0, len(numbers), _NUMBERS_A_LINE)]
