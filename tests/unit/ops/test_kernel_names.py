# SPDX-License-Identifier: Apache-2.0
"""The grammar of kernel names on docs/kernel-names.md is that of the kernels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.kernels.kernel_harness import jobs_of
from tests.onnx_models import model, node
from tvm_megcc import paths
from tvm_megcc.codegen.c_source.symbols import MAX_FILE_CHARACTERS, NAMED_EXPRESSIONS, kernel_file
from tvm_megcc.ir.types import DTYPES
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import ISAS, TARGETS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kernel-names.md").read_text()
GRAMMAR = re.compile(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], re.VERBOSE)


def parsed(symbol: str) -> dict[str, str | None]:
    found = GRAMMAR.fullmatch(symbol)
    assert found, f"docs/kernel-names.md does not explain {symbol}"
    return found.groupdict()


def test_the_tables_are_complete():
    for isa in ISAS.values():
        targets = [name for name, target in TARGETS.items() if target.isa is isa]
        assert all(f"| `{isa.name}` | `{name}` |" in PAGE for name in targets), isa.name
    for word in (*(type_.short for type_ in DTYPES.values()), *NAMED_EXPRESSIONS.values()):
        assert f"`{word}`" in PAGE, word


def test_kernels_of_half_precision():
    made = model([node("Conv", "x w", "y")], {"x": [1, 8, 9, 9]}, {"y": None}, {"w": np.ones((8, 8, 3, 3), np.float32)})
    artifact = tvm_megcc.compile(made, "arm64-v82,arm64-v86,cortex-m55,x86-64", name="net", half=True)
    called = {call["kernel"] for program in artifact.manifest["programs"] for call in program["calls"]}
    float16_isa = {isa.name for isa in ISAS.values() if isa.is_half}
    assert {parsed(symbol)["isa"] for symbol in called} >= float16_isa
    assert all(f"| `{name}` |" in PAGE for name in float16_isa)


def test_the_examples_are_names():
    examples = re.findall(r"(?m)^    (\w+__\w+)$", PAGE) + re.findall(r"`(\w+__\w+)`", PAGE)
    assert len(examples) >= 3
    for symbol in examples:
        parsed(symbol)


@pytest.mark.parametrize(("target", "optimize"),
                         [("x86-64-v4", "speed"), pytest.param("c", "size", marks=pytest.mark.slow)])
def test_kernels_of_all_operators(target: str, optimize: str):
    for kind, declaration in sorted(OPERATORS.items()):
        for index, case in enumerate(declaration.cases):
            for job in jobs_of(kind, case, index, TARGETS[target], optimize):
                spec = job.bound.spec
                parts = parsed(spec.symbol)
                types = dict.fromkeys(DTYPES[p.dtype].short for p in (*spec.inputs, *spec.outputs))
                # Without extents nothing tells the end of the operation from one.
                operation = "_".join(filter(None, (parts["operation"], parts["extents"])))
                assert operation.startswith(spec.operation), spec.symbol
                assert parts["types"] == "".join(types), spec.symbol
                kinds = "".join(p.kind[0] for p in spec.inputs if p.kind not in ("own", "full"))
                assert (parts["epilogue"] is None) == (spec.epilogue is None), spec.symbol
                assert (parts["kinds"] or "") == kinds, spec.symbol
                assert (parts["algorithm"], parts["isa"]) == (spec.algorithm, spec.isa.name), spec.symbol
                assert (parts["small"] is not None) == (optimize == "size"), spec.symbol


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_windows_that_differ_have_different_names(kind: str):
    """Also where two of three strides are equal."""
    strides = [(1, 2, 1), (1, 2, 2), (2, 1, 2), (2, 2, 2), (1, 1, 2), (1, 1, 1)]
    nodes = [node(kind, "x", f"y{n}", kernel_shape=(2, 2, 2), strides=each) for n, each in enumerate(strides)]
    made = model(nodes, {"x": [1, 2, "d", "h", "w"]}, [f"y{n}" for n in range(len(strides))])
    artifact = tvm_megcc.compile(made, "c", name="pools", dispatch={"x": {axis: [(2, 9)] for axis in (2, 3, 4)}})
    (program,) = artifact.manifest["programs"]
    assert len({call["kernel"] for call in program["calls"]}) == len(strides)


@pytest.mark.parametrize("options", [{}, {"optimize": "size"}, {"dispatch": {"image": {0: [(1, 9)]}}}],
                         ids=["speed", "size", "dispatch"])
def test_kernels_of_a_model(options: dict):
    """For every ISA; and each kernel has its own file."""
    artifact = tvm_megcc.compile(paths.examples() / "digits.onnx", ",".join(TARGETS), **options)
    called = {call["kernel"] for program in artifact.manifest["programs"] for call in program["calls"]}
    assert {parsed(symbol)["isa"] for symbol in called} == {isa.name for isa in ISAS.values() if not isa.is_half}
    assert {kernel_file(symbol) for symbol in called} == {name for name in artifact.sources if "/" in name}
    assert max(len(Path(name).name) for name in artifact.sources) <= 60


def test_names_of_files_are_cut_between_words():
    """Of two symbols of one beginning and end a digest tells which is which."""
    long = [f"conv2d_3x3_x_plain_vpad_hpad_bias_nxih8iw8oc{n}oh8ow8patch6_f32_relu__direct_strip2_avx512"
            for n in (12, 13)]
    names = [Path(kernel_file(symbol)).name for symbol in long]
    assert len(set(names)) == 2 and all(len(name) <= MAX_FILE_CHARACTERS for name in names)
    for symbol, name in zip(long, names, strict=True):
        first, digest, last = re.fullmatch(r"(.*)_([0-9a-f]{8})_(.*)\.c", name).groups()
        assert symbol.startswith(f"{first}_") and symbol.endswith(f"_{last}"), digest
    name = kernel_file("a" * 90)
    assert name == kernel_file("a" * 90) and len(Path(name).name) <= MAX_FILE_CHARACTERS
