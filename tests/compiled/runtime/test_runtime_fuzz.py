# SPDX-License-Identifier: Apache-2.0
"""Damaged containers, and calls in any order, as fuzz/ makes them: a slice of `make fuzz`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import tvm_megcc
from fuzz import fields, run
from tvm_megcc import paths
from tvm_megcc.codegen import container

from ..shapes.test_counts import counting, nested
from .runtime_models import MODELS
from .test_runtime import CC, has_flags

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def test_every_field_is_found():
    """Each number of each row is one that can be mutated."""
    names = {field.name for name in ("static", "regions", "large")
             for field in fields.fields(container.write(MODELS[name]()))}
    for kind, columns in container.TABLES.items():
        for column, element in columns:
            if isinstance(element, str) and element != "s":
                assert f"{kind.__name__}.{column}" in names or column == "flags" or column in ("symbols", "values")
            else:
                assert f"{kind.__name__}.{column} offset" in names
    assert {"Tensor.11", "Quant.2", "Instruction.5", "TensorSlot.1", "CallSlot.1", "State.1"} <= names


def test_names_that_go_together_are_names():
    model = MODELS["static"]()
    names = {place.name for place in fields.fields(container.write(model))} | {"Bound.0", "Bound.1", "Program.symbols",
                                                                           "Program.values"}
    assert {name for group in fields.TOGETHER for name in group} <= names


needs_sanitizers = pytest.mark.skipif(CC is None or not has_flags(*run.SANITIZE), reason="no compiler with sanitizers")


@needs_sanitizers
@pytest.mark.parametrize("name", MODELS)
def test_damaged_containers(name: str, tmp_path: Path):
    subject = next(s for s in run.hand_made(tmp_path) if s.name == name)
    assert run.blind(subject, 4000, 2, CC, tmp_path)


@pytest.mark.slow
@needs_sanitizers
@pytest.mark.parametrize("file, check", [
    ("signature.c", "!megcc_in_region(bucket, work.begin, work.end - work.begin)"),
    ("verify.c", "slot->kernel < p->code->kernels"),
])
def test_holes_are_found(file: str, check: str, tmp_path: Path, capsys):
    """Without one of the verifier's checks, containers do harm, and the sanitizers see it."""
    subject = run.hand_made(tmp_path)[0]
    holed = Path(shutil.copytree(subject.runtime, tmp_path / "runtime"))
    text = (holed / "src" / file).read_text()
    assert text.count(check) == 1
    (holed / "src" / file).write_text(text.replace(check, "1" if "<" in check else "0"))
    assert not run.blind(replace(subject, runtime=holed), 20000, 2, CC, tmp_path)
    assert "AddressSanitizer" in capsys.readouterr().err


@needs_sanitizers
@pytest.mark.parametrize("name", ["streaming", *(pytest.param(name, marks=pytest.mark.slow)
                                                for name in ("indexed", "buckets", "calls"))])
def test_kept_corpus(name: str, tmp_path: Path):
    """Every input that was kept, and some that are new, with the compiler at hand."""
    (subject,) = run.kept(tmp_path, [name])
    assert (run.CORPUS / f"{name}.bin").exists()
    assert run.blind(subject, 5000, 3, CC, tmp_path)


@pytest.mark.parametrize("names", [pytest.param(["calls"], marks=pytest.mark.slow, id="some"),
                                   pytest.param([], marks=[pytest.mark.slow, pytest.mark.long], id="all")])
def test_guided(names: list[str], tmp_path: Path):
    """A few seconds from kept corpora, where the compiler can be guided by coverage."""
    cc = run.guided_compiler()
    if cc is None:
        pytest.skip("no clang with libFuzzer is installed")
    for subject in run.kept(tmp_path, names):
        assert run.guided(subject, ["-max_total_time=2", "-seed=1"], cc, tmp_path)


@pytest.mark.slow
@needs_sanitizers
@pytest.mark.parametrize("options", [{"optimize": "speed"}, {"optimize": "size"}, {"dispatch": "image[0]=1,2..4"},
                                     {"dispatch": "image[0]=1..*"}], ids=["speed", "size", "buckets", "open"])
def test_damaged_containers_of_a_network(options: dict, tmp_path: Path):
    """Those that open run on NaN, infinities and extreme integers in blocks of exact size."""
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", "native", **options)
    (subject,) = run.generated(artifact.save(tmp_path / "digits_megcc"), tmp_path)
    assert run.blind(subject, 10000, 3, CC, tmp_path)


@pytest.mark.long
@needs_sanitizers
@pytest.mark.parametrize("name", ["counts", "open", "loops"])
def test_damaged_containers_that_count_and_jump(name: str, tmp_path: Path):
    """Extents from data, planned and allocated, loops and branches: symbols, bounds, operands and targets of jumps."""
    source = nested() if name == "loops" else counting()
    bounds = {"counts": {"b": 5}, "open": {}, "loops": {"last": 8}}[name]
    artifact = tvm_megcc.compile(source, "native", bounds=bounds, name=name)
    (subject,) = run.generated(artifact.save(tmp_path / name), tmp_path)
    assert run.blind(subject, 5000, 3, CC, tmp_path)
