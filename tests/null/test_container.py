# SPDX-License-Identifier: Apache-2.0
"""The container: written and read back, and damaged. Against the schema: test_schema.py."""

from __future__ import annotations

import dataclasses
import random
import struct

import pytest

from tests.cc.runtime_models import MODELS
from tvm_megcc.codegen import container
from tvm_megcc.errors import MegccError


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
