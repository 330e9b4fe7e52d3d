# SPDX-License-Identifier: Apache-2.0
"""Networks of 8 bits on every microcontroller that there is a row for: the same bits, and no code for another core."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from tests.tflite_files import written
from tests.tflite_networks import Network
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import ToolError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import firmware, reference
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, parse_targets

BARE = [name for name, target in TARGETS.items() if target.bare_metal]


def test_every_microcontroller_has_a_board():
    assert set(firmware.BOARDS) == set(BARE)


class Separable(Network):
    """Convolutions, some with a filter a channel, and a sum."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.random = np.random.default_rng([seed, 78])
        self.dtype, self.tensors, self.operators, self.name = "int8", {}, [], "x"
        self.x = self.made("x", (1, 9, 7, 3), 0.05)
        self.size = 4.0
        for kind in ("conv", "depthwise", "conv", "sum", "depthwise", "conv"):
            getattr(self, kind)()
        self.file = written(self.tensors, self.operators, ["x"], [self.name])
        self.feeds = {"x": self.random.integers(-128, 128, (1, 9, 7, 3)).astype(np.int8)}


#: One of each kind of code; the others have the code of one of these.
FIRST = {TARGETS[name].isa.name: name for name in reversed(BARE)}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in FIRST.values() else pytest.mark.long) for name in BARE])
def test_same_bits(name: str, tmp_path):
    varied = 0
    for seed in range(2):
        network = Separable(seed)
        path = tmp_path / f"{seed}.tflite"
        path.write_bytes(network.file)
        graph = import_tflite(path)
        expected = reference.run(graph, network.feeds)
        folder = compile_graph(graph, parse_targets(name), optimize=("speed", "size")[seed]).save(tmp_path / str(seed))
        try:
            session = load(folder)
        except ToolError as missing:
            pytest.skip(str(missing))
        for output, array in session.run(network.feeds).items():
            np.testing.assert_array_equal(array, expected[output])
            varied += len(np.unique(array)) > 1
    assert varied


@pytest.mark.slow
def test_code_for_another_core_is_an_error(tmp_path):
    path = tmp_path / "network.tflite"
    path.write_bytes(Separable(0).file)
    folders = {name: compile_graph(import_tflite(path), parse_targets(name)).save(tmp_path / name)
               for name in FIRST.values()}
    for name, folder in folders.items():
        for other in FIRST.values():
            try:
                (compiler,) = find_compiler(TARGETS[other]).command
            except ToolError as missing:
                pytest.skip(str(missing))
            flags = ("-Iruntime/include", "-ffreestanding", *TARGETS[other].cflags)
            command = [compiler, "-c", "kernels.c", "-o", "/dev/null", *flags]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            # A Cortex-M55 runs the code of a Cortex-M33.
            runs = other == name or (name, other) == ("cortex-m33", "cortex-m55")
            assert (result.returncode == 0) == runs, (name, other, result.stderr)
