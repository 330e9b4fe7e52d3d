# SPDX-License-Identifier: Apache-2.0
"""Failing models become small, and are the same when they are read again."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from .cases import SAME_OPSET, Case
from .families import FAMILIES
from .replay import KEPT, case_of, result_of, text_of
from .result import BAD
from .shrink import arrays_of, shrunk
from .targets import missing

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 6, 5] x, float[5] w) => (float y) '
    "{ a = Add (x, w)  b = LeakyRelu <alpha = 0.3> (a)  y = Neg (b) }")


def drawn() -> Case:
    generator = np.random.default_rng(1)
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    w = generator.standard_normal(5).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    del model.graph.input[1]
    return Case(1, 2, "Add", 17, "1:2 Add", model, {"x": generator.standard_normal((2, 6, 5)).astype(np.float32)})


def test_shrunk():
    """A case that fails where a LeakyRelu reads a negative number."""
    family = FAMILIES["onnx"]

    def fails(case: Case) -> bool:
        kinds = [node.op_type for node in case.model.graph.node]
        return "LeakyRelu" in kinds and result_of(family, case, "").outcome == "right" and bool(
            (case.feeds["x"] + arrays_of(case)["w"] < 0).any())

    small = shrunk(drawn(), fails)
    assert [node.op_type for node in small.model.graph.node] == ["Add", "LeakyRelu"]
    assert not small.model.graph.node[1].attribute
    assert small.feeds["x"].size == 1 and arrays_of(small)["w"].size == 1
    assert all(float(array.sum()).is_integer() for array in arrays_of(small).values())


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint64", "bool", "object"])
def test_text(dtype: str):
    values = ["a", "zwölf"] if dtype == "object" else [0, 1] if dtype == "bool" else [1, 5]
    array = np.array(values, dtype)
    if dtype.startswith("float"):
        array = np.array([np.nan, -np.inf, 0.1, -0.0], dtype)
    if dtype == "uint64":
        array[0] = 2**64 - 1
    model = drawn().model
    model.graph.initializer.append(numpy_helper.from_array(array, "more"))
    case = Case(1, 2, "Add", 17, "l", model, {"x": array})
    family, read, target = case_of(text_of("onnx", case, "c"))
    assert (family, target) == ("onnx", "c")
    for name, wanted in arrays_of(case).items():
        found = arrays_of(read)[name]
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        if dtype.startswith("float"):
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_text_of_a_graph():
    """Each run by itself: of dimensions in a range, with what is wanted of it."""
    family = FAMILIES["chains"]
    case = next(case for case in (family.draw(1, number) for number in range(0, 10**6, SAME_OPSET)) if case.dims)
    single = list(family.alone(case))
    assert len(single) == len(case.runs) > 1
    for run, each in enumerate(single):
        _, read, _ = case_of(text_of("chains", each))
        assert (read.number, read.dims) == (case.number, case.dims)
        assert list(read.wanted[0]) == list(case.wanted[run])
        for name, wanted in case.wanted[run].items():
            np.testing.assert_array_equal(read.wanted[0][name], wanted)
        assert result_of(family, read, "").outcome not in BAD


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_kept(path):
    """In numpy, and compiled for this machine."""
    family, case, _ = case_of(path.read_text("utf-8"))
    result = result_of(FAMILIES[family], case, "native")
    assert result.outcome in ("right", "references differ"), result


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_kept_on_its_target(path):
    family, case, target = case_of(path.read_text("utf-8"))
    if not target:
        pytest.skip("failed in numpy")
    if reason := missing(target):
        pytest.skip(reason)
    result = result_of(FAMILIES[family], case, target)
    assert result.outcome == "right", result
