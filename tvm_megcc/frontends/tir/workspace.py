# SPDX-License-Identifier: Apache-2.0
"""Plans the temporaries of a printed TIR function: which of them share memory, and their offsets in the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dims import Dim, product, symbols
from ...ir.types import DTYPES

#: Temporaries of at most this many bytes are local variables.
MAX_LOCAL_BYTES = 128


@dataclass
class Temporary:
    """A temporary buffer.

    size: elements, an expression over the extents.
    first, last: the first and the last statement that use it.
    """

    name: str
    dtype: str
    size: Dim
    first: int = -1
    last: int = -1


@dataclass
class Slot:
    """Memory shared by temporaries of one dtype with disjoint live ranges. size: in elements."""

    dtype: str
    size: Dim
    users: list[Temporary]

    def can_hold(self, temporary: Temporary) -> bool:
        """Whether a temporary can use the slot after those before. Sizes have to be equal if they are symbolic, since
        no maximum is taken of them."""
        sizes_agree = self.size == temporary.size or not (symbols(self.size) | symbols(temporary.size))
        return self.dtype == temporary.dtype and sizes_agree and self.users[-1].last < temporary.first


def assign_slots(temporaries: Sequence[Temporary]) -> list[Slot]:
    """Assigns temporaries to slots. Slots of wide dtypes come first, so that each is aligned after the one before."""
    slots: list[Slot] = []
    for temporary in sorted(temporaries, key=lambda t: t.first):
        free = [slot for slot in slots if slot.can_hold(temporary)]
        if free:
            slot = min(free, key=lambda slot: abs(slot.size - temporary.size) if isinstance(slot.size, int) else 0)
            slot.size = max(slot.size, temporary.size) if isinstance(slot.size, int) else slot.size
            slot.users.append(temporary)
        else:
            slots.append(Slot(temporary.dtype, temporary.size, [temporary]))
    return sorted(slots, key=lambda slot: -DTYPES[slot.dtype].bytes)


def pointer_definitions(slots: Sequence[Slot], memory: str, size_text) -> tuple[list[str], Dim]:
    """Returns the definitions of the temporaries' pointers into a workspace in C, and its size in bytes.

    Args:
        slots: they lie in the workspace one after another.
        memory: the pointer to the workspace in C.
        size_text: prints a number of elements in C.
    """
    lines: list[str] = []
    total: Dim = 0
    before: Slot | None = None
    for slot in slots:
        c_type = DTYPES[slot.dtype].c_type
        first = slot.users[0].name
        if before is None:
            start = f"({c_type} *){memory}"
        else:
            after = f"{before.users[0].name} + {size_text(before.size)}"
            start = after if before.dtype == slot.dtype else f"({c_type} *)({after})"
        lines.append(f"{c_type} *const {first} = {start};")
        lines += [f"{c_type} *const {user.name} = {first};" for user in slot.users[1:]]
        total = total + product((slot.size, DTYPES[slot.dtype].bytes))
        before = slot
    return lines, total
