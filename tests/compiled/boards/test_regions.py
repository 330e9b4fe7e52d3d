# SPDX-License-Identifier: Apache-2.0
"""Models with memory in two regions, on emulated boards that have two: the same bits as with one."""

import subprocess

import numpy as np
import pytest

from tests.rows_graphs import fed, separable
from tvm_megcc.codegen import container
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Regions
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.emulator import elf, firmware
from tvm_megcc.runtime.load import load
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, parse_targets


@pytest.mark.parametrize("name, embed", [
    ("cortex-m4", False), ("cortex-m7", True),
    *(pytest.param(name, True, marks=pytest.mark.long)
      for name in ("cortex-m0plus", "cortex-m3", "cortex-m33", "cortex-m55", "riscv32"))])
def test_same_bits_in_two_regions(name, embed, tmp_path):
    graph, results = separable(), []
    feeds = fed(graph)
    for regions in (None, Regions.parse("dtcm=3K,sram=64K"), Regions.parse("dtcm=3K,flash=1M,sram=64K")):
        artifact = compile_graph(graph, parse_targets(name), regions=regions)
        try:
            session = load(artifact.save(tmp_path / str(len(results)), embed=embed))
        except MissingTool as missing:
            pytest.skip(str(missing))
        results.append(session.run(feeds))
        if regions:
            (memories,) = container.read(artifact.container).programs[0].device_models
            assert elf.sections(session.firmware)[".other"].bss == memories.regions[1] > 0
            assert firmware.sizes(session.firmware)["ram"] >= sum(memories.regions)
    for other in results[1:]:
        for output, value in results[0].items():
            np.testing.assert_array_equal(other[output], value)
            assert len(np.unique(value)) > 1


def test_the_application_says_the_section(tmp_path):
    target = TARGETS["cortex-m4"]
    try:
        compiler = find_compiler(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    artifact = compile_graph(separable(), [target], regions=Regions.parse("dtcm=3K,sram=64K"))
    folder = artifact.save(tmp_path / "m", embed=True)
    (memories,) = container.read(artifact.container).programs[0].device_models
    section = f'-D{artifact.name.upper()}_SECTION_SRAM=__attribute__((section(".bss.slow")))'
    subprocess.run([*compiler.command, *target.cflags, "-fdata-sections", section, f"-I{folder}", "-c",
                    f"-I{folder}/runtime/include", str(folder / f"{artifact.name}_data.c"), "-o", tmp_path / "o.o"],
                   check=True)
    found = elf.sections(tmp_path / "o.o")
    assert found[".bss.slow"].bss == memories.regions[1] and found[f".bss.{artifact.name}_memory_dtcm"].bss <= 3072


@pytest.mark.parametrize("size", ["1]; int evil[1", -1, True, None, 1 << 40])
def test_sizes_of_a_manifest_are_numbers(size):
    with pytest.raises(MegccError, match="no number of bytes"):
        firmware.table({"m": b""}, (), {"m": 0}, {"m": [{"name": "a", "bytes": 1}, {"name": "} evil", "bytes": size}]})
