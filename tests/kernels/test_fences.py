# SPDX-License-Identifier: Apache-2.0
"""Integer kernels of microcontrollers read and write their operands and nothing else, wherever these lie: each runs on
the emulated board with its operands between memory that faults, at every alignment that they may have. Tiles of every
height and width, every depth up to 40, up to 20 channels.

`make test` has a few. MEGCC_ALL_FENCES=1 pytest tests/kernels/test_fences.py has all, an hour of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.errors import MissingTool
from tvm_megcc.ir.expr import X, arg, call, clip
from tvm_megcc.ir.types import DTYPES
from tvm_megcc.ops.base import Case
from tvm_megcc.ops.quantized.conv_matmul import _case, _product
from tvm_megcc.runtime.emulator import firmware
from tvm_megcc.runtime.toolchain import Compiler, find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .kernel_harness import HERE, Job, Tail, _difference, jobs_of
from .test_kernels import Firmware

BARE = [name for name, target in TARGETS.items() if target.bare_metal]
#: Jobs that the board has memory for; bytes between two fences, and those around an operand (fenced.c).
JOBS_BYTES, BETWEEN, GUARD = 12 << 20, 16 << 10, 64

_EACH = (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-19, -2)))
TAILS = (
    Tail(clip(call("rescale_down", X, arg(1), arg(2)) - 7, -128, 127), _EACH, "int8"),
    Tail(clip(call("rescale_once", X, arg(1), arg(2)) + 5, 0, 255), _EACH, "uint8"),
    Tail(clip(call("rescale_down", X, 1518500250, -9) - 128, -128, 127), (), "int8"),
    Tail(clip(call("rescale_down", X, arg(1), arg(2)) + 9, -100, 127), (_EACH[0], ("channel", "int8", (-19, -2))),
         "int8"),
    Tail(clip(call("rescale_down", (arg(3) + 7) * 2**20, 1623821475, -2)
              + call("rescale_fixed", clip(call("rescale_down", X, arg(1), arg(2)), 0, 255) * 2**20, 2**30, 0) - 12,
              -12, 127), (*_EACH, ("full", "int8", (-128, 127))), "int8"),
    Tail(X * 3, (), "int16"),
    Tail(),
)
#: Types of both operands, zero points of both, least weight, whether there is a bias.
KINDS = (
    (("int8", "int8"), -3, 0, -127, True),
    (("int8", "int8"), 127, 0, -128, True),
    (("uint8", "uint8"), 255, 77, 1, True),
    (("uint8", "int8"), 0, 0, -127, False),
    (("uint8", "uint8"), 128, 255, 0, True),
    (("int8", "int8"), -128, 0, -127, True),
)
SAME = (1, 1, 1, 1)


def drawn(case: Case, seed: int, least: int) -> Case:
    """With random numbers, weights from the least on, and a bias that may be as large as joined sums take."""
    random = np.random.default_rng(seed)
    (x, x_dtype), (w, w_dtype), bias = case.inputs
    values = {0: random.integers(np.iinfo(x_dtype).min, np.iinfo(x_dtype).max + 1, x),
              1: random.integers(least, np.iinfo(w_dtype).max + 1, w)}
    if bias:
        values[2] = random.integers(-2**18, 2**18, bias[0])
    return replace(case, values=values)


def rows(count: int, depth: int, channels: int, number: int) -> tuple[int, str, Case]:
    """A product, of the kind that the number gives: that, operator and case."""
    dtypes, a_zero, b_zero, least, bias = KINDS[number % len(KINDS)]
    case = _product((count, depth), (depth, channels), channels if bias else None, a_zero=a_zero, b_zero=b_zero,
                    dtypes=dtypes)
    return number % len(KINDS), "matmul_integer", drawn(case, number, least)


def windows(x: tuple[int, ...], w: tuple[int, ...], number: int, **attributes) -> tuple[int, str, Case]:
    dtypes, x_zero, w_zero, least, bias = KINDS[number % len(KINDS)]
    case = _case(x, w, x_zero=x_zero, w_zero=w_zero, dtypes=dtypes, bias=bias, **attributes)
    return number % len(KINDS), "conv2d_integer", drawn(case, number, least)


def of_rows(heights, depths, widths, kinds=tuple(range(6))) -> Iterator[tuple[int, str, Case]]:
    for height, depth, width, kind in product(heights, depths, widths, kinds):
        yield rows(height, depth, width, kind)


def of_windows(depths, widths, number: int = 0) -> Iterator[tuple[int, str, Case]]:
    """Convolutions, the pixels of whose rows and whose attributes go in turn."""
    for depth, width in product(depths, widths):
        number += 1
        across = 1 + number % 9
        yield windows((1, depth, 1, 2 * across - 1), (width, depth, 1, 1), number, strides=(1, 2))
        yield windows((1, depth, 1, across), (width, depth, 1, 1), number + 1)
        yield windows((1, depth, 2, across), (width, depth, 3, 3), number, pads=SAME)
        yield windows((1, depth, 3, across + 2), (width, depth, 2, 3), number + 2)
        yield windows((1, depth, 1, across + 1), (width, depth, 1, 2), number + 3)
        yield windows((1, depth, 4, across), (width, depth, 3, 1), number + 4, pads=(1, 0, 0, 0), dilations=(2, 1))
        if width % 2 == 0 and depth <= 20:
            yield windows((1, 2 * depth, 2, across), (width, depth, 2, 2), number + 5, pads=(1, 0, 0, 1), groups=2)
            yield windows((1, 2 * depth, 1, across), (width, depth, 1, 1), number + 1, groups=2)


def of_channels(channels, across, number: int = 0) -> Iterator[tuple[int, str, Case]]:
    """One filter a channel."""
    for count, columns in product(channels, across):
        number += 1
        for kind, (kernel, rows_of_x, attributes) in enumerate((
                ((3, 3), 2, {"pads": SAME}), ((3, 3), 3, {"pads": SAME, "strides": (2, 2)}), ((5, 1), 5, {}),
                ((2, 3), 3, {"pads": (0, 1, 1, 1)}), ((3, 3), 3, {"pads": (2, 2, 2, 2), "dilations": (2, 2)}),
                ((1, 1), 2, {}), ((1, 4), 2, {"pads": (0, 3, 0, 0)}), ((3, 3), 3, {}))):
            x = (1, count, rows_of_x, max(columns, kernel[1]) if "pads" not in attributes else columns)
            yield windows(x, (count, 1, *kernel), number + kind, groups=count, **attributes)


class Fenced(Firmware):
    """Kernels on an emulated board whose operands lie between fences."""

    def harness(self, compiler: Compiler, flags: list[str]) -> list[str]:
        return []

    def linked(self) -> list[str]:
        return ["-I", str(firmware.port()), f"-DPLACES={firmware.BOARDS[self.target.name].other}u",
                str(firmware.port() / "start.c"), str(HERE / "fenced.c"),
                *firmware.link_flags(self.target, {"stack": 16 << 10})]

    def bytes_of(self, job: Job) -> list[int]:
        """Of each operand of a call, and of the memory that it works in."""
        spec = job.bound.spec
        return [self._size(job, spec.shared), self._size(job, spec.scratch), *(
            self._size(job, parameter.size) * DTYPES[parameter.dtype].bytes
            for parameter in (*spec.inputs, *spec.outputs))]

    def failures(self, places: int) -> list[str]:
        """Runs all jobs, with operands at so many more places; what differs, or dies."""
        found, left = [], [(job, self._encode(job, places)) for job in self.jobs]
        while left and len(found) < 20:
            count, size = 0, 0
            while count < len(left) and size + len(left[count][1]) <= JOBS_BYTES:
                size += len(left[count][1])
                count += 1
            output, errors = self.answer(b"".join(blob for _, blob in left[:count]))
            for done in range(count):
                job = left[done][0]
                type_ = job.output_types[0]
                elements = self._size(job, job.bound.spec.outputs[0].size)
                if len(output) < 4 + elements * type_.itemsize:
                    found.append(f"{job.title}: died: {errors[-200:]}")
                    break
                status = int(np.frombuffer(output, np.int32, 1)[0])
                flat = np.frombuffer(output, np.dtype(type_.dtype), elements, 4)
                output = output[4 + elements * type_.itemsize:]
                text = f"status {status}" if status else _difference(flat, type_, job.expected[0], job)
                if text:
                    found.append(f"{job.title}: {text}")
            left = left[done + 1:]
        return found

    def _encode(self, job: Job, places: int) -> bytes:
        spec = job.bound.spec
        assert len(spec.outputs) == 1
        # What the compiler packs lies as the container has it; others as their elements have to.
        alignments = [16 if operand.pack else array.itemsize
                      for operand, array in zip(job.bound.inputs, job.inputs, strict=True)]
        behind = [*alignments, job.output_types[0].itemsize, places]
        return super()._encode(job, 3) + np.array(behind, np.int32).tobytes()


#: Kernels in C that no header of a microcontroller has a part in.
PORTABLE = ("dot", "plain", "panel")


def jobs(cases, target: str, optimize: str, turn: int = 0) -> list[Job]:
    """optimize: "speed" or "shared-size". turn: which kinds have which epilogue."""
    return [job for number, (of_case, kind, case) in enumerate(cases)
            for job in jobs_of(kind, case, number, TARGETS[target], optimize, TAILS[(of_case + turn) % len(TAILS)],
                               PORTABLE)
            if job.bound.spec.template != "integer_depthwise/depthwise"]


def program(made: list[Job], target: str, folder: Path, *flags: str) -> Fenced:
    try:
        compiler, emulator = find_compiler(TARGETS[target]), find_emulator(TARGETS[target])
    except MissingTool as missing:
        pytest.skip(str(missing))
    return Fenced(TARGETS[target], made, folder, compiler, [*flags, *firmware.FLAGS, *TARGETS[target].cflags],
                  [*emulator])


@pytest.mark.slow
@pytest.mark.parametrize("target", BARE)
def test_fences_are_there(target: str, tmp_path: Path):
    made = program(jobs([rows(3, 1, 1, 0)], target, "shared-size"), target, tmp_path, "-O2")
    for probe, faults in ((-1, True), (-2, True), (-3, TARGETS[target].isa.name == "cortex_m0")):
        # One input of eight bytes that have to be aligned for words; before its fence, and behind one.
        head = [probe, 0, 1, 0, 0, 0, 1, 3, 8, 0, 0, 8, 0]
        output, errors = made.answer(np.array(head, np.int32).tobytes())
        assert ("fault" in errors, len(output)) == (faults, 0 if faults else 4), (probe, errors)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m0plus", "cortex-m4", "cortex-m55", "riscv32"])
def test_a_few(target: str, tmp_path: Path):
    some = [*of_rows((1, 3, 5), (8, 13), (6,), (0, 2)), *of_windows((5,), (6,)), *of_channels((7,), (5,))]
    made = program(jobs(some[::3], target, "speed") + jobs(some, target, "shared-size"), target, tmp_path, "-O2")
    assert len(made.index) > 20
    assert not made.failures(3)


EVERY = bool(os.environ.get("MEGCC_ALL_FENCES"))
#: Targets with the same instructions have the same kernels.
ALIKE = {isa: [name for name in BARE if TARGETS[name].isa.name == isa]
         for isa in dict.fromkeys(TARGETS[name].isa.name for name in BARE)}


def failures_of_all(made: list[Job], isa: str, folder: Path, *flags: str) -> list[str]:
    """Of each target of the level, with operands at every alignment."""
    return [f"{target}: {text}" for target in ALIKE[isa]
            for text in program(made, target, folder / target, *flags).failures(15)]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not EVERY, reason="with MEGCC_ALL_FENCES only")
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("isa", ALIKE)
def test_every_tile(isa: str, part: int, tmp_path: Path):
    """With extents that are arguments: one kernel for many."""
    depths = range(1 + part, 41, 8)
    every = [*of_rows(range(1, 10), depths, range(1, 21), (0,)), *of_rows(range(1, 10), depths, range(1, 21, 3)),
             *of_windows(depths, range(1, 21), part), *of_channels(depths, range(1, 10), part)]
    made = jobs(every, ALIKE[isa][0], "shared-size", part)
    print(len(every), "cases", len(made), "calls", *ALIKE[isa])
    found = failures_of_all(made, isa, tmp_path, ("-O2", "-Os", "-O3")[part % 3])
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not EVERY, reason="with MEGCC_ALL_FENCES only")
@pytest.mark.parametrize("isa", ALIKE)
def test_every_tile_of_known_extents(isa: str, tmp_path: Path):
    """With extents that the compiler knows: a kernel for each, other numbers of channels in turn."""
    some = [rows(height, depth, 1 + (7 * depth + height) % 20, depth + height)
            for height, depth in product(range(1, 10), range(1, 41))]
    for depth in range(1, 41):
        some += [*of_windows((depth,), (1 + 7 * depth % 20,), depth), *of_channels((depth,), (1 + depth % 9,), depth)]
    made = jobs(some, ALIKE[isa][0], "speed")
    print(len(some), "cases", len(made), "calls", *ALIKE[isa])
    found = failures_of_all(made, isa, tmp_path, "-O2")
    assert not found, "\n".join(found)
