# SPDX-License-Identifier: Apache-2.0
"""The contract for threads with a deadline: a run allocates nothing, locks nothing, makes no system call, and what it
executes does not depend on the numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_megcc
from tests.streams_models import NETWORKS, Network
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.build import CFLAGS, c_sources
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS

HOOKS = ("malloc", "calloc", "realloc", "posix_memalign", "pthread_mutex_lock", "pthread_cond_wait",
         "pthread_cond_broadcast")
BLOCK, BLOCKS = 12, 1000


def _program(network: Network, folder: Path, target: str) -> tuple[Path, object]:
    """realtime.c with a network in blocks, and its artifact."""
    artifact = tvm_megcc.compile(network.make(), target, name="test", stream=f"axis={network.axis},block={BLOCK}")
    artifact.save(folder, embed=True)
    cpu = TARGETS[target]
    try:
        compiler = find_compiler(cpu)
    except MissingTool as missing:
        pytest.skip(str(missing))
    flags = [flag for flag in CFLAGS if not flag.startswith("-std=")]
    sources = [str(path.relative_to(folder)) for path in c_sources(folder)]
    subprocess.run([*compiler.command, "-std=c11", *flags, *cpu.cflags, "-g", "-I.", "-Iruntime/include", *sources,
                    str(Path(__file__).with_name("realtime.c")), *(f"-Wl,--wrap={name}" for name in HOOKS), "-pthread",
                    "-o", "realtime"], cwd=folder, check=True)
    return folder / "realtime", artifact


def _noise(count: int) -> np.ndarray:
    """As realtime.c draws it."""
    numbers, seed = np.empty(count, np.float32), 1
    for index in range(count):
        seed = (seed * 1664525 + 1013904223) % 2**32
        numbers[index] = np.float32(seed >> 8) / np.float32(8388608) - np.float32(1)
    return numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "wavenet", "late lstm"])
def test_a_run_only_computes(name, tmp_path):
    network = NETWORKS[name]
    program, artifact = _program(network, tmp_path / "embedded", "x86-64-v3")
    found = subprocess.run([program, str(BLOCKS), "strict", "noise"], stdout=subprocess.PIPE)
    if found.returncode == 77:
        pytest.skip("the kernel has no seccomp here")
    assert found.returncode == 0
    session = tvm_megcc.load(artifact.save(tmp_path / "made"))
    (x,) = session.inputs
    for block in _noise(BLOCKS * int(np.prod(x.shape))).reshape(BLOCKS, *x.shape):
        (y, *_) = session.run({x.name: block}).values()
    np.testing.assert_array_equal(np.frombuffer(found.stdout, np.float32), y.reshape(-1))


def test_strict_mode_ends_what_makes_a_system_call(tmp_path):
    """The test above would fail: a program that only asks for the time is killed."""
    source = tmp_path / "asks.c"
    source.write_text("#include <sys/prctl.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
                      "int main(void) { if (prctl(22, 1)) return 77; return (int)syscall(SYS_getpid) * 0; }\n")
    try:
        compiler = find_compiler(TARGETS["x86-64-v3"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    subprocess.run([*compiler.command, str(source), "-o", str(tmp_path / "asks")], check=True)
    code = subprocess.run([tmp_path / "asks"]).returncode
    if code == 77:
        pytest.skip("the kernel has no seccomp here")
    assert code < 0


@pytest.mark.slow
def test_bench_of_blocks(tmp_path, capsys):
    onnx.save(NETWORKS["causal"].make(), tmp_path / "amp.onnx")
    arguments = ["bench", str(tmp_path / "amp.onnx"), "--stream", "axis=2,block=12", "--blocks", "300"]
    before = os.sched_getaffinity(0), os.sched_getscheduler(0)
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    seconds = report["seconds"]
    assert 0 < seconds["median"] <= seconds["p99"] <= seconds["p99.9"] <= seconds["worst"]
    assert report["worst_over_median"] == seconds["worst"] / seconds["median"] and report["blocks"] == 300
    empty = report["empty"]
    assert 0 < empty["seconds"]["median"] <= empty["seconds"]["worst"] and 0 <= empty["over"] <= 300
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0)) == before
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "300 blocks: median" in said and "an empty loop of as long, alternating: worst" in said
    assert "a block of 12 at 48 kHz lasts 250.00 us" in said
    assert main([*arguments, "--processor", "100000"]) == REFUSED
    assert "this process may not run on processor" in capsys.readouterr().err


@cache
def _valgrind() -> str:
    return shutil.which("valgrind") or pytest.skip("there is no valgrind to count instructions with")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wavenet", "late lstm", "gru", "strided", "wide"])
def test_what_is_executed_does_not_depend_on_the_numbers(name, tmp_path):
    valgrind = _valgrind()
    program, _ = _program(NETWORKS[name], tmp_path / "embedded", "x86-64-v3")
    counts = {}
    for kind in ("noise", "zeros", "tiny", "huge"):
        found = subprocess.run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                "--toggle-collect=megcc_session_run", program, "20", "free", kind],
                               capture_output=True, check=True)
        counts[kind] = int(re.search(rb"Collected : (\d+)", found.stderr)[1])
    assert len(set(counts.values())) == 1 and counts["noise"] > 10_000, counts
