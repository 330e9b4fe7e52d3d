# SPDX-License-Identifier: Apache-2.0
"""Registered ⇒ tested: every kernel candidate on every case, on every ISA that this machine can build and run."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.codegen.c_source.render import find_template, render_kernel
from tvm_megcc.errors import MissingTool
from tvm_megcc.ops.base import OPERATORS, Case
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.toolchain import Compiler, find_compiler, find_emulator, runs_here
from tvm_megcc.target import TARGETS, Target

from .kernel_harness import HERE, Job, Program, distinct_kernels, jobs_of, same_call

SANITIZE = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
KINDS = sorted(kind for kind, op in OPERATORS.items() if op.kernels and op.cases)


def toolchain(name: str) -> tuple[Compiler, list[str], list[str]]:
    """Compiler, flags and emulator for a target; skips where there is none. Kernels of a bare machine are C as others,
    and are built for this one, which has sanitizers, as if it were that."""
    target = TARGETS[name]
    flags = list(target.cflags)
    if target.bare_metal:
        flags = [f"-D{macro}" for macro in re.findall(r"defined\((\w+)\)", target.isa.guard)]
        target = TARGETS["c"]
    if name == "x86-64-v3-vnni" and not runs_here(target):
        # The same instructions as AVX-512 has them, on a CPU that has those.
        flags, target = ["-DMGC_AVX512_ENCODING"], TARGETS["x86-64-v4-vnni"]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    if "v=true" in target.cpu:
        # Of what clang makes vectors of by itself, there are conversions at which qemu stops before version 8.
        flags += ["-fno-vectorize", "-fno-slp-vectorize"]
    if emulator:
        return compiler, ["-O1", "-static", *flags], [*emulator]
    # Sanitizers triple what optimising takes. What is optimised is tested on other targets; without it gcc refuses
    # constants in Intel's own macros for masks.
    return compiler, ["-O1" if "avx512" in target.isa.name else "-O0", *SANITIZE, *flags], []


def slow(*values) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


#: Every ISA, and each way of knowing extents; all are the same template, so not every pair is compiled.
TARGET_AND_MODE = (("c", "size"), slow("x86-64-v3", "open"), slow("x86-64-v4", "speed"), slow("arm64", "speed"),
                   slow("x86-64", "size"), slow("armv7", "size"), slow("cortex-m4", "speed"), slow("riscv64", "speed"),
                   slow("arm64-v82", "speed"), slow("arm64-v86", "size"), slow("cortex-m55", "speed"),
                   slow("x86-64-v4-vnni", "speed"), slow("x86-64-v4-vnni", "size"), slow("x86-64-v4-vnni", "open"),
                   slow("x86-64-v3-vnni", "speed"), slow("cortex-m0plus", "size"),
                   slow("wasm32-simd128", "speed"), slow("riscv64-v", "speed"), slow("riscv64-v256", "speed"),
                   slow("riscv64-v512", "speed"))
#: Of levels that have only some instructions of their own, the operators that use them.
ONLY = {name: {"conv2d_integer", "matmul_integer", "matmul_nbits_int8"} for name in (
    "x86-64-v4-vnni", "x86-64-v3-vnni", "cortex-m3", "cortex-m0plus")}
#: More of them, for an hour: with MEGCC_ALL_KERNELS in the environment.
ALL_KERNELS = bool(os.environ.get("MEGCC_ALL_KERNELS"))
if ALL_KERNELS:
    TARGET_AND_MODE += (slow("arm64", "open"), slow("arm64", "size"), slow("armv7", "speed"), slow("c", "open"),
                        slow("x86-64", "speed"), slow("x86-64-v3", "size"), slow("x86-64-v4", "open"))

#: Target and mode -> target whose calls in this mode are made above too, and need not be made again where they are the
#: same (`same_call`). A few are made all the same: they show that kernels are built for the CPU and run on it.
MADE_BY = {("arm64-v82", "speed"): "arm64", ("riscv64", "speed"): "cortex-m4"}
#: Target and mode of which no more is made than these few and what has instructions of its own there.
SHOWN = {("arm64-v86", "size"): {"conv2d_integer", "matmul_integer", "matmul_nbits_int8"}}
SHOWN_ON_ALL = {"matmul", "softmax", "max_pool", "relayout", "silu", "reduce_sum"}
#: Operators whose kernels run on the emulated board; those with templates of a bare machine's own have to.
ON_BOARD = {*SHOWN_ON_ALL, "conv2d", "conv2d_integer", "matmul_integer"}


#: Targets without vectors that have kernels of their own, or all that have none.
DISTINCT = {"c", "cortex-m4", "cortex-m3"}
#: Targets of which `make test` makes no more than the operators of ON_BOARD: their headers are tested so, the templates
#: are those of the others.
SECOND = {"x86-64", "armv7", "cortex-m4", "riscv64", "arm64-v82", "arm64-v86", "wasm32-simd128",
          "riscv64-v", "riscv64-v256", "riscv64-v512", "cortex-m55"}
#: Of these, whose compiler takes long, fewer still.
FEW = {"riscv64-v256", "wasm32-simd128"}
SHOWN_BY_FEW = {"conv2d_integer", "matmul", "softmax"}
#: The same header as riscv64-v256, for other lengths of vectors.
OTHER_LENGTHS = {"riscv64-v", "riscv64-v512"}
#: Clang takes half a minute for each of these.
LONG_TO_COMPILE = {("conv2d_integer", "riscv64-v256"), ("matmul", "riscv64-v256"), ("softmax", "riscv64-v256")}
#: Of operators that share their kernels `make check` has one, and these.
ALIKE = {"add", "div", "mod", "pow", "shift_right", "sign", "equal", "sin", "silu", "arg_max", "reduce_max",
         "quantize_linear"}
FIRST = {kernels: kind for kind in reversed(KINDS) for kernels in [OPERATORS[kind].kernels]}

#: Target and mode -> which third of the operators `make test` makes for it, and which of the parts of those with many.
#: The other targets have all operators that they make at all, and a third of such parts, the first among them.
THIRD_OF = {("x86-64-v3", "open"): 0, ("x86-64-v4", "speed"): 1, ("arm64", "speed"): 2,
            ("x86-64-v4-vnni", "speed"): 0, ("x86-64-v4-vnni", "size"): 1, ("x86-64-v3-vnni", "speed"): 2}

#: Operators with so many kernels that a test has every nth case only; all tests but the first are slow.
PARTS = {"conv2d": 18, "conv2d_integer": 12, "attention": 4, "conv2d_transpose": 4, "matmul": 6, "lstm": 6, "gru": 6,
         "rnn": 6, "matmul_integer": 6, "relayout": 6, "elementwise": 6, "transpose": 6, "resize": 6, "max_pool": 6,
         "cast": 6, "lstm_fixed": 6, "trees": 6, "avg_pool": 6, "pad": 4, "reduce_max": 6, "recurrent_steps": 6}


def is_quick(kind: str, part: int) -> bool:
    return part == 0 and (FIRST[OPERATORS[kind].kernels] == kind or kind in ALIKE)


def is_in_third(kind: str, part: int, name: str, optimize: str) -> bool:
    parts, third = PARTS.get(kind, 1), THIRD_OF.get((name, optimize))
    if third is None:
        return parts <= 3 or part % 3 == 0
    return (KINDS.index(kind) + part) % max(3, parts) == third


def marks(kind: str, part: int, name: str, optimize: str) -> list:
    second = name in SECOND and (part or kind not in (SHOWN_BY_FEW if name in FEW else ON_BOARD))
    is_long = (second or not is_in_third(kind, part, name, optimize) or name in OTHER_LENGTHS
               or (kind, name) in LONG_TO_COMPILE or (name, optimize) == ("x86-64-v4-vnni", "open")) and not ALL_KERNELS
    return [pytest.mark.slow] * (not is_quick(kind, part)) + [pytest.mark.long] * is_long


#: Operator and part, target and way of knowing extents.
WORK = [pytest.param(kind, part, *target.values, marks=[*target.marks, *marks(kind, part, *target.values)],
                     id="-".join((f"{kind}_{part}" if part else kind, *target.values)))
        for target in (given if hasattr(given, "marks") else pytest.param(*given) for given in TARGET_AND_MODE)
        for kind in KINDS if kind in ONLY.get(target.values[0], KINDS) for part in range(PARTS.get(kind, 1))]


def calls(kind: str, target: Target, optimize: str, part: int | None = None) -> list[Job]:
    cases = list(enumerate(OPERATORS[kind].cases))
    chosen = cases if part is None else cases[part::PARTS.get(kind, 1)]
    return [job for index, case in chosen for job in jobs_of(kind, case, index, target, optimize)]


def is_portable(job: Job) -> bool:
    """Whether the kernel's template is not one for a bare machine only, which no other can build."""
    isa = job.bound.spec.isa
    return not find_template(job.bound.spec.template, isa).name.endswith(f".{isa.name}.c.j2")


@pytest.mark.parametrize(("kind", "part", "name", "optimize"), WORK)
def test_kernels(kind: str, part: int, name: str, optimize: str, tmp_path: Path):
    compiler, flags, runner = toolchain(name)
    jobs = calls(kind, TARGETS[name], optimize, part)
    if TARGETS[name].bare_metal:
        assert kind in ON_BOARD or all(map(is_portable, jobs)), f"a template of its own: add {kind} to ON_BOARD"
        jobs = [job for job in jobs if is_portable(job)]
    if kind not in SHOWN.get((name, optimize), {kind}) | SHOWN_ON_ALL and not ALL_KERNELS:
        pytest.skip("with MEGCC_ALL_KERNELS only: the same templates as those of arm64-v82")
    if not jobs:
        assert optimize == "open" or name != "c", f"no kernel of {kind} accepts any of its cases"
        pytest.skip(f"no kernel of {kind} for {name}")
    other = MADE_BY.get((name, optimize))
    if other and kind not in SHOWN_ON_ALL and not ALL_KERNELS:
        made = set(map(same_call, calls(kind, TARGETS[other], optimize, part)))
        jobs = [job for job in jobs if same_call(job) not in made]
        if not jobs:
            pytest.skip(f"every call is one for {other} too")
    program = Program(jobs, tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["riscv64-v", "riscv64-v256"])
@pytest.mark.parametrize("optimize", ["open", "size"])
def test_depthwise_rows_of_any_length(name: str, optimize: str, tmp_path: Path):
    """In assembler between edges in C (`open`), which have no epilogue of their own then, or all in C."""
    compiler, flags, runner = toolchain(name)
    jobs = [job for job in calls("conv2d", TARGETS[name], optimize) if job.bound.spec.template == "conv2d/depthwise"]
    assert jobs
    program = Program(jobs, tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.slow
def test_depthwise_rows_down_to_the_edge(tmp_path: Path):
    """All rows whose windows lie in x are computed at once, up to those whose windows reach over its end."""
    case = Case((((2, 16, 6, 9), "float32"), ((16, 1, 3, 3), "float32"), None),
                {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 16}, (1,))
    compiler, flags, runner = toolchain("riscv64-v")
    jobs = list(jobs_of("conv2d", case, 0, TARGETS["riscv64-v"], "speed"))
    assert any("rows_stop" in render_kernel(job.bound.spec) for job in jobs)
    program = Program(jobs, tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


#: Operators that have kernels of half precision, some of those that share them.
IN_HALVES = ("conv2d", "matmul", "max_pool", "avg_pool", "global_max_pool", "global_avg_pool", "relu", "silu", "div",
             "sqrt", "pow", "elementwise", "clip", "cast")


@pytest.mark.parametrize(("kind", "name", "optimize"), [
    ("matmul", "arm64-v82", "half"), *(slow(kind, name, optimize) for kind in IN_HALVES
                                       for name, optimize in (("arm64-v82", "half"), ("arm64-v86", "half-size"))
                                       if (kind, name) != ("matmul", "arm64-v82"))])
def test_kernels_of_half_precision(kind: str, name: str, optimize: str, tmp_path: Path):
    compiler, flags, runner = toolchain(name)
    jobs = calls(kind, TARGETS[name], optimize, None if ALL_KERNELS else 0)
    assert jobs and (kind == "cast" or all(job.bound.spec.isa.is_half for job in jobs))
    program = Program(jobs, tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


class Firmware(Program):
    """The same on the emulated example board of a target."""

    def __init__(self, target: Target, *arguments):
        self.target = target
        super().__init__(*arguments)

    def linked(self) -> list[str]:
        return ["-I", str(firmware.port()), str(firmware.port() / "start.c"), str(HERE / "board.c"),
                *firmware.link_flags(self.target, {"stack": 64 << 10})]

    def answer(self, blob: bytes) -> tuple[bytes, str]:
        (self.folder / "jobs.bin").write_bytes(blob)
        results = self.folder / "results.bin"
        results.unlink(missing_ok=True)
        command = firmware.emulation(*self.runner, self.target, self.binary)
        process = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return results.read_bytes() if results.exists() else b"", process.stdout + process.stderr


@pytest.mark.parametrize(("kind", "name"), [
    ("softmax", "cortex-m4"), *(slow(kind, "cortex-m4") for kind in sorted(ON_BOARD - {"softmax"})),
    *(slow(kind, "cortex-m55") for kind in sorted(ON_BOARD)),
    *(pytest.param(kind, "cortex-m55", marks=[pytest.mark.slow, pytest.mark.long])
      for kind in KINDS if kind not in ON_BOARD),
    *(pytest.param(kind, name, marks=[pytest.mark.slow, pytest.mark.long])
      for name in ("cortex-m3", "cortex-m0plus") for kind in sorted(ONLY[name]))])
def test_kernels_on_the_board(kind: str, name: str, tmp_path: Path):
    target = TARGETS[name]
    jobs = calls(kind, target, "speed", None if ALL_KERNELS else 0)
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    program = Firmware(target, jobs, tmp_path, compiler, ["-O1", *target.cflags], [*emulator])
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("kind", [slow("matmul"), *(
    pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.long]) for kind in IN_HALVES if kind != "matmul")])
def test_kernels_of_half_precision_on_the_board(kind: str, tmp_path: Path):
    """Helium's: there is no C for other machines."""
    target = TARGETS["cortex-m55"]
    jobs = calls(kind, target, "half")
    assert jobs and (kind == "cast" or all(job.bound.spec.isa.is_half for job in jobs))
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    program = Firmware(target, jobs, tmp_path, compiler, ["-O2", *target.cflags], [*emulator])
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "c"))
                                  for name, target in TARGETS.items() if target.isa.lanes > 1 or name in DISTINCT])
@pytest.mark.parametrize("optimize", ["speed", slow("shared-size")])
def test_kernels_of_all_parts_have_symbols_of_their_own(kind: str, name: str, optimize: str):
    distinct_kernels(calls(kind, TARGETS[name], optimize))


def test_every_operator_has_cases():
    """But for those that are instructions of the machine, or made of them."""
    assert {kind for kind, op in OPERATORS.items() if not op.cases} == {"loop", "branch", "extent"}


@pytest.mark.parametrize("kind", ["conv2d_integer", "matmul_integer"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "riscv64-v"))
                                  for name in {target.isa.name: name for name, target in TARGETS.items()}.values()])
def test_kernels_that_depend_on_the_numbers_of_weights_have_symbols_of_their_own(kind: str, name: str):
    """Of two calls that differ in nothing but whether a weight is as far from its zero point as it can be."""
    jobs = []
    for index, case in enumerate(OPERATORS[kind].cases):
        if 1 in case.constant and case.inputs[1][1] == "int8":
            for least in (-127, -128):
                weights = np.full(case.inputs[1][0], 3, np.int64)
                weights.flat[0] = least
                jobs += jobs_of(kind, replace(case, values={**case.values, 1: weights}), index, TARGETS[name],
                                "shared-size")
    distinct_kernels(jobs)
