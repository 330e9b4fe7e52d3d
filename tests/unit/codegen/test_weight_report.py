# SPDX-License-Identifier: Apache-2.0
"""Weights of several ISA levels in one container: shared where their packing is the same, listed where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import Builder
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.target import parse_targets
from tvm_megcc.tools.report.describe import folder, folder_text


def product(columns: int):
    b = Builder()
    y = b.op("matmul", b.input("x", 4, 8), b.const("w", 8, columns), trans_a=False, trans_b=False)
    return b.graph(y)


@pytest.mark.parametrize(("columns", "rows"), [
    (32, [(["x86-64-v4", "x86-64-v3", "x86-64"], 4 * 8 * 32)]),       # whole blocks: one packing for 4, 8, 16 lanes
    (24, [(["x86-64-v4"], 4 * 8 * 32), (["x86-64-v3", "x86-64"], 4 * 8 * 24)]),
    (20, [(["x86-64-v4"], 4 * 8 * 32), (["x86-64-v3"], 4 * 8 * 24), (["x86-64"], 4 * 8 * 20)]),
])
def test_levels_share_weights(columns: int, rows: list, tmp_path):
    artifact = compile_graph(product(columns), parse_targets("x86-64,x86-64-v3,x86-64-v4"))
    found = artifact.manifest["weights"]
    assert [(row["targets"], row["bytes"]) for row in found] == rows
    assert all(row["weights"] == ["w"] for row in found)
    stored = len(container.read(artifact.container).weights)
    assert stored - 64 * len(found) < sum(row["bytes"] for row in found) <= stored
    text = folder_text(folder(artifact.save(tmp_path / "m")))
    for targets, size in rows:
        readers = "all targets read" if len(targets) == 3 else f"only {' and '.join(targets)} read"
        assert any(f"{size:,} bytes" in line and readers in line for line in text.splitlines()), text


def test_what_packing_costs_is_said(tmp_path):
    """Winograd's weights are four times the model's."""
    b = Builder()
    y = b.op("conv2d", b.input("x", 1, 32, 16, 16), b.const("w", 32, 32, 3, 3), strides=(1, 1), pads=(1, 1, 1, 1),
             dilations=(1, 1), groups=1)
    for optimize, said in (("speed", True), ("size", False)):
        artifact = compile_graph(b.graph(y), parse_targets("x86-64-v4"), optimize=optimize)
        text = folder_text(folder(artifact.save(tmp_path / optimize)))
        assert (f"({4 * 32 * 32 * 9:,} in the model: -O size keeps them so)" in text) == said, text


def test_equal_weights_are_counted_once():
    b = Builder()
    weight = np.arange(64, dtype=np.float32).reshape(8, 8)
    y = b.input("x", 4, 8)
    for name in ("w", "again"):
        y = b.op("matmul", y, b.const(name, 8, 8), trans_a=False, trans_b=False)
    graph = b.graph(y)
    graph = graph.with_(constants={name: weight for name in graph.constants})
    (program,) = compile_graph(graph, parse_targets("x86-64")).manifest["programs"]
    assert program["weight_bytes"] == program["unpacked_bytes"] == weight.nbytes
