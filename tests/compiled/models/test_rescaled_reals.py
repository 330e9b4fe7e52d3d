# SPDX-License-Identifier: Apache-2.0
"""Kernels behind epilogues that rescale sums by fused reals, on the targets whose compiler makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_megcc.ir.expr import FUSED_ZERO, X, arg, call, clip
from tvm_megcc.ops.quantized.conv_matmul import _case, _product
from tvm_megcc.target import TARGETS

from ...kernels.kernel_harness import Program, Tail, jobs_of
from ...kernels.test_kernels import slow, toolchain

#: What is added is a whole number around FUSED_ZERO; 0 stays 0.
TAILS = (Tail(call("nearest_fused", X, arg(1) * 0.01, FUSED_ZERO - 3), (("channel", "float32", (0, 1)),), "int8"),
         Tail(clip(call("nearest_fused", X, 0.00437, FUSED_ZERO + 100), 90, 200), (), "uint8"),
         Tail(clip(call("nearest_odd", X, arg(1), arg(2) * 0.001, FUSED_ZERO) + arg(3), -100, 127),
              (("channel", "int32", (-5, 5)), ("channel", "float32", (0, 1)), ("full", "int8", (-9, 9))), "int8"))
CONVOLUTIONS = (_case((2, 3, 9, 11), (18, 3, 3, 3), pads=(1, 1, 1, 1), x_zero=-128),
                _case((1, 37, 8, 8), (37, 1, 3, 3), groups=37, pads=(1, 1, 1, 1), x_zero=3))


@pytest.mark.parametrize("name", [
    slow("x86-64-v3"), slow("x86-64-v4-vnni"),
    *(pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long]) for name in ("x86-64-v4", "x86-64-v3-vnni"))])
def test_kernels(name: str, tmp_path: Path):
    compiler, flags, runner = toolchain(name)
    made = [job for number, case in enumerate(CONVOLUTIONS) for tail in TAILS
            for job in jobs_of("conv2d_integer", case, number, TARGETS[name], "speed", tail)]
    made += [job for tail in TAILS
             for job in jobs_of("matmul_integer", _product((3, 40), (40, 21), 21), 0, TARGETS[name], "speed", tail)]
    fused = [job for job in made if job.bound.spec.epilogue is not None]
    assert len(fused) >= 9
    failures = Program(fused, tmp_path, compiler, flags, runner).run(pieces=2)
    assert not failures, "\n".join(failures[:10])
