# SPDX-License-Identifier: Apache-2.0
"""What a template is told: a dataclass for each, whose fields are the names that the template uses."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache


class Parameters(Mapping):
    """Base of frozen dataclasses; part of a kernel's identity, so their values are hashable.

    Raises:
        TypeError: for a value of another type than its field's.
    """

    def __post_init__(self):
        for name, wanted in _types(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise TypeError(f"{type(self).__name__}.{name} is {value!r}, not of {wanted}")

    def __getitem__(self, name: str):
        if name not in _types(type(self)):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(_types(type(self)))

    def __len__(self) -> int:
        return len(_types(type(self)))


@cache
def _types(cls: type) -> dict[str, tuple[type, ...]]:
    """Field -> the classes that its values may be of."""
    hints = typing.get_type_hints(cls)
    return {field.name: tuple(typing.get_origin(hint) or hint for hint in _alternatives(hints[field.name]))
            for field in fields(cls)}


def _alternatives(hint) -> tuple:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
