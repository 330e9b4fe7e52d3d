# SPDX-License-Identifier: Apache-2.0
"""Where every number of a container is, and mutants of it: lists of changes to its bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tvm_megcc.codegen.container import STRUCTS, TABLES, ContainerModel

#: Bytes and `struct` letter of a number.
WIDTHS = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8}
#: Names that are chosen more often: kernels compute addresses from them.
FAVOURITES = {"Program.extents": 12, "Instruction.5": 3, "CallSlot.0": 3, "TensorSlot.1": 3, "Tensor.7": 3}
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


#: Bytes of a mutant: the size it is cut to, and (position, new bytes) for each change.
Mutant = tuple[int, list[tuple[int, bytes]]]


def mutants(data: bytes, count: int, seed: int) -> Iterator[Mutant]:
    """First the container itself, then mutants: half of them with one change, the rest with up to six."""
    rng = random.Random(seed)
    places = fields(data)
    by_name: dict[str, list[Field]] = {}
    for place in places:
        by_name.setdefault(place.name, []).append(place)
    names = [name for name in by_name for _ in range(FAVOURITES.get(name, 1))]
    yield len(data), []
    for _ in range(count):
        size = len(data) if rng.random() < 0.97 else rng.randrange(len(data) + 1)
        changes = []
        for _ in range(1 if rng.random() < 0.5 else rng.randrange(2, 7)):
            # By name first: otherwise long vectors would get all the attention.
            place = rng.choice(by_name[rng.choice(names)]) if rng.random() < 0.8 else rng.choice(places)
            if rng.random() < 0.05:
                place = Field("raw", rng.randrange(len(data)), 1)
            changes.append((place.at, _value(rng, data, place, by_name)))
        yield size, [(at, new) for at, new in changes if at + len(new) <= len(data)]


def _value(rng: random.Random, data: bytes, place: Field, by_name: dict[str, list[Field]]) -> bytes:
    top = 1 << (8 * place.width)
    old = int.from_bytes(data[place.at:place.at + place.width], "little")
    same = by_name.get(place.name, [place])
    other = rng.choice(same)
    new = rng.choice([
        lambda: old + 1, lambda: old - 1, lambda: old + rng.choice((2, 3, 4, 8, 16, 64, -2, -4, -16, -64)),
        lambda: int.from_bytes(data[other.at:other.at + other.width], "little"), lambda: rng.randrange(8),
        lambda: rng.choice((0, 1, top - 1, top - 2, top // 2, top // 2 - 1, top - 4, len(data), len(data) - 1)),
        lambda: old ^ 1 << rng.randrange(8 * place.width), lambda: rng.randrange(top), lambda: 2 * old,
        lambda: rng.randrange(max(1, old + 1)),
    ])()
    return (new % top).to_bytes(place.width, "little")
