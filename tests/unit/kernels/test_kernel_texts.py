# SPDX-License-Identifier: Apache-2.0
"""A few generated kernels as texts under tests/golden, so that a change of the generator shows what it changes; and
scratch that is reserved only if the text uses it."""

from __future__ import annotations

import math

import pytest

from tests.graphs import assert_golden
from tests.kernels.kernel_harness import jobs_of
from tvm_megcc.codegen.c_source.render import render_kernel
from tvm_megcc.ir.expr import Const
from tvm_megcc.kernels.elementwise.loops import integer_expression
from tvm_megcc.ops.base import Case, f32, operator
from tvm_megcc.target import TARGETS
from tvm_megcc.version import VERSION


def conv(channels: int, groups: int, kernel: int) -> Case:
    weights = ((channels, channels // groups, kernel, kernel), "float32")
    pads = (kernel // 2,) * 4
    return Case((((1, channels, 6, 9), "float32"), weights, ((channels,), "float32")),
                {"strides": (1, 1), "pads": pads, "dilations": (1, 1), "groups": groups}, constant=(1, 2))


MATMUL = Case((((5, 24), "float32"), ((24, 40), "float32")), {"trans_a": 0, "trans_b": 0}, constant=(1,))

#: Name of the text -> operator, case, kernel, target, what is optimised for, and which of the harness's epilogues.
TEXTS = {
    "depthwise_c": ("conv2d", conv(16, 16, 3), "depthwise", "c", "size", 0),
    "matmul_c": ("matmul", MATMUL, "packed", "c", "speed", 1),
    "direct_neon": ("conv2d", conv(16, 1, 3), "direct", "arm64", "speed", 2),
    "depthwise_neon": ("conv2d", conv(16, 16, 3), "depthwise", "arm64", "speed", 1),
    "direct_avx512": ("conv2d", conv(16, 1, 3), "direct", "x86-64-v4", "speed", 2),
    "matmul_avx512": ("matmul", MATMUL, "packed", "x86-64-v4", "size", 2),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str):
    kind, case, kernel, target, optimize, epilogue = TEXTS[name]
    specs = [job.bound.spec for job in jobs_of(kind, case, epilogue, TARGETS[target], optimize)
             if job.bound.choice.kernel.label == kernel]
    assert_golden(f"kernel_{name}", render_kernel(specs[-1]).replace(VERSION, "VERSION"))


@pytest.mark.parametrize(("target", "optimize"), [("x86-64-v3", "speed"), ("x86-64-v3", "size"), ("c", "speed")])
def test_linear_resize_has_scratch_only_if_it_blends_rows_first(target: str, optimize: str):
    case = next(case for case in operator("resize").cases if case.inputs[0] == f32(1, 2, 3, 21))
    for job in jobs_of("resize", case, 0, TARGETS[target], optimize):
        spec = job.bound.spec
        assert (spec.scratch != 0) == ("blended" in render_kernel(spec)), spec.symbol


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.5, 2.0**31])
def test_a_constant_that_is_no_int32_has_no_integer_expression(value):
    assert integer_expression(Const(value)) is None
