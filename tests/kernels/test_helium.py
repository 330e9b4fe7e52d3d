# SPDX-License-Identifier: Apache-2.0
"""Kernels of Helium behind every epilogue that they have instructions of their own for: on this machine as C, and on
the emulated board."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_megcc.errors import MissingTool
from tvm_megcc.ir.expr import X, arg, call, clip
from tvm_megcc.ops.base import Case
from tvm_megcc.ops.quantized.conv_matmul import _case, _product
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .kernel_harness import Job, Program, Tail, jobs_of
from .test_kernels import Firmware, toolchain

_EACH = (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-19, -2)))
_SAME = (1, 1, 1, 1)
_UNSIGNED = ("uint8", "uint8")
TAILS = {
    "fixed": Tail(clip(call("rescale_down", X, arg(1), arg(2)) - 7, -128, 127), _EACH, "int8"),
    "positive": Tail(clip(call("rescale_down", X, 1518500250, -9) - 128, -128, 127), (), "int8"),
    "shifts of bytes": Tail(clip(call("rescale_down", X, arg(1), arg(2)) + 9, -100, 127),
                            (_EACH[0], ("channel", "int8", (-19, -2))), "int8"),
    "once": Tail(clip(call("rescale_once", X, arg(1), arg(2)) + 5, -90, 127), _EACH, "int8"),
    "once for all": Tail(call("rescale_once", X, 1518500250, -9) + 5, (), "int8"),
    # A sum of two branches, as TFLite has it.
    "sum": Tail(clip(call("rescale_down", (arg(3) + 7) * 2**20, 1623821475, -2)
                     + call("rescale_fixed", clip(call("rescale_down", X, arg(1), arg(2)), 0, 255) * 2**20, 2**30, 0)
                     - 12, -12, 127), (*_EACH, ("full", "int8", (-128, 127))), "int8"),
    "any": Tail(X * 3, (), "int16"),
}
CASES: dict[str, Case] = {
    "windows": _case((2, 3, 9, 11), (18, 3, 3, 3), pads=_SAME, x_zero=-128),
    "whole sixteens": _case((1, 16, 6, 7), (53, 16, 3, 3), pads=_SAME, strides=(2, 1), x_zero=4),
    "apart": _case((1, 8, 7, 9), (6, 4, 2, 3), dilations=(1, 2), pads=(0, 1, 2, 3), groups=2, x_zero=9),
    "strides": _case((1, 20, 5, 6), (9, 20, 1, 1), strides=(2, 2), x_zero=-3),
    "pixels": _case((1, 20, 3, 3), (50, 20, 1, 1), x_zero=5),
    "one window": _case((1, 12, 3, 3), (9, 12, 3, 3), x_zero=7),
    "a pixel": _case((1, 40, 1, 1), (53, 40, 1, 1), x_zero=5),
    "no bias": _case((1, 16, 3, 3), (8, 16, 1, 1), bias=False),
    "rows of 8": _case((2, 8, 5, 9), (8, 1, 3, 3), groups=8, pads=_SAME, x_zero=-128, ends=True),
    "rows without bias": _case((1, 8, 4, 5), (8, 1, 3, 3), groups=8, pads=_SAME, bias=False, ends=True),
    "rows of 1": _case((1, 1, 7, 70), (1, 1, 3, 3), groups=1, pads=(2, 0, 1, 3), x_zero=-1, ends=True),
    "rows of 32": _case((1, 32, 8, 8), (32, 1, 3, 3), groups=32, dilations=(2, 2), x_zero=3, ends=True),
    "nine taps in a row": _case((1, 8, 3, 12), (8, 1, 1, 9), groups=8, pads=(0, 4, 0, 4), x_zero=8, ends=True),
    "nine taps in a column": _case((1, 8, 12, 3), (8, 1, 9, 1), groups=8, pads=(4, 0, 4, 0), x_zero=8, ends=True),
    "nine taps": _case((2, 70, 4, 5), (70, 1, 3, 3), groups=70, pads=_SAME, strides=(2, 2), x_zero=8, ends=True),
    "few channels": _case((2, 5, 4, 5), (5, 1, 3, 3), groups=5, pads=_SAME, x_zero=8, ends=True),
    "fewer bytes than sixteen": _case((1, 3, 1, 2), (3, 1, 3, 3), groups=3, pads=_SAME, x_zero=8, ends=True),
    "two pixels": _case((1, 5, 1, 2), (9, 5, 1, 1), x_zero=8),
    "taps": _case((1, 24, 9, 2), (24, 1, 5, 1), groups=24, pads=(1, 0, 2, 0), x_zero=8, ends=True),
    "uint8": _case((2, 3, 5, 7), (9, 3, 3, 3), pads=_SAME, x_zero=200, w_zero=77, dtypes=_UNSIGNED),
    "uint8, pixels": _case((1, 20, 3, 3), (50, 20, 1, 1), x_zero=5, w_zero=255, dtypes=_UNSIGNED),
    "uint8, strides": _case((1, 20, 5, 6), (9, 20, 1, 1), strides=(2, 2), x_zero=0, w_zero=1, dtypes=_UNSIGNED),
    "uint8, one window": _case((1, 12, 3, 3), (9, 12, 3, 3), x_zero=7, w_zero=128, dtypes=_UNSIGNED),
    "uint8, a pixel": _case((1, 40, 1, 1), (53, 40, 1, 1), x_zero=255, w_zero=3, dtypes=_UNSIGNED),
    "weights of -128": _case((1, 24, 5, 5), (24, 1, 3, 3), groups=24, pads=_SAME, x_zero=8),
}


def jobs() -> list[Job]:
    made = [job for number, case in enumerate(CASES.values()) for tail in TAILS.values()
            for job in jobs_of("conv2d_integer", case, number, TARGETS["cortex-m55"], "speed", tail)]
    made += [job for number, tail in enumerate(TAILS.values())
             for job in jobs_of("matmul_integer", _product((3, 40), (40, 21), 21), number, TARGETS["cortex-m55"],
                                "speed", tail)]
    return [job for job in made if "helium" in job.bound.spec.algorithm]


def test_every_kernel_is_among_them():
    """Names without what they end in: epilogues have their own."""
    names = {job.bound.spec.algorithm.split("_fixed")[0].split("_once")[0] for job in jobs()}
    either = {"", "_single", "_flat", "_single_flat", "_direct"}
    kinds = (*either, "_rows", "_zero_paired", *(f"_unsigned{kind}" for kind in either))
    assert names == {f"helium{kind}" for kind in kinds}


@pytest.mark.parametrize("title", ["nine taps in a row", "nine taps in a column"])
def test_rows_are_for_windows_of_three_rows_and_columns(title: str):
    """helium_rows.c.j2 reads three rows and three columns."""
    made = list(jobs_of("conv2d_integer", CASES[title], 0, TARGETS["cortex-m55"], "speed", TAILS["fixed"]))
    assert made and not any("helium_rows" in job.bound.spec.algorithm for job in made)


@pytest.mark.slow
def test_kernels_as_c(tmp_path: Path):
    """Every fourth: the same functions behind it."""
    compiler, flags, runner = toolchain("cortex-m55")
    failures = Program(jobs()[::4], tmp_path, compiler, flags, runner).run(pieces=2)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.slow
@pytest.mark.long
def test_kernels_on_the_board(tmp_path: Path):
    target = TARGETS["cortex-m55"]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    program = Firmware(target, jobs(), tmp_path, compiler, ["-O2", *target.cflags], [*emulator])
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])
