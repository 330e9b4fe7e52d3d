# SPDX-License-Identifier: Apache-2.0
"""What a template is told: a dataclass for each, whose fields are the names that the template uses."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, fields
from functools import cache


@dataclass(frozen=True)
class Parameters:
    """Base of frozen dataclasses; part of a kernel's identity, so their values are hashable.

    Raises:
        TypeError: for a value of another type than its field's.
    """

    def __post_init__(self):
        for name, wanted in _types(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise TypeError(f"{type(self).__name__}.{name} is {value!r}, not of {wanted}")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """(name, text) of files that a kernel brings along."""
        return ()


@dataclass(frozen=True)
class UnitParameters(Parameters):
    """unit: the C type of an element."""

    unit: str


@cache
def _types(cls: type) -> dict[str, tuple[type, ...]]:
    """Field -> the classes that its values may be of."""
    hints = typing.get_type_hints(cls)
    return {field.name: tuple(typing.get_origin(hint) or hint for hint in _alternatives(hints[field.name]))
            for field in fields(cls)}


def _alternatives(hint) -> tuple:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
