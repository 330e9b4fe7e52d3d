# SPDX-License-Identifier: Apache-2.0
"""Layers by rows, built and run in the least memory that there is a plan for, and in a little less than whole tensors
need, where rows between strips are kept: the same bits as with whole tensors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.graphs import Builder
from tests.rows_graphs import GRAPHS, columns, fed, residual, separable, unsigned
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.load import load
from tvm_megcc.target import parse_targets


def least(graph, targets, **options) -> int:
    """Bytes of RAM that the compiler says it needs at least."""
    with pytest.raises(MegccError) as refused:
        compile_graph(graph, targets, ram=0, **options)
    return int(re.search(r"needs ([\d,]+) bytes", str(refused.value))[1].replace(",", ""))


def needed(artifact, targets) -> int:
    (program,) = container.read(artifact.container).programs
    return container.program_bytes(program, targets[0].pointer_bytes)


def floats():
    """Channels of one vector: their rows lie one behind the other."""
    b = Builder()
    x = b.conv(b.input("x", 1, 3, 33, 21), 8, stride=2)
    x = b.op("sigmoid", b.conv(b.op("relu", b.conv(x, 8, groups=8)), 8, kernel=1))
    return b.graph(b.op("tanh", b.conv(x, 8, stride=2, groups=8)))


#: The graphs at `-O speed` and at `-O size`.
EVERYTHING = tuple((make, optimize) for make in (*GRAPHS, columns, floats) for optimize in ("speed", "size"))


@pytest.mark.parametrize("target,cases", [
    ("c", [(separable, "speed")]),
    pytest.param("c", [(columns, "speed")], marks=pytest.mark.slow),
    pytest.param("cortex-m4", [(residual, "speed"), (unsigned, "speed")], marks=pytest.mark.slow),
    pytest.param("cortex-m3", [(unsigned, "speed")], marks=pytest.mark.slow),
    *(pytest.param(name, EVERYTHING, marks=pytest.mark.long)
      for name in ("c", "native", "cortex-m0plus", "cortex-m4", "cortex-m55", "riscv32"))])
def test_same_bits_in_less_memory(target: str, cases, tmp_path):
    targets, by_rows, keeping = parse_targets(target), 0, 0
    for make, optimize in cases:
        graph = make()
        feeds = fed(graph)
        sessions = []
        whole_bytes = needed(compile_graph(graph, targets, optimize=optimize), targets)
        bytes_ = least(graph, targets, optimize=optimize)
        for ram in (None, max(bytes_, whole_bytes - 1), bytes_):
            artifact = compile_graph(graph, targets, optimize=optimize, ram=ram)
            rows = artifact.manifest["programs"][0].get("rows", ())
            by_rows += bool(rows)
            keeping += any(row["kept"] for row in rows)
            try:
                sessions.append(load(artifact.save(tmp_path / make.__name__ / f"{optimize}{ram}")))
            except MissingTool as missing:
                pytest.skip(str(missing))
        whole, *by_strips = (session.run(feeds) for session in sessions)
        for name in whole:
            for result in by_strips:
                np.testing.assert_array_equal(result[name], whole[name])
            assert len(np.unique(whole[name])) > 1
    assert by_rows >= len(cases)
    assert keeping >= len(cases) // 2
