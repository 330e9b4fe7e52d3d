# SPDX-License-Identifier: Apache-2.0
"""What makes a firmware small at `-O size`: kernels that share code and weights that lie close together, with the bits
of `-O speed`."""

import numpy as np
import pytest

from tests.rows_graphs import Bytes, fed
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.emulator import counting, firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS


def layers():
    """Pointwise layers from few channels to many and back, of whole fours and not; depthwise ones over their input, and
    those too large for that."""
    b = Bytes()
    x = b.layer(b.input("x", 1, 8, 24, 24, dtype="int8"), 8, groups=8)
    x = b.layer(b.layer(x, 22, kernel=1), 22, stride=2, groups=22)
    x = b.layer(b.layer(x, 9, kernel=1), 40, kernel=1)
    x = b.layer(b.layer(x, 40, groups=40), 16, kernel=1)
    return b.graph(b.layer(b.layer(x, 16, stride=2, groups=16), 5, kernel=1))


@pytest.mark.parametrize("name", ["cortex-m4", *(pytest.param(name, marks=pytest.mark.long) for name in (
    "cortex-m0plus", "cortex-m3", "cortex-m33", "cortex-m55"))])
def test_the_same_bits_in_fewer_bytes(name, tmp_path):
    graph, target = layers(), TARGETS[name]
    feeds, sizes, results = fed(graph), [], []
    for optimize in ("speed", "size"):
        artifact = compile_graph(graph, [target], optimize=optimize)
        try:
            session = load(artifact.save(tmp_path / optimize, embed=True))
        except MissingTool as missing:
            pytest.skip(str(missing))
        results.append(session.run(feeds))
        sizes.append(firmware.sizes(session.firmware)["flash"])
        weights = [t for t in container.read(artifact.container).programs[0].tensors
                   if t.storage == container.Storage.weight]
        assert any(t.data % 64 for t in weights) and not any(t.data % target.isa.alignment for t in weights)
    for output, value in results[0].items():
        np.testing.assert_array_equal(results[1][output], value)
        assert len(np.unique(value)) > 5
    assert sizes[1] < sizes[0]
    if name == "cortex-m4":
        code = counting.disassembly(session.firmware, find_compiler(target))
        assert "mgc_joined_3x2" in code.functions and "__udivmoddi4" not in code.functions
        kernels = [function for function in code.functions if function.startswith(("conv2d_", "depthwise_"))]
        assert len(kernels) == 3, "pointwise layers, depthwise ones of either stride"
