# SPDX-License-Identifier: Apache-2.0
"""The container: written and read back, against the schema, against the runtime's structs, damaged."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.cc.runtime_models import MODELS
from tvm_megcc.codegen import container
from tvm_megcc.errors import MegccError

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schema" / "megcc.fbs"


@pytest.mark.parametrize("name", MODELS)
def test_written_and_read(name: str):
    model = MODELS[name]()
    data = container.write(model)
    assert container.read(data) == model
    assert container.write(container.read(data)) == data


def test_weights_are_aligned():
    model = dataclasses.replace(MODELS["static"](), weights=bytes(range(1, 200)))
    for name in ("", "n", "na", "name of a model"):
        data = container.write(dataclasses.replace(model, name=name))
        assert data.index(model.weights) % 64 == 0


def test_numbers_that_do_not_fit_are_refused_by_name():
    model = MODELS["static"]()
    program = model.programs[1]
    tensors = (dataclasses.replace(program.tensors[0], rank=300), *program.tensors[1:])
    broken = dataclasses.replace(model, programs=(dataclasses.replace(program, tensors=tensors),))
    with pytest.raises(MegccError, match=r"model.programs\[0\].tensors\[0\]"):
        container.write(broken)
    with pytest.raises(MegccError, match=r"model\.model_id"):
        container.write(dataclasses.replace(model, model_id=-1))


def test_damage_is_reported_not_thrown_through():
    data = container.write(MODELS["static"]())
    mutants = [data[:cut] for cut in range(len(data))]
    rng = random.Random(1)
    for _ in range(2000):
        mutant = bytearray(data)
        for _ in range(3):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        mutants.append(bytes(mutant))
    refused = 0
    for mutant in mutants:
        try:
            container.read(mutant)
        except MegccError:
            refused += 1
    assert refused > len(mutants) // 2
    with pytest.raises(MegccError, match="no megcc container"):
        container.read(b"ONNX" * 10)


def test_checksum_of_weights():
    data = bytearray(container.write(MODELS["static"]()))
    at = bytes(data).index(struct.pack("<24f", *(0.5 * i for i in range(24))))
    data[at + 5] ^= 1
    with pytest.raises(MegccError, match="checksum"):
        container.read(bytes(data))


def _schema_blocks() -> dict[str, list[str]]:
    """The names of fields and values by struct, table or enum."""
    text = re.sub(r"//[^\n]*", "", SCHEMA.read_text())
    blocks = {}
    for kind, name, body in re.findall(r"(struct|table|enum) (\w+)[^{]*\{([^}]*)\}", text):
        blocks[name] = re.findall(r"(\w+)" if kind == "enum" else r"(\w+) *:[^;]*;", body)
    return blocks


def test_rows_are_those_of_the_schema():
    blocks = _schema_blocks()
    for kind in container.STRUCTS:
        assert [f.name for f in dataclasses.fields(kind)] == blocks.pop(kind.__name__)
    for kind, fields in container.TABLES.items():
        name = "Model" if kind is container.ContainerModel else kind.__name__
        assert [field for field, _ in fields] == blocks.pop(name)
    for enum in (container.DType, container.LayoutKind, container.Storage, container.Opcode):
        assert [value.name for value in enum] == blocks.pop(enum.__name__)
    assert not blocks


def test_structs_are_those_of_the_runtime():
    text = (ROOT / "c_runtime" / "src" / "internal.h").read_text()
    sizes = {"uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "int32_t": 4}
    found = {}
    for body, name in re.findall(r"typedef struct MEGCC_ROW \w+ \{([^}]*)\} (\w+);", text):
        fields = [(field, sizes[ctype]) for ctype, names in re.findall(r"(\w+) ([\w, ]+);", body)
                  for field in names.split(", ")]
        found[name] = fields
    rows = {"tensor_row": container.Tensor, "quant_row": container.Quant, "instruction_row": container.Instruction,
            "tensor_slot": container.TensorSlot, "call_slot": container.CallSlot, "bound_row": container.Bound,
            "state_row": container.State}
    assert set(found) == set(rows)
    for name, kind in rows.items():
        assert [field for field, _ in found[name]] == [f.name for f in dataclasses.fields(kind)]
        assert sum(size for _, size in found[name]) == struct.calcsize("<" + container.STRUCTS[kind])


@pytest.mark.skipif(not shutil.which("flatc"), reason="flatc is not installed")
@pytest.mark.parametrize("name", MODELS)
def test_flatc_reads_the_same(name: str, tmp_path: Path):
    model = MODELS[name]()
    path = tmp_path / "model.megcc"
    path.write_bytes(container.write(model))
    subprocess.run(["flatc", "--json", "--strict-json", "--defaults-json", "-o", str(tmp_path), str(SCHEMA), "--",
                    str(path)], check=True)
    read = json.loads((tmp_path / "model.json").read_text())
    assert read["name"] == model.name and read["model_id"] == model.model_id and bytes(read["weights"]) == model.weights
    for found, program in zip(read["programs"], model.programs, strict=True):
        expected = json.loads(json.dumps(dataclasses.asdict(program), default=str))
        for field in ("isa", "code_id", "alignment", "workers", "symbols", "values", "extents", "operands", "inputs",
                      "outputs", "states", "quants", "quant_data", "names", "device_models"):
            assert found[field] == expected[field], field
        assert [row["dims"] for row in found["tensors"]] == [row.dims for row in program.tensors]
        assert [row["storage"] for row in found["tensors"]] == [row.storage.name for row in program.tensors]
        assert [row["bytes"] for row in found["tensors"]] == [row.bytes for row in program.tensors]
        assert [row["opcode"] for row in found["instructions"]] == [row.opcode.name for row in program.instructions]
