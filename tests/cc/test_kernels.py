# SPDX-License-Identifier: Apache-2.0
"""Registered ⇒ tested: every kernel candidate on every case, on every ISA that this machine can build and run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvm_megcc.errors import ToolError
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime.toolchain import Compiler, find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .kernel_harness import Program, jobs_of

HOST = {"c", "x86-64", "x86-64-v3", "x86-64-v4"}
SANITIZE = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]


def toolchain(name: str) -> tuple[Compiler, list[str], list[str]]:
    """Compiler, flags and emulator for a target; skips where there is none."""
    target = TARGETS[name]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except ToolError as missing:
        pytest.skip(str(missing))
    if emulator:
        return compiler, ["-O1", "-static", *target.cflags], [*emulator]
    return compiler, ["-O1", *SANITIZE, *target.cflags], []


def slow(*values) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


#: Every ISA, and each way of knowing extents; all are the same template, so not every pair is compiled.
TARGET_AND_MODE = (("x86-64-v3", "open"), ("c", "size"), ("x86-64-v4", "speed"), ("arm64", "speed"),
                   slow("x86-64", "size"), slow("armv7", "size"), slow("riscv64", "speed"),
                   slow("arm64-v82", "speed"), slow("arm64-v86", "size"))
#: More of them, for an hour: with MEGCC_ALL_KERNELS in the environment.
ALL_KERNELS = bool(os.environ.get("MEGCC_ALL_KERNELS"))
if ALL_KERNELS:
    TARGET_AND_MODE += (slow("arm64", "open"), slow("arm64", "size"), slow("armv7", "speed"), slow("c", "open"),
                        slow("x86-64", "speed"), slow("x86-64-v3", "size"), slow("x86-64-v4", "open"))

#: The kernels of these targets are another's text; a few show that they are built for the CPU and run on it.
SAME_AS = {"arm64-v82": "arm64", "arm64-v86": "arm64", "riscv64": "c"}
SHOWN_ON_ALL = {"matmul", "softmax", "max_pool", "relayout", "silu", "reduce_sum"}


@pytest.mark.parametrize(("name", "optimize"), TARGET_AND_MODE)
@pytest.mark.parametrize("kind", sorted(kind for kind, op in OPERATORS.items() if op.kernels))
def test_kernels(kind: str, name: str, optimize: str, tmp_path: Path):
    if name in SAME_AS and kind not in SHOWN_ON_ALL and not ALL_KERNELS:
        pytest.skip(f"the same text as for {SAME_AS[name]}")
    compiler, flags, runner = toolchain(name)
    jobs = [job for index, case in enumerate(OPERATORS[kind].cases)
            for job in jobs_of(kind, case, index, TARGETS[name], optimize)]
    if not jobs:
        assert optimize == "open" or name != "c", f"no kernel of {kind} accepts any of its cases"
        pytest.skip(f"no kernel of {kind} for {name}")
    program = Program(jobs, tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_every_operator_has_cases(kind: str):
    assert OPERATORS[kind].cases, f"{kind} declares no test case"
