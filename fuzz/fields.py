# SPDX-License-Identifier: Apache-2.0
"""Where every number of a container is, and which numbers an edit may change at once."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tvm_megcc.codegen.container import STRUCTS, TABLES, ContainerModel

#: Bytes and `struct` letter of a number.
WIDTHS = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8}
#: Names that are chosen more often: kernels compute addresses from them.
FAVOURITES = {"Program.extents": 12, "Instruction.5": 3, "CallSlot.0": 3, "TensorSlot.1": 3, "Tensor.7": 3}
#: Names that are changed at once: what has to agree, and what only makes sense when all of it changes.
TOGETHER = (
    ("Program.symbols", "DeviceModel.bounds count"),
    ("Program.symbols", "Program.values", "DeviceModel.bounds count"),
    ("Program.tensors count", "DeviceModel.tensors count"),
    ("Program.instructions count", "DeviceModel.calls count"),
    ("Program.inputs count", "Program.outputs count", "Program.states count"),
    ("Program.alignment", "TensorSlot.0", "TensorSlot.1", "CallSlot.1", "DeviceModel.arena_bytes"),
    ("TensorSlot.0", "TensorSlot.1"),
    ("TensorSlot.1", "DeviceModel.arena_bytes"),
    ("TensorSlot.0", "CallSlot.1"),
    ("Bound.0", "Bound.1"),
    ("Tensor.0", "Tensor.1", "Tensor.4"),
    ("Tensor.2", "Tensor.8", "Tensor.9"),
    ("Program.inputs", "Program.outputs"),
    ("State.0", "State.1"),
    ("Program.extents", "Bound.1"),
    ("Instruction.1", "Instruction.2", "Instruction.3"),
    ("DeviceModel.bounds offset", "DeviceModel.tensors offset", "DeviceModel.calls offset"),
)
#: Weights are data: few of their bytes are enough.
WEIGHT_SAMPLES = 200


@dataclass(frozen=True)
class Field:
    """A number in the container. name: which; fields of one name are exchanged with each other."""

    name: str
    at: int
    width: int


def fields(data: bytes) -> list[Field]:
    """Every number: fields of rows, but also offsets, lengths and the lists of fields that tables have."""
    found: list[Field] = [Field("root", 0, 4), Field("identifier", 4, 4)]
    pending = [(struct.unpack_from("<I", data)[0], ContainerModel)]
    while pending:
        table, kind = pending.pop()
        name = kind.__name__
        listing = table - struct.unpack_from("<i", data, table)[0]
        found += [Field(f"{name} to fields", table, 4), Field(f"{name} fields", listing, 2),
                  Field(f"{name} bytes", listing + 2, 2)]
        length, = struct.unpack_from("<H", data, listing)
        for slot, (field, element) in enumerate(TABLES[kind]):
            entry = listing + 4 + 2 * slot
            if entry + 2 > listing + length:
                break
            found.append(Field(f"{name} slots", entry, 2))
            offset, = struct.unpack_from("<H", data, entry)
            if offset == 0:
                continue
            at = table + offset
            if isinstance(element, str) and element != "s":
                found.append(Field(f"{name}.{field}", at, WIDTHS[element]))
                continue
            found.append(Field(f"{name}.{field} offset", at, 4))
            vector = at + struct.unpack_from("<I", data, at)[0]
            rows, tables = _vector(data, vector, f"{name}.{field}", element)
            found += rows
            pending += tables
    return found


def _vector(data: bytes, vector: int, name: str, element) -> tuple[list[Field], list]:
    count, = struct.unpack_from("<I", data, vector)
    rows, tables, at = [Field(f"{name} count", vector, 4)], [], vector + 4
    if element == "s":
        rows.append(Field(f"{name} end", at + count, 1))
        return rows, tables
    element = element[0]
    if element == "B":
        step = max(1, count // WEIGHT_SAMPLES)
        rows += [Field(name, at + i, 1) for i in range(0, count, step)]
    elif element == "s":
        for i in range(count):
            rows.append(Field(f"{name} offset", at + 4 * i, 4))
            rows += _vector(data, at + 4 * i + struct.unpack_from("<I", data, at + 4 * i)[0], name, "s")[0]
    elif element in TABLES:
        for i in range(count):
            rows.append(Field(f"{name} offset", at + 4 * i, 4))
            tables.append((at + 4 * i + struct.unpack_from("<I", data, at + 4 * i)[0], element))
    elif isinstance(element, str):
        rows += [Field(name, at + WIDTHS[element] * i, WIDTHS[element]) for i in range(count)]
    else:
        for _ in range(count):
            for column, width in enumerate(_columns(STRUCTS[element])):
                rows.append(Field(f"{element.__name__}.{column}", at, width))
                at += width
    return rows, tables


def _columns(layout: str) -> list[int]:
    """Widths of the numbers of a struct, as in "4BII"."""
    widths, repeat = [], ""
    for letter in layout:
        if letter.isdigit():
            repeat += letter
        else:
            widths += [WIDTHS[letter]] * int(repeat or 1)
            repeat = ""
    return widths


def groups(data: bytes) -> list[list[Field]]:
    """Fields that an edit may change at once: those of each name, and those of the names that go together."""
    by_name: dict[str, list[Field]] = {}
    for place in fields(data):
        by_name.setdefault(place.name, []).append(place)
    result = [rows for name, rows in by_name.items() for _ in range(FAVOURITES.get(name, 1))]
    return result + [[place for name in names for place in by_name.get(name, ())] for names in TOGETHER
                     if any(name in by_name for name in names)]


def table(data: bytes) -> bytes:
    """The groups as fuzz/container.c reads them: their number, and for each whether its fields are offsets, how many
    fields it has, and of each the position and width, as 32-bit numbers."""
    numbers = [0]
    for rows in groups(data):
        numbers[0] += 1
        numbers += [all(row.name.endswith("offset") for row in rows), len(rows)]
        for row in rows:
            numbers += [row.at, row.width]
    return struct.pack(f"<{len(numbers)}I", *numbers)
