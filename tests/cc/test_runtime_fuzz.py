# SPDX-License-Identifier: Apache-2.0
"""The verifier against mutants of containers. More of them: fuzz/run.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tvm_megcc
from fuzz import run
from fuzz.fields import fields
from tvm_megcc import paths
from tvm_megcc.codegen import container

from .runtime_models import MODELS
from .test_runtime import CC, has_flags

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def test_every_field_is_found():
    """Each number of each row is one that can be mutated."""
    model = MODELS["static"]()
    names = {field.name for field in fields(container.write(model))}
    for kind, columns in container.TABLES.items():
        for column, element in columns:
            if isinstance(element, str) and element != "s":
                assert f"{kind.__name__}.{column}" in names or column == "flags" or column in ("symbols", "values")
            else:
                assert f"{kind.__name__}.{column} offset" in names
    assert {"Tensor.11", "Quant.2", "Instruction.5", "TensorSlot.1", "CallSlot.1", "State.1"} <= names


@pytest.mark.parametrize("name", MODELS)
def test_mutants(name: str, tmp_path: Path):
    if not has_flags(*run.SANITIZE):
        pytest.skip("this compiler has no sanitizers")
    subject = next(s for s in run.hand_made(tmp_path) if s.name == name)
    assert run.fuzz(subject, 4000, 2, CC, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"optimize": "speed"}, {"optimize": "size"}, {"dispatch": "image[0]=1,2..4"},
                                     {"dispatch": "image[0]=1..*"}], ids=["speed", "size", "buckets", "open"])
def test_mutants_of_a_compiled_network(options: dict, tmp_path: Path):
    """10,000 mutants; those that open run on NaN, infinities and extreme integers in blocks of exact size."""
    if not has_flags(*run.SANITIZE):
        pytest.skip("this compiler has no sanitizers")
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "native", **options)
    (subject,) = run.generated(artifact.save(tmp_path / "digits_megcc"))
    assert run.fuzz(subject, 10000, 3, CC, tmp_path)


@pytest.mark.slow
def test_coverage(tmp_path: Path):
    if not (shutil.which("gcc") and shutil.which("gcov")):
        pytest.skip("gcc and gcov are not installed")
    for subject in run.hand_made(tmp_path):
        assert run.fuzz(subject, 6000, 1, "gcc", tmp_path, ("--coverage", "-O0"))
    hit, total, missed = run.coverage(tmp_path, "gcov")["verify.c"]
    assert hit >= 0.95 * total, f"{hit} of {total} branches; not all taken in lines {missed}"
