# SPDX-License-Identifier: Apache-2.0
"""schema/megcc.fbs is the only definition of the container: against it are what Python writes, what the runtime's
structs and tables of names say, and the bytes, which are read here by nothing but the schema."""

from __future__ import annotations

import dataclasses
import re
import struct
from pathlib import Path

import pytest

from tests.compiled.runtime.runtime_models import MODELS
from tvm_megcc.codegen import container

ROOT = Path(__file__).parents[3]
RUNTIME = ROOT / "c_runtime"
TEXT = re.sub(r"//[^\n]*", "", (ROOT / "schema" / "megcc.fbs").read_text())

#: Numbers of the schema: as Python's `struct` spells them, and in C.
NUMBERS = {"ubyte": ("B", "uint8_t"), "ushort": ("H", "uint16_t"), "int": ("i", "int32_t"), "uint": ("I", "uint32_t"),
           "ulong": ("Q", "uint64_t")}
ENUMS = {name: re.findall(r"\w+", body) for name, body in re.findall(r"enum (\w+) : ubyte \{([^}]*)\}", TEXT)}


def blocks(kind: str) -> dict[str, dict[str, str]]:
    """The fields and their types by struct or table."""
    return {name: dict(re.findall(r"(\w+) *: *([\w\[\]]+)[^;]*;", body))
            for name, body in re.findall(kind + r" (\w+) \{([^}]*)\}", TEXT)}


STRUCTS, TABLES = blocks("struct"), blocks("table")
#: What the runtime calls the structs.
ROWS = {"Tensor": "tensor_row", "Quant": "quant_row", "Instruction": "instruction_row", "TensorSlot": "tensor_slot",
        "CallSlot": "call_slot", "Bound": "bound_row", "State": "state_row"}
#: Fields that are checked against another, whose name an error has: what a field says is too much of the other.
REPORTED_AS = {"Model.model_id": "Program.code_id", "Model.weights_crc": "Model.weights",
               "Instruction.outputs": "Instruction.operands", "Instruction.extents": "Instruction.first_extent"}


def number(kind: str) -> tuple[str, str]:
    return NUMBERS["ubyte" if kind in ENUMS else kind]


def layout(name: str) -> str:
    """A struct as Python's `struct` spells it."""
    return "".join(number(kind)[0] for kind in STRUCTS[name].values())


def source(name: str) -> str:
    """A file of the runtime without comments."""
    return re.sub(r"/\*.*?\*/", "", (RUNTIME / name).read_text(), flags=re.DOTALL)


# Python


def test_python_has_the_enums():
    for name, values in ENUMS.items():
        assert [value.name for value in getattr(container, name)] == values
        assert [value.value for value in getattr(container, name)] == list(range(len(values)))


def test_python_has_the_structs():
    assert {kind.__name__ for kind in container.STRUCTS} == set(STRUCTS)
    for kind, spelt in container.STRUCTS.items():
        assert [field.name for field in dataclasses.fields(kind)] == list(STRUCTS[kind.__name__])
        assert re.sub(r"(\d+)(\w)", lambda m: int(m[1]) * m[2], spelt) == layout(kind.__name__)
        assert {name: enum.__name__ for name, enum in container._ENUMS.get(kind, {}).items()} \
            == {name: type_ for name, type_ in STRUCTS[kind.__name__].items() if type_ in ENUMS}


def test_python_has_the_tables():
    def spelt(field) -> str:
        return f"[{spelt(field[0])}]" if isinstance(field, list) else getattr(field, "__name__", field)

    def expected(kind: str) -> str:
        if kind.startswith("["):
            return f"[{expected(kind[1:-1])}]"
        return "s" if kind == "string" else kind if kind in (*STRUCTS, *TABLES) else number(kind)[0]

    found = {kind.__name__: [(name, spelt(field)) for name, field in rows] for kind, rows in container.TABLES.items()}
    found["Model"] = found.pop("ContainerModel")
    assert found == {name: [(field, expected(kind)) for field, kind in fields.items()]
                     for name, fields in TABLES.items()}
    assert f'file_identifier "{container.IDENTIFIER.decode()}"' in TEXT
    assert f"force_align: {container.WEIGHTS_ALIGNMENT}" in TEXT


# C


@pytest.mark.parametrize("name", STRUCTS)
def test_the_runtime_has_the_struct(name: str):
    (body,) = re.findall(rf"typedef struct MEGCC_ROW {ROWS[name]} \{{([^}}]*)\}}", source("src/internal.h"))
    fields = [(field, ctype) for ctype, names in re.findall(r"(\w+) ([\w, ]+);", body) for field in names.split(", ")]
    assert fields == [(field, number(kind)[1]) for field, kind in STRUCTS[name].items()]
    assert struct.calcsize("=" + layout(name)) == struct.calcsize("@" + layout(name)), "padding"


@pytest.mark.parametrize(("file", "prefix", "names"), [
    ("include/megcc.h", "MEGCC_", ENUMS["DType"]), ("include/megcc.h", "MEGCC_", ENUMS["LayoutKind"]),
    ("src/internal.h", "STORAGE_", ENUMS["Storage"]), ("src/internal.h", "OP_", ENUMS["Opcode"]),
    ("src/verify.c", "MODEL_", [name.removeprefix("model_").removeprefix("weights_") if name != "weights" else name
                                for name in TABLES["Model"]]),
    ("src/verify.c", "PROGRAM_", [name for name, kind in TABLES["Program"].items() if kind[0] != "["] + ["vector"]),
    ("include/megcc.h", "MEGCC_", [name for name, kind in TABLES["Program"].items() if kind[0] == "["]
     + ["program_vectors"]),
    ("src/verify.c", "BUCKET_", list(TABLES["DeviceModel"])),
], ids=["DType", "LayoutKind", "Storage", "Opcode", "Model", "Program", "vectors", "DeviceModel"])
def test_the_runtime_has_the_numbers(file: str, prefix: str, names: list[str]):
    """Values of enums and slots of tables, in C an enum each; scalars of a program come before its vectors."""
    enums = [re.findall(r"\w+", body) for body in re.findall(r"enum \{([^}=]*)\}", source(file))]
    assert [prefix + name.upper() for name in names] in enums


def test_vectors_come_last_in_a_program():
    """As MEGCC_PROGRAM_VECTORS counts them, and with the sizes that verify.c has for their rows."""
    vectors = {name: kind[1:-1] for name, kind in TABLES["Program"].items() if kind[0] == "["}
    assert list(TABLES["Program"])[-len(vectors):] == list(vectors)
    text = source("src/verify.c")
    (names,) = re.findall(r"vector_names\[\w+\]\[\d+\] = \{([^}]*)\}", text)
    assert re.findall(r'"([\w.]+)"', names) == [f"Program.{name}" for name in vectors]
    (sizes,) = re.findall(r"row_bytes\[\w+\] = \{([^}]*)\}", text)
    expected = [f"sizeof({ROWS[kind]})" if kind in ROWS else "4" for kind in vectors.values()]
    assert re.findall(r"[\w()]+", sizes) == expected


def test_errors_name_fields_of_the_schema():
    """Every place that the checks report is a field, and they report each field that can be wrong."""
    known = {f"{name}.{field}" for name, fields in {**STRUCTS, **TABLES}.items() for field in fields}
    text = source("src/verify.c") + source("src/signature.c")
    named = set(re.findall(r'"([A-Z]\w+\.\w+)"', text))
    assert named <= known, named - known
    assert known - named == set(REPORTED_AS) and set(REPORTED_AS.values()) <= named | {"Model.weights"}


# The bytes


class Reader:
    """A container as dictionaries and lists, by the schema alone."""

    def __init__(self, data: bytes):
        self.data = data

    def at(self, kind: str, position: int):
        return struct.unpack_from("<" + kind, self.data, position)

    def follow(self, position: int) -> int:
        return position + self.at("I", position)[0]

    def table(self, name: str, position: int) -> dict:
        fields = position - self.at("i", position)[0]
        entries = (self.at("H", fields)[0] - 4) // 2
        offsets = [*self.at(f"{entries}H", fields + 4), *[0] * len(TABLES[name])]
        return {field: self.value(kind, position + offset) if offset else None
                for (field, kind), offset in zip(TABLES[name].items(), offsets, strict=False)}

    def value(self, kind: str, position: int):
        if kind == "string":
            return bytes(self.value("[ubyte]", position)).decode()
        if kind in TABLES:
            return self.table(kind, self.follow(position))
        if kind in STRUCTS:
            return dict(zip(STRUCTS[kind], self.at(layout(kind), position), strict=True))
        if not kind.startswith("["):
            return self.at(number(kind)[0], position)[0]
        begin, kind = self.follow(position), kind[1:-1]
        step = 4 if kind in TABLES or kind == "string" else struct.calcsize(
            "=" + (layout(kind) if kind in STRUCTS else number(kind)[0]))
        return [self.value(kind, begin + 4 + step * index) for index in range(self.at("I", begin)[0])]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "large"])  # test_container.py
def test_the_bytes_are_those_of_the_schema(name: str):
    """What Python writes is what somebody who has the schema only reads; a field of its default is absent."""
    model = MODELS[name]()
    reader = Reader(container.write(model))
    assert reader.data[4:8] == container.IDENTIFIER
    read = reader.table("Model", reader.follow(0))
    assert read.pop("format") == container.FORMAT
    read.pop("weights_crc")

    def same(found, wanted) -> bool:
        if found is None:
            return not wanted
        if dataclasses.is_dataclass(wanted):
            fields = vars(wanted)
            return set(found) == set(fields) and all(same(found[name], value) for name, value in fields.items())
        if isinstance(wanted, (tuple, bytes)):
            return len(found) == len(wanted) and all(map(same, found, wanted))
        return found == wanted

    assert same(read, model)
