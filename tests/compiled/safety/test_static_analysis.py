# SPDX-License-Identifier: Apache-2.0
"""gcc's analyzer, its warnings and cppcheck find nothing in the C of a folder of the safety profile."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tvm_megcc
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS

from .test_profile import REAL, compiled, floats, integers

#: The macros of the targets' compilers that the code reads, for cppcheck.
CPPCHECK = {
    "c": ("--platform=unix64", "-D__x86_64__=1"),
    "cortex-m33": ("--platform=unix32", "-D__arm__=1", "-D__ARM_ARCH=8", "-D__ARM_ARCH_8M_MAIN__=1",
                   "-D__ARM_FEATURE_DSP=1", "-D__ARM_FEATURE_SIMD32=1", "-D__ARM_FEATURE_SAT=1")}
COMMON = ("-D__GNUC__=12", "-D__BYTE_ORDER__=1234", "-D__ORDER_LITTLE_ENDIAN__=1234")


def kws(target: str, folder: Path) -> Path:
    path = REAL / "kws_dscnn_int8" / "model.tflite"
    if not os.environ.get("MEGCC_MODELS") or not path.exists():
        pytest.skip("kws_dscnn_int8 is not on this machine (set MEGCC_MODELS)")
    return tvm_megcc.compile(path, target, name="net", profile="safety").save(folder)


def folder_of(network, target: str, folder: Path) -> Path:
    return kws(target, folder) if network is kws else compiled(network, target, folder, profile="safety")


def sources(folder: Path) -> list[Path]:
    return [folder / "kernels.c", *sorted(folder.glob("kernels/*.c")), *sorted(folder.glob("runtime/src/*.c"))]


@pytest.mark.slow
@pytest.mark.parametrize("network", [kws, floats, integers])
@pytest.mark.parametrize("target", sorted(CPPCHECK))
def test_the_analyzer_of_gcc(network, target, tmp_path):
    folder = folder_of(network, target, tmp_path / "net")
    try:
        compiler = find_compiler(TARGETS[target], "gcc" if target == "c" else None)
    except MissingTool as missing:
        pytest.skip(str(missing))
    flags = [*TARGETS[target].cflags, *(firmware.FLAGS if TARGETS[target].bare_metal else ()), "-std=c99", "-O2",
             "-fanalyzer", "-Wall", "-Wextra", f"-I{folder}", f"-I{folder / 'runtime' / 'include'}"]

    def findings(source: Path) -> str:
        result = subprocess.run([*compiler.command, *flags, "-c", str(source), "-o", os.devnull], capture_output=True,
                                text=True)
        return result.stderr

    with ThreadPoolExecutor() as pool:
        assert not "".join(pool.map(findings, sources(folder)))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cppcheck"), reason="no cppcheck")
@pytest.mark.parametrize("network", [kws, floats, integers])
@pytest.mark.parametrize("target", sorted(CPPCHECK))
def test_cppcheck(network, target, tmp_path):
    """A right shift of a negative number is a deviation of docs/misra.md, "fixed point"."""
    folder = folder_of(network, target, tmp_path / "net")
    result = subprocess.run(
        ["cppcheck", "-q", "--enable=warning,performance,portability", "--std=c99", *CPPCHECK[target], *COMMON,
         "--suppress=missingIncludeSystem", "--suppress=shiftTooManyBitsSigned", "--error-exitcode=1", f"-I{folder}",
         f"-I{folder / 'runtime' / 'include'}", *map(str, sources(folder))], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
