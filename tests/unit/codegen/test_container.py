# SPDX-License-Identifier: Apache-2.0
"""The container: written and read back, and damaged. Against the schema: test_schema.py."""

from __future__ import annotations

import dataclasses
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

import tvm_megcc
from tests.compiled.runtime.runtime_models import MODELS
from tvm_megcc.codegen import bundle, container, device_model
from tvm_megcc.errors import MegccError
from tvm_megcc.target import TARGETS

DIGITS = Path(tvm_megcc.__file__).parent / "examples" / "digits.onnx"


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


def test_large_containers():
    """Weights lie behind everything else, at a multiple of 64 bytes, and are counted in that; nothing else changes."""
    static, large = MODELS["static"](), MODELS["large"]()
    image = container.Image(large)
    data = b"".join(image.pieces())
    assert bytes(image) == data and len(image) == len(data) and large.weights_begin % 64 == 0
    assert data[large.weights_begin:] == static.weights == large.weights
    assert dataclasses.replace(large, weights_begin=0) == static
    found = container._read_table(container.Table(data, int.from_bytes(data[:4], "little")), container.ContainerModel)
    assert found["format"] == container.LARGE_FORMAT and len(found["weights"]) == 0
    assert [row.data for row in found["programs"][1].tensors if row.storage == container.Storage.weight] == [1]
    for cut in range(len(data)):
        with pytest.raises(MegccError):
            container.read(data[:cut])
    tensors = tuple(dataclasses.replace(row, data=row.data and 96) for row in static.programs[0].tensors)
    with pytest.raises(MegccError, match="multiples of 64 bytes"):
        container.write(dataclasses.replace(large, programs=(dataclasses.replace(static.programs[0],
                                                                                 tensors=tensors),)))


def test_weights_of_two_gigabytes_lie_outside(monkeypatch):
    monkeypatch.setattr(container, "MAX_INNER_WEIGHTS", 100)
    assert container.read(container.write(MODELS["static"]())) == MODELS["large"]()
    artifact = tvm_megcc.compile(DIGITS, "c,arm64")
    assert container.read(artifact.container).weights_begin
    part = container.read(device_model.container_part(artifact.container, {TARGETS["c"].isa.code}))
    assert part.weights_begin and len(part.programs) == 1
    with pytest.raises(MegccError, match="leave out --embed"):
        bundle.contents([artifact], embed=True)
    with pytest.raises(MegccError, match="cortex-m4 has addresses of 32 bits"):
        tvm_megcc.compile(DIGITS, "cortex-m4")


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


def test_equal_bytes_of_other_types_stay_what_they_are():
    """Zeros of two types are stored once, and each is still of its own type."""
    types = {"f": np.float32, "i": np.int32}
    tensors = [numpy_helper.from_array(np.zeros(4, dtype), name) for name, dtype in types.items()]
    graph = parser.parse_graph("g (float[4] x, int32[4] n) => (float[4] y, int32[4] m) { y = Add(x, f) m = Max(n, i) }")
    graph.initializer.extend(tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for program in container.read(tvm_megcc.compile(model, "c,arm64").container).programs:
        weights = [row for row in program.tensors if row.storage == container.Storage.weight]
        assert {row.dtype.name for row in weights} <= {"float32", "int32"}
        assert len({row.dtype for row in weights}) == len(weights)
