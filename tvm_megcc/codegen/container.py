# SPDX-License-Identifier: Apache-2.0
"""Writes and reads containers: the `.megcc` files, in the format of schema/megcc.fbs.

Most of a container is vectors of structs, which are fixed sequences of little-endian numbers. So this module needs the
flatbuffers builder, but no code generated from the schema. Its classes are the structs and tables of the schema, which
explains their fields.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import reduce
from typing import Any

import flatbuffers
from flatbuffers import number_types
from flatbuffers.table import Table

from ..errors import MegccError
from ..folders import Bytes
from ..ir.types import DTYPES
from .memory.weights import Weights

IDENTIFIER = b"MGCC"
FORMAT = 1
#: The format number of containers whose weights follow the flatbuffer, with offsets in units of 64 bytes.
LARGE_FORMAT = 2
#: Bytes.
WEIGHTS_ALIGNMENT = 64
#: The most bytes of weights inside a flatbuffer, which is limited to 2 GB.
MAX_INNER_WEIGHTS = 0x7fff0000
#: The value of CallSlot.workspace for a call whose workspace is allocated when it runs.
ALLOCATED = 0xFFFFFFFF

DType = IntEnum("DType", list(DTYPES), start=0)
LayoutKind = IntEnum("LayoutKind", "plain nhwc nchwc", start=0)
Storage = IntEnum("Storage", "arena weight view unbounded state caller", start=0)
Opcode = IntEnum("Opcode", "call release branch loop extent move", start=0)


@dataclass(frozen=True)
class Tensor:
    dtype: DType
    layout: LayoutKind
    storage: Storage
    rank: int
    block: int
    region: int
    name: int
    dims: int
    root: int
    data: int
    bytes: int
    quant: int


@dataclass(frozen=True)
class Quant:
    axis: int
    count: int
    first: int


@dataclass(frozen=True)
class Instruction:
    opcode: Opcode
    inputs: int
    outputs: int
    extents: int
    operands: int
    first_extent: int


@dataclass(frozen=True)
class TensorSlot:
    offset: int
    bytes: int


@dataclass(frozen=True)
class CallSlot:
    kernel: int
    workspace: int


@dataclass(frozen=True)
class Bound:
    lo: int
    hi: int


@dataclass(frozen=True)
class State:
    output: int
    input: int


@dataclass(frozen=True)
class DeviceModel:
    bounds: tuple[Bound, ...]
    tensors: tuple[TensorSlot, ...]
    calls: tuple[CallSlot, ...]
    arena_bytes: int
    regions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    isa: int
    code_id: int
    alignment: int
    workers: int
    symbols: int
    values: int
    tensors: tuple[Tensor, ...]
    extents: tuple[int, ...]
    operands: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[State, ...]
    quants: tuple[Quant, ...]
    quant_data: tuple[int, ...]
    names: tuple[str, ...]
    device_models: tuple[DeviceModel, ...]


@dataclass(frozen=True)
class ContainerModel:
    """A whole container; the format number and the checksum of the weights are added when it is written.

    weights_begin: the offset of weights that are after everything else, 0 if they are inside. For writing, any other
        number than 0 asks for that format; weights of 2 GB or more always have it.
    """

    name: str
    model_id: int
    programs: tuple[Program, ...]
    weights: Bytes | Weights
    flags: int = 0
    weights_begin: int = 0


# --- the fields of the schema, in order --------------------------------------------------------------------------

#: The fields of each struct, as a format of Python's `struct`.
STRUCTS = {
    Tensor: "6BH5I", Quant: "iII", Instruction: "4BII", TensorSlot: "II", CallSlot: "II", Bound: "ii", State: "II",
}
#: The fields of a table: name, kind. A kind is a number ("I", "Q"), a string ("s"), or the element of a vector in a
#: list: a number, a string, a struct or a table.
TABLES: dict[type, list[tuple[str, Any]]] = {
    DeviceModel: [("bounds", [Bound]), ("tensors", [TensorSlot]), ("calls", [CallSlot]), ("arena_bytes", "I"),
                  ("regions", ["I"])],
    Program: [
        ("isa", "I"), ("code_id", "Q"), ("alignment", "I"), ("workers", "I"), ("symbols", "I"), ("values", "I"),
        ("tensors", [Tensor]), ("extents", ["i"]), ("operands", ["I"]), ("instructions", [Instruction]),
        ("inputs", ["I"]), ("outputs", ["I"]), ("states", [State]), ("quants", [Quant]), ("quant_data", ["I"]),
        ("names", ["s"]), ("device_models", [DeviceModel])],
    ContainerModel: [
        ("format", "I"), ("flags", "I"), ("model_id", "Q"), ("weights_crc", "I"), ("name", "s"),
        ("programs", [Program]), ("weights", ["B"]), ("weights_begin", "Q")],
}
#: Vectors that were added to the format later. If empty they are not written, so that such containers stay unchanged.
_ADDED_LATER = {"regions"}
_ENUMS = {Tensor: {"dtype": DType, "layout": LayoutKind, "storage": Storage}, Instruction: {"opcode": Opcode}}
_NUMBERS = {"I": number_types.Uint32Flags, "Q": number_types.Uint64Flags}


# --- writing -----------------------------------------------------------------------------------------------------

class Image:
    """The bytes of a container, as a sequence of pieces: the weights are views of the model's, not copies. Equal models
    give equal bytes.

    Raises:
        MegccError: for numbers that do not fit into it.
    """

    def __init__(self, model: ContainerModel):
        self.model = model
        weights, size = _pieces(model.weights), len(model.weights)
        if model.weights_begin or is_large(model.weights):
            # The head contains its own size, rounded up: `begin`. So it is built twice. The first time, `begin` may be
            # any number but 0, the default of the field, which a flatbuffer omits.
            head = _head(_with_offsets_in_units(model), LARGE_FORMAT, begin=1)
            begin = len(head) + -len(head) % WEIGHTS_ALIGNMENT
            head = _head(_with_offsets_in_units(model), LARGE_FORMAT, begin)
            self._parts = [head, bytes(begin - len(head)), *weights]
        else:
            self._parts = [_head(model, FORMAT, begin=0), *weights, bytes(-size % WEIGHTS_ALIGNMENT)]

    def pieces(self) -> Iterator[Bytes]:
        return iter(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and len(self) == len(other) and bytes(self) == bytes(other)

    __hash__ = None


def is_large(weights: Bytes | Weights) -> bool:
    """Whether the weights are too large for a flatbuffer, so that they follow it."""
    return len(weights) > MAX_INNER_WEIGHTS


def write(model: ContainerModel) -> bytes:
    """Returns the container as one bytes object."""
    return bytes(Image(model))


def _pieces(weights: Bytes | Weights) -> Sequence[Bytes]:
    return tuple(weights.pieces()) if isinstance(weights, Weights) else (weights,)


def with_weights_moved(head: bytes, distance: int) -> bytes:
    """Returns the part of a container before its weights, changed so that they may lie `distance` bytes further.

    The last four bytes of the part are the number of bytes of the weights, and a reader expects them before the
    weights. Where containers share weights (joined.py), their heads follow one another; all have the same number, so
    the one that ends the last head serves all.
    """
    changed = bytearray(head)
    table = Table(changed, int.from_bytes(head[:4], "little"))
    slot = [name for name, _ in TABLES[ContainerModel]].index("weights")
    field = table.Pos + table.Offset(_vtable_offset(slot))
    struct.pack_into("<I", changed, field, int.from_bytes(head[field:field + 4], "little") + distance)
    return bytes(changed)


def _vtable_offset(slot: int) -> int:
    """Returns the byte offset of a field in the vtable of its flatbuffer table: two sizes come first, 2 bytes each."""
    return 4 + 2 * slot


def _with_offsets_in_units(model: ContainerModel) -> ContainerModel:
    """Returns the model with weight offsets in the units of the large format."""
    if any(row.storage == Storage.weight and row.data % WEIGHTS_ALIGNMENT
           for program in model.programs for row in program.tensors):
        raise MegccError(f"weights after everything else begin at multiples of {WEIGHTS_ALIGNMENT} bytes")
    return replace(model, programs=tuple(
        replace(program, tensors=tuple(
            replace(row, data=row.data // WEIGHTS_ALIGNMENT) if row.storage == Storage.weight else row
            for row in program.tensors)) for program in model.programs))


def _head(model: ContainerModel, format_number: int, begin: int) -> bytes:
    """Builds the part of the file before the weights.

    Args:
        format_number: FORMAT or LARGE_FORMAT.
        begin: the offset of weights that follow the flatbuffer; 0 if they are its last vector.
    """
    builder = flatbuffers.Builder(1 << 20)
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    values |= {"format": format_number, "weights_begin": begin, "weights": 0 if begin else len(model.weights),
               "weights_crc": reduce(lambda crc, piece: zlib.crc32(piece, crc), _pieces(model.weights), 0)}
    builder.Finish(_write_table(builder, ContainerModel, values, "model"), file_identifier=IDENTIFIER)
    placeholder = 0 if begin else _placeholder_bytes(len(model.weights))
    return bytes(memoryview(builder.Bytes)[builder.Head():len(builder.Bytes) - placeholder])


def _placeholder_bytes(size: int) -> int:
    """Returns the number of bytes at a flatbuffer's end that stand for weights of this size; `_head` cuts them off.

    A flatbuffer is built from its end, and each of its parts is aligned by the number of bytes after it. Only
    `size % WEIGHTS_ALIGNMENT` matters for that, so `_write_vector` writes this many zeros. If there are any, the
    builder pads them to WEIGHTS_ALIGNMENT bytes.
    """
    return WEIGHTS_ALIGNMENT if size % WEIGHTS_ALIGNMENT else 0


def _write_table(builder: flatbuffers.Builder, kind: type, values: dict[str, Any], where: str) -> int:
    """Writes a table and all it refers to; returns its offset. where: the path to the table, for error messages."""
    offsets = {}
    for name, field in reversed(TABLES[kind]):
        if name in _ADDED_LATER and not values[name]:
            continue
        if isinstance(field, list):
            offsets[name] = _write_vector(builder, field[0], values[name], f"{where}.{name}")
        elif field == "s":
            offsets[name] = builder.CreateString(values[name])
    builder.StartObject(len(TABLES[kind]))
    for slot, (name, field) in enumerate(TABLES[kind]):
        if name in _ADDED_LATER and name not in offsets:
            continue
        if name in offsets:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[name], 0)
        else:
            _pack(f"<{field}", [values[name]], f"{where}.{name}")
            builder.PrependSlot(_NUMBERS[field], slot, values[name], 0)
    return builder.EndObject()


def _write_vector(builder: flatbuffers.Builder, element: Any, rows: Sequence[Any], where: str) -> int:
    """Writes a vector; returns its offset. element: its kind, as in `TABLES`. rows: the elements; for the weights
    ("B"), their number of bytes."""
    if element == "s" or element in TABLES:
        offsets = []
        for index, row in enumerate(rows):
            if element == "s":
                offsets.append(builder.CreateString(row))
            else:
                values = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
                offsets.append(_write_table(builder, element, values, f"{where}[{index}]"))
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    if element == "B":
        return _write_bytes(builder, bytes(rows % WEIGHTS_ALIGNMENT), rows, WEIGHTS_ALIGNMENT)
    if isinstance(element, str):
        return _write_bytes(builder, _pack(f"<{len(rows)}{element}", rows, where), len(rows), 4)
    names = [f.name for f in dataclasses.fields(element)]
    data = b"".join(_pack(f"<{STRUCTS[element]}", [getattr(row, n) for n in names], f"{where}[{index}]")
                    for index, row in enumerate(rows))
    return _write_bytes(builder, data, len(rows), 4)


def _write_bytes(builder: flatbuffers.Builder, data: bytes, count: int, alignment: int) -> int:
    """Writes a vector of `count` elements from their bytes; returns its offset. It sets the builder's fields itself, as
    CreateByteVector() of flatbuffers does, which takes neither an alignment nor elements of several bytes."""
    builder.StartVector(1, len(data), alignment)
    builder.head -= len(data)
    builder.Bytes[builder.head:builder.head + len(data)] = data
    builder.vectorNumElems = count
    return builder.EndVector()


def _pack(layout: str, values: Sequence[Any], where: str) -> bytes:
    try:
        return struct.pack(layout, *values)
    except struct.error as error:
        raise MegccError(f"{where}: {list(values)[:16]} does not fit into the container: {error}") from None


# --- reading -----------------------------------------------------------------------------------------------------

def read(data: Bytes) -> ContainerModel:
    """Returns the container as values; its weights are a view of `data`. Only its form is checked here; the runtime
    checks its meaning (c_runtime/src/verify.c).

    Raises:
        MegccError: if `data` is not a container, is one of another format, or is damaged.
    """
    data = memoryview(data)
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise MegccError("this is no megcc container: it does not have 'MGCC' at byte 4")
    try:
        values = _read_table(Table(data, int.from_bytes(data[:4], "little")), ContainerModel)
    except (struct.error, IndexError, TypeError, ValueError) as error:
        raise MegccError(f"the container is damaged: {error}") from None
    if (found := values.pop("format")) not in (FORMAT, LARGE_FORMAT):
        raise MegccError(f"the container has format {found}, this version reads formats {FORMAT} and {LARGE_FORMAT}")
    if found == LARGE_FORMAT:
        if not 8 <= values["weights_begin"] <= len(data):
            raise MegccError("the container is damaged: its weights begin after its end")
        values["weights"] = data[values["weights_begin"]:]
        values["programs"] = tuple(replace(program, tensors=tuple(
            replace(row, data=row.data * WEIGHTS_ALIGNMENT) if row.storage == Storage.weight else row
            for row in program.tensors)) for program in values["programs"])
    if values.pop("weights_crc") != zlib.crc32(values["weights"]):
        raise MegccError("the container is damaged: its weights do not have the checksum that it records")
    return ContainerModel(**values)


def _read_table(table: Table, kind: type) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for slot, (name, field) in enumerate(TABLES[kind]):
        offset = table.Offset(_vtable_offset(slot))
        if isinstance(field, list):
            values[name] = _read_vector(table, offset, field[0]) if offset else b"" if field == ["B"] else ()
        elif field == "s":
            values[name] = _text(table, table.Pos + offset) if offset else ""
        else:
            values[name] = table.Get(_NUMBERS[field], table.Pos + offset) if offset else 0
    return values


def _read_vector(table: Table, offset: int, element: Any) -> Any:
    start, count = table.Vector(offset), table.VectorLen(offset)
    data = table.Bytes
    if element == "B":
        if start + count > len(data):
            raise ValueError("a vector reaches beyond the end")
        return data[start:start + count]
    if element == "s":
        return tuple(_text(table, start + 4 * i) for i in range(count))
    if element in TABLES:
        return tuple(element(**_read_table(Table(data, table.Indirect(start + 4 * i)), element)) for i in range(count))
    if isinstance(element, str):
        return struct.unpack_from(f"<{count}{element}", data, start)
    layout = struct.Struct(f"<{STRUCTS[element]}")
    make = _row_maker(element)
    return tuple(make(layout.unpack_from(data, start + layout.size * i)) for i in range(count))


def _text(table: Table, offset: int) -> str:
    return table.String(offset).decode()


def _row_maker(kind: type) -> Callable[[tuple], Any]:
    """Returns the function that makes a struct of its unpacked numbers."""
    enums = _ENUMS.get(kind, {})
    converters = [enums.get(f.name, int) for f in dataclasses.fields(kind)]
    return lambda numbers: kind(*(convert(n) for convert, n in zip(converters, numbers, strict=True)))


# --- the memory that the runtime needs ---------------------------------------------------------------------------

def memory_expression(model: ContainerModel) -> str:
    """Returns the bytes that megcc_session_open() needs, as C: a use of the macro in megcc.h, since they depend on the
    size of a pointer. It is the maximum over all programs."""
    columns = zip(*(_memory_arguments(program) for program in model.programs), strict=True)
    return f"MEGCC_MEMORY_BYTES({', '.join(str(max(column)) + 'u' for column in columns)})"


def session_bytes(pointer_bytes: int, alignment: int, pointers: int, words: int, arena: int) -> int:
    """Returns the value of MEGCC_MEMORY_BYTES in megcc.h for a pointer size in bytes."""
    alignment = max(alignment, 8)
    # As in the macro: 48 pointers are the fixed part of a session (MEGCC_SESSION_BYTES), a word has 4 bytes.
    return -(-((48 + pointers) * pointer_bytes + 4 * words) // alignment) * alignment + arena


def program_bytes(program: Program, pointer_bytes: int) -> int:
    """Returns the size of a session of this program in bytes."""
    alignment, pointers, words, arena = _memory_arguments(program)
    return session_bytes(pointer_bytes, alignment, pointers, words, arena)


def _memory_arguments(program: Program) -> tuple[int, ...]:
    """Returns alignment, pointers, 32-bit words and arena bytes of the session block.

    The pointers are an address for each input and output, or, if tensors are allocated during a run, an address and a
    capacity for each tensor; and the operands of a call. The words are a status for each worker and, if extents change
    from run to run, two tables of symbols, values and extents. megcc_model_memory() of the runtime counts the same.
    """
    operands = max((i.inputs + i.outputs for i in program.instructions if i.opcode == Opcode.call), default=0)
    dynamic = program.symbols + program.values > 0
    unbounded = any(t.storage == Storage.unbounded for t in program.tensors)
    pointers = (2 * len(program.tensors) if unbounded else len(program.inputs) + len(program.outputs)) + operands
    words = program.workers + (2 * (program.symbols + program.values + len(program.extents)) if dynamic else 0)
    sizes = (m.regions[0] if m.regions else m.arena_bytes for m in program.device_models)
    return program.alignment, pointers, words, max(sizes, default=0)
