# SPDX-License-Identifier: Apache-2.0
"""Prints `<model>_strings.h`, the table of strings of a model, with which C code converts strings to codes and back."""

from __future__ import annotations

from collections.abc import Sequence

from ..foreign import c_string

#: The longest string literal that all compilers accept; longer strings become arrays of numbers.
LITERAL = 4000


def strings_context(name: str, strings: Sequence[str]) -> dict[str, object]:
    """Returns the values for the template. Strings are escaped, or given as numbers."""
    encoded = [text.encode() for text in strings]
    numbered = [number for number, text in enumerate(encoded) if len(text) > LITERAL]
    rows = [(f"{name}_string_{number}" if len(text) > LITERAL else c_string(strings[number]), len(text))
            for number, text in enumerate(encoded)]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    return {"name": name, "rows": rows, "long": [(number, _rows([*encoded[number], 0])) for number in numbered],
            "sorted": _rows(order)}


def _rows(numbers: Sequence[int]) -> list[str]:
    return [", ".join(map(str, numbers[start:start + 24])) for start in range(0, len(numbers), 24)]
