# SPDX-License-Identifier: Apache-2.0
"""What one build of a folder for several machines contains: its own programs, weights and memory."""

import subprocess

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc import paths
from tvm_megcc.codegen import container, device_model
from tvm_megcc.codegen.bundle import contents
from tvm_megcc.codegen.embedding import read_container
from tvm_megcc.codegen.machines import by_machine, machine_of, machines, make_commands, refusal, static_profile
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.runtime.build import CFLAGS, c_sources
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS, parse_targets

DIGITS = paths.examples() / "digits.onnx"


def targets(*names: str):
    return tuple(TARGETS[name] for name in names)


def test_levels_of_a_machine_are_one_build_and_portable_c_is_in_all():
    found = machines(targets("cortex-m4", "x86-64-v3", "x86-64", "c"))
    assert [[t.name for t in machine.targets] for machine in found] == [
        ["cortex-m4", "c"], ["x86-64-v3", "x86-64", "c"], ["c"]]
    assert machine_of(targets("cortex-m4", "x86-64-v3"), TARGETS["x86-64-v3"]) == 1


def test_conditions_only_where_they_are_needed():
    two = targets("cortex-m4", "x86-64")
    assert by_machine(two, ["same", "same"]) == "same"
    assert by_machine(two, ["one", "other"]).splitlines() == [
        "#if defined(__ARM_ARCH_7EM__) /* cortex-m4 */", "one", "#elif defined(__x86_64__) /* x86-64 */", "other",
        "#endif"]
    assert by_machine(targets("x86-64", "c"), ["one", "other"]).splitlines()[2] == "#else /* c */"


def test_another_cpu_is_refused_unless_there_is_portable_c():
    assert refusal("net", targets("x86-64", "c")) == []
    condition, error, _end, _blank = refusal("net", targets("cortex-m4", "arm64"))
    assert condition == "#if !(defined(__ARM_ARCH_7EM__)) && !(defined(__aarch64__))"
    assert "net was compiled for cortex-m4, arm64" in error and "-mcpu=cortex-m4" in error


@pytest.fixture(scope="module")
def artifact():
    return tvm_megcc.compile(DIGITS, "cortex-m4,x86-64-v3")


def test_a_part_is_what_the_target_alone_would_have(artifact):
    for name in ("cortex-m4", "x86-64-v3"):
        part = container.read(device_model.container_part(artifact.container, {TARGETS[name].isa.code}))
        alone = container.read(tvm_megcc.compile(DIGITS, name).container)
        assert part.programs == alone.programs and part.weights == alone.weights
    every = {TARGETS[name].isa.code for name in ("cortex-m4", "x86-64-v3")}
    assert device_model.container_part(artifact.container, every) == artifact.container


@pytest.mark.parametrize("embed", [False, True], ids=["file", "embedded"])
def test_the_header_has_each_machine_s_memory(artifact, embed):
    def expressions(header: bytes) -> list[str]:
        return [line.split(" ", 2)[2] for line in header.decode().splitlines() if "_MEMORY_BYTES MEGCC" in line]

    alone = [expressions(contents([tvm_megcc.compile(DIGITS, name)])["digits.h"])[0]
             for name in ("cortex-m4", "x86-64-v3")]
    assert sorted(expressions(contents([artifact], embed)["digits.h"])) == sorted(alone)


def test_what_is_embedded_is_read_again(artifact, tmp_path):
    folder = artifact.save(tmp_path / "digits_megcc", embed=True)
    for name in ("cortex-m4", "x86-64-v3"):
        code = TARGETS[name].isa.code
        assert read_container(folder, "digits", TARGETS[name]) == \
            device_model.container_part(artifact.container, {code})


def test_a_folder_whose_container_is_gone_is_damaged(tmp_path):
    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "digits_megcc", embed=True)
    (folder / "digits_data.c").unlink()
    with pytest.raises(MegccError, match=r"neither digits\.megcc nor digits_data\.c"):
        read_container(folder, "digits", TARGETS["c"])


@pytest.mark.parametrize(("names", "commands"), [
    ("c", ["make", "make CC=aarch64-linux-gnu-gcc BUILD=build/arm64"]),
    ("x86-64-v3,x86-64,arm64", ["make", "make CC=aarch64-linux-gnu-gcc BUILD=build/arm64"]),
    ("armv7", ['make CC=arm-linux-gnueabihf-gcc CFLAGS="-O2 -mfpu=neon-vfpv4" BUILD=build/armv7']),
    ("cortex-m4", ["make library CC=arm-none-eabi-gcc AR=arm-none-eabi-ar BUILD=build/cortex-m4 \\"])])
def test_a_folder_says_how_to_build_it_for_its_targets_alone(names, commands):
    made = make_commands(parse_targets(names), static_profile([], trusted_data=False))
    assert [command.splitlines()[0] for command, _ in made] == commands
    files = contents([tvm_megcc.compile(DIGITS, names)])
    readme, makefile = (files[name].decode() for name in ("README.md", "Makefile"))
    assert all(f"    {command}\n" in readme and f"#     {command}\n" in makefile for command in commands)
    assert ("cmake -B" in readme) == (names != "cortex-m4")


@pytest.mark.parametrize(("optimize", "expected"), [("speed", True), ("size", False)])
def test_builds_leave_out_extents_that_no_kernel_gets(optimize, expected):
    """Layers share kernels at -O size, which get extents at run time."""
    manifest = tvm_megcc.compile(DIGITS, "cortex-m4", optimize=optimize).manifest
    assert ("-DMEGCC_NO_EXTENTS" in static_profile([manifest], trusted_data=True)) == expected
    assert "-DMEGCC_NO_EXTENTS" not in static_profile([manifest], trusted_data=True, shared=True)


#: A product of bytes, the nearest of whose sums are bytes again.
BYTES = model([node("QLinearMatMul", "x s z w s z s z", "y")], {"x": ("int8", [4, 32])}, ("y",),
              {"s": np.float32(0.25), "z": np.int8(0), "w": np.ones((32, 24), np.int8)}, opset=17)
LEVELS = {"c": {"scalar.h", "lane.h"}, "cortex-m4": {"scalar.h", "lane.h", "scalar_integer.h", "dsp_integer.h"},
          "cortex-m0plus": {"scalar.h", "lane.h", "scalar_integer.h", "pairs_integer.h"},
          "cortex-m55": {"helium.h", "lane.h", "helium_integer.h"}, "x86-64-v4": {"avx512.h", "x86_integer.h"},
          "arm64-v82,c": {"neon.h", "neon_integer.h", "scalar.h", "lane.h"}, "riscv64-v256": {"rvv.h"}}


@pytest.mark.parametrize("target", LEVELS)
def test_headers_are_those_of_the_targets(target):
    """Those of integers where there are some, and none of other machines."""
    for network, wanted in ((BYTES, LEVELS[target]),
                            (DIGITS, {name for name in LEVELS[target] if not name.endswith("_integer.h")})):
        files = contents([tvm_megcc.compile(network, target)])
        found = {name.removeprefix("runtime/include/") for name in files if name.startswith("runtime/include/")}
        assert {name.removeprefix("simd/") for name in found if name.startswith("simd/")} == wanted
        assert {"megcc.h", "megcc_kernel.h", "megcc_realtime.h", "megcc_simd.h"} <= found
        assert "megcc_float16_math.h" not in found


@pytest.mark.parametrize("target", [name if name in ("c", "cortex-m4") else pytest.param(name, marks=pytest.mark.slow)
                                    for name in TARGETS])
def test_compilers_read_these_headers(target, tmp_path):
    """Each that is in the folder, and no other."""
    try:
        compiler = find_compiler(TARGETS[target])
    except MissingTool as missing:
        pytest.skip(str(missing))
    folder = tvm_megcc.compile(BYTES, target).save(tmp_path / "bytes", embed=True)
    flags = [*CFLAGS, *TARGETS[target].cflags, f"-I{folder / 'runtime/include'}", f"-I{folder}", "-MM"]
    read = "".join(subprocess.run([*compiler.command, *flags, str(source)], check=True, capture_output=True, text=True)
                   .stdout for source in c_sources(folder))  # zig lists what one file reads
    headers = {word.rpartition("/simd/")[2] for word in read.split() if "/simd/" in word}
    elsewhere = {"lane.h"} if "helium.h" in headers else set()  # helium.h is C where there is no Helium
    assert headers | elsewhere == {path.name for path in (folder / "runtime/include/simd").iterdir()}
