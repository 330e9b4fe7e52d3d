# SPDX-License-Identifier: Apache-2.0
"""Names of values and steps: C takes them as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import MegccError, quoted
from .steps import Function, Loop, NamedFunction, Network, Operator, Step, Tokenizer

#: Words of C and C++, macros that compilers have by themselves, and names that the generated functions use themselves
#: (templates/program/program.c.j2).
_RESERVED = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield "
    "compl concept const const_cast consteval constexpr constinit continue decltype default delete do double "
    "dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace "
    "new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile while xor "
    "xor_eq i386 linux unix main error from to program status matrix value fill pixels i "
    "failed open_network memcpy memset data size memory bytes at container block models read_trip_count "
    "in_step extent_of wrong_length reorder reorder_rows".split())
#: Counters of loops in the generated function, with the depth of the loop: i1, n1, ….
_COUNTER = re.compile(r"[in]\d+")
#: How macros of inputs and outputs begin.
MACROS = ("in_", "out_")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Named(NamedTuple):
    """A step with its name, a C identifier that no other step has. number: "3", in a loop "3.2". depth: 0, in a loop 1.
    body: the steps of a loop."""

    number: str
    name: str
    step: Step
    depth: int
    body: tuple[Named, ...]

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"step {self.number} '{self.name}'"


def named(steps: Sequence[Step]) -> tuple[Named, ...]:
    """Returns the steps with their names.

    Raises:
        MegccError: for a name that cannot be one.
    """
    used: set[str] = set()

    def tree(of: Sequence[Step], prefix: str, depth: int) -> tuple[Named, ...]:
        rows = []
        for index, step in enumerate(of):
            number = f"{prefix}{index + 1}"
            given = step.name or (step.loop if isinstance(step, Loop) else "")
            if given:
                require_name(given, f"step {number}: name")
                if given.startswith(MACROS):
                    raise MegccError(f"step {number}: name: '{given}' begins as macros of inputs and outputs do")
            name, count = given or _default_name(step), 1
            while name in used:
                count += 1
                name = f"{given or _default_name(step)}_{count}"
            used.add(name)
            rows.append(Named(number, name, step, depth, tree(step.steps, f"{number}.", depth + 1)
                              if isinstance(step, Loop) else ()))
        return tuple(rows)

    return tree(steps, "", 0)


def flattened(steps: Sequence[Named]) -> Iterator[Named]:
    """Yields the steps in their order, those of a loop after it."""
    for row in steps:
        yield row
        yield from flattened(row.body)


def located(error: MegccError, steps: Sequence[Step]) -> str:
    """Returns the message of an error, with the line of the file before it if it begins with a step."""
    found = re.match(r"step (\d+(?:\.\d+)*)\b", str(error))
    line = 0
    for number in found[1].split(".") if found else ():
        step = steps[int(number) - 1]
        line, steps = step.line, step.steps if isinstance(step, Loop) else ()
    return f"line {line}: {error}" if line else str(error)


def _default_name(step: Step) -> str:
    if isinstance(step, Network):
        text = step.path.replace("\\", "/").split("/")[-1].rsplit(".", 1)[0]
    elif isinstance(step, Operator):
        text = step.operator.split("::")[-1]
    elif isinstance(step, Tokenizer):
        text = step.kind
    else:
        assert isinstance(step, (Function, NamedFunction)), "loops have names"
        text = step.function
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:30]
    return name if is_name(name) and not name.startswith(MACROS) else f"{step.kind}_{name}".rstrip("_")


def is_name(text: str) -> bool:
    """Whether C takes it; names that end in _t are types of its headers."""
    return bool(_NAME.fullmatch(text)) and text not in _RESERVED and not text.startswith("megcc") \
        and not text.endswith("_t") and not _COUNTER.fullmatch(text)


def require_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not is_name(name):
        raise MegccError(f"{where}: {quoted(name)} cannot be a name: small letters, digits and _, beginning with a "
                         "letter, at most 40, and no word of C")
