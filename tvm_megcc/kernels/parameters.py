# SPDX-License-Identifier: Apache-2.0
"""The parameters of templates. The fields of a kernel's dataclass are the variables of its template. A comment at the
head of the generated file lists them, except for fields with `repr=False`, whose C code is in the file anyway."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from functools import cache

from ..target import Isa


@dataclass(frozen=True)
class Scope:
    """The variables of every template besides its parameters (codegen/c_source/render.py).

    isa: the instruction set (target.py).
    ep: prints the epilogue: ep(v), ep.store(…). ep.params, ep.args: its operands as C parameters, as arguments.
    known: known.X is the extent X (N, OW, …), if code may be unrolled for its value; else None.
    fixed: fixed.X is the extent X (N, OW, …), if it is a constant in the code; else None: an argument of the call.
    compact: whether the kernel is for `-O size`.
    float: the C type of the elements that a vector holds: float, or mgc_float16 on vectors of float16.
    """

    isa: Isa
    ep: typing.Any
    known: typing.Any
    fixed: typing.Any
    compact: bool
    float: str


#: Variables of every template that codegen/c_source/render.py makes of the operands, and what they are.
RENDERED = {
    "entry": "the head of the kernel function, which declares the operands and extents that its body uses.",
    "stored": "stored.x has the C `type` of operand x, and the mgc functions `load`, `store` and `set1` for it.",
    "symbol": "the C name of the kernel function.",
}


@dataclass(frozen=True)
class Parameters:
    """Base of the frozen dataclasses. Two calls with equal parameters share a kernel, so values must be hashable.

    Raises:
        TypeError: if a value is not of its field's type.
    """

    def __post_init__(self):
        for name, wanted in _types(type(self)).items():
            value = getattr(self, name)
            if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
                raise TypeError(f"{type(self).__name__}.{name} is {value!r}, not of {wanted}")

    def facts(self) -> tuple[str, ...]:
        """Returns `name = value` for each field that is not empty; for a flag that is set, its name."""
        return tuple(name if value is True else f"{name} = {_text(value)}" for name, value in _shown_fields(self))

    def microkernel(self, scope: Scope) -> object | None:
        """Returns the template's variable `microkernel`, which prints code from Python (kernels/microkernel/)."""
        return None

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Returns (name, text) of the files that a kernel adds to the generated folder."""
        return ()


@dataclass(frozen=True)
class UnitParameters(Parameters):
    """unit: the C type of an element."""

    unit: str


@cache
def _types(cls: type) -> dict[str, tuple[type, ...]]:
    """Returns field -> the classes that its values may have."""
    hints = typing.get_type_hints(cls)
    return {field.name: tuple(typing.get_origin(hint) or hint for hint in _alternatives(hints[field.name]))
            for field in fields(cls)}


def _alternatives(hint) -> tuple:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _shown_fields(values) -> list[tuple[str, typing.Any]]:
    """Returns the name and value of each field of a dataclass that is not empty."""
    named = [(field.name, getattr(values, field.name)) for field in fields(values) if field.repr]
    return [(name, value) for name, value in named
            if value is not None and value is not False and value not in ("", ())]


def _text(value) -> str:
    """Prints a value: a tuple as its items, flags as digits, a dataclass without `__str__` as its fields."""
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return " ".join(name if part is True else f"{name} {_text(part)}" for name, part in _shown_fields(value))
    if not isinstance(value, tuple):
        return str(int(value) if isinstance(value, bool) else value)
    items = [f"({_text(item)})" if isinstance(item, tuple) and not _are_flags(item) else _text(item) for item in value]
    return ("" if _are_flags(value) else " ").join(items)


def _are_flags(value: tuple) -> bool:
    return all(isinstance(item, bool) for item in value)
