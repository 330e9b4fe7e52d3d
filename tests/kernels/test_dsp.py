# SPDX-License-Identifier: Apache-2.0
"""Kernels of Arm's DSP extension whose weights are joined, and others, up to the greatest sums that they are for: on
this machine as C, and on the emulated board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.errors import MissingTool
from tvm_megcc.ir.expr import X, arg, call, clip
from tvm_megcc.kernels.dsp.triples import pack_joined
from tvm_megcc.ops.base import Case
from tvm_megcc.ops.quantized.conv_matmul import _case, _product
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .kernel_harness import Job, Program, Tail, jobs_of
from .test_kernels import Firmware, toolchain

_EACH = (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-19, -2)))
TAILS = (Tail(clip(call("rescale_down", X, arg(1), arg(2)) - 7, -128, 127), _EACH, "int8"),
         Tail(clip(call("rescale_once", X, arg(1), arg(2)) + 5, 0, 255), _EACH, "uint8"),
         Tail())
_SAME = (1, 1, 1, 1)


def _full(channels: int, bias: int, dtype: str = "int8", zero: int = -128) -> Case:
    """A sum of so many products is as large as it can be, both ways."""
    x, w = np.full((1, channels, 2, 2), 127, np.int64), np.full((3, channels, 1, 1), 127, np.int64)
    x[..., 1], w[1] = -128, -127
    w[2, ::2] = -127
    values = {0: x + (128 if dtype == "uint8" else 0), 1: w, 2: np.array([bias, -bias, bias])}
    plain = _case(x.shape, w.shape, x_zero=zero, dtypes=(dtype, "int8"))
    return replace(plain, values=values)


#: The second number says whether weights are joined.
CASES: tuple[tuple[str, Case, bool], ...] = (
    ("conv2d_integer", _full(259, 2**23 - 1 - 259 * 127 * 255), True),
    ("conv2d_integer", _full(259, 2**23 - 259 * 127 * 255), False),
    ("conv2d_integer", _full(259, 2**23 - 1 - 259 * 127 * 255, "uint8", 0), True),
    ("conv2d_integer", _full(516, 2**23 - 1 - 516 * 127 * 128, "int8", 0), True),
    ("conv2d_integer", _case((1, 21, 1, 1), (9, 21, 1, 1), x_zero=-128, ends=True), True),
    ("conv2d_integer", _case((1, 21, 1, 2), (9, 21, 1, 1), x_zero=255, ends=True, dtypes=("uint8", "int8")), True),
    ("conv2d_integer", _case((2, 5, 5, 7), (7, 5, 3, 3), x_zero=-3, pads=_SAME, ends=True), True),
    ("conv2d_integer", _case((1, 8, 5, 7), (6, 4, 3, 3), pads=_SAME, groups=2, x_zero=9, bias=False, ends=True), True),
    ("conv2d_integer", _case((1, 4, 6, 7), (5, 4, 1, 1), strides=(2, 2), x_zero=128, dtypes=("uint8", "int8"),
                             ends=True), True),
    ("conv2d_integer", _case((1, 12, 5, 7), (5, 12, 3, 3), x_zero=7, dilations=(1, 2), pads=_SAME), False),
    ("matmul_integer", _product((5, 40), (40, 21), 21, a_zero=4, b_zero=128, dtypes=("uint8", "uint8")), False),
)


def jobs() -> list[Job]:
    made = []
    for number, (kind, case, is_joined) in enumerate(CASES):
        some = [job for tail in TAILS for job in jobs_of(kind, case, number, TARGETS["cortex-m4"], "speed", tail)
                if job.bound.spec.template == "dsp/triples"]
        assert some
        assert {"_joined" in job.bound.spec.algorithm for job in some} == {is_joined}, number
        made += some
    return made


def test_what_joined_weights_are():
    """Each int16 is one weight, turned about, times 256, and the other."""
    weights = np.arange(-127, 129).reshape(2, 128, 1, 1).clip(-127, 127).astype(np.int8)
    pairs = pack_joined(weights, True, 0, 1, 1, 2, 1, 4).view("<i2").astype(np.int64).reshape(-1, 2, 2)
    first, second = (np.swapaxes(pairs[..., half], 0, 1).reshape(2, -1) for half in (0, 1))
    low = [((part + 128) & 255) - 128 for part in (first, second)]
    fours = weights.reshape(2, -1, 4).astype(np.int64)
    np.testing.assert_array_equal(np.stack([-(first - low[0]) // 256, low[0], (second - low[1]) // 256, -low[1]], 2),
                                  fours)


@pytest.mark.slow
def test_kernels_as_c(tmp_path: Path):
    compiler, flags, runner = toolchain("cortex-m4")
    failures = Program(jobs(), tmp_path, compiler, flags, runner).run(pieces=2)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.slow
def test_kernels_on_the_board(tmp_path: Path):
    target = TARGETS["cortex-m4"]
    try:
        compiler, emulator = find_compiler(target), find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    program = Firmware(target, jobs(), tmp_path, compiler, ["-O2", *target.cflags], [*emulator])
    failures = program.run(pieces=1)
    assert not failures, "\n".join(failures[:10])
