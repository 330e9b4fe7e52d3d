# SPDX-License-Identifier: Apache-2.0
"""Hostile tensor data, continued: scattered writes, conversions of halves and doubles, powers, remainders, sorting.

All under sanitizers, as in test_hostile_data.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tvm_megcc.ops.base import OPERATORS, Case
from tvm_megcc.target import TARGETS

from ...kernels.kernel_harness import Program, jobs_of
from ...kernels.test_kernels import toolchain
from .test_hostile_data import (
    DIVISORS,
    FAILED,
    FLOATS,
    INTEGERS,
    check_defined_results,
    run_on_extreme_floats,
)

#: Position of the operand that says where to write, and what is off every axis.
INDICES = 1
OFF = (-(2**31), 2**31 - 1, -600, 500, 1 << 20)


@pytest.mark.parametrize("optimize", [pytest.param("speed", marks=pytest.mark.slow), "size"])
def test_writes_off_their_axis_fail_the_call(optimize: str, tmp_path):
    """With every element of the indices in turn."""
    compiler, flags, runner = toolchain("x86-64-v3")
    jobs = []
    for kind in ("scatter_elements", "scatter_nd"):
        for number, case in enumerate(OPERATORS[kind].cases[:3]):
            for job in jobs_of(kind, case, number, TARGETS["x86-64-v3"], optimize):
                for place in range(job.inputs[INDICES].size):
                    indices = job.inputs[INDICES].copy()
                    indices.flat[place] = OFF[place % len(OFF)]
                    hostile = [*job.inputs[:INDICES], indices, *job.inputs[INDICES + 1:]]
                    jobs.append(type(job)(job.title, job.bound, hostile, job.output_types, job.expected, np.inf))
    failures = Program(jobs, tmp_path, compiler, flags, runner).run()
    statuses = [text for text in failures if text.endswith(f"status {FAILED}")]
    assert len(statuses) == len(jobs) > 20, "\n".join(failures[:5])


def extreme_cases():
    wide = INTEGERS.astype(np.int64) * 2**20
    yield "pow", Case((((8,), "int64"), ((8,), "int64")), values={0: wide, 1: DIVISORS})
    for kind in ("mod", "fmod"):
        yield kind, Case((((8,), "float32"), ((8,), "float32")), values={0: FLOATS, 1: FLOATS[::-1]})
        yield kind, Case((((8,), "float64"), ((8,), "float64")), values={0: FLOATS * 1e300, 1: FLOATS[::-1]})
    with np.errstate(over="ignore"):
        float16_isa = FLOATS.astype(np.float16)
    for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "bool", "float32"):
        yield "cast", Case((((8,), "float64"),), {"dtype": dtype}, values={0: FLOATS.astype(np.float64) * 10})
        yield "cast", Case((((8,), "float16"),), {"dtype": dtype}, values={0: float16_isa})
    for dtype in ("float32", "float64", "int64"):
        values = wide if dtype == "int64" else FLOATS
        yield "cast", Case((((8,), dtype),), {"dtype": "float16"}, values={0: values})
    for kind in ("reduce_l1", "reduce_sum_square", "reduce_sum"):
        yield kind, Case((((2, 4), "int32"),), {"axes": (1,), "keepdims": True}, values={0: INTEGERS.reshape(2, 4)})
    for kind in ("cumsum", "cumprod"):
        yield kind, Case((((2, 4), "int32"),), {"axis": 1, "exclusive": False, "reverse": False},
                         values={0: INTEGERS.reshape(2, 4)})
    yield "matmul", Case((((1, 8), "int32"), ((8, 1), "int32"), None), {"trans_a": 0, "trans_b": 0},
                         values={0: INTEGERS, 1: DIVISORS})
    yield "top_k", Case((((1, 8), "float32"),), {"axis": 1, "k": 8, "largest": True}, values={0: FLOATS})
    yield "top_k", Case((((1, 8), "int32"),), {"axis": 1, "k": 5, "largest": False}, values={0: INTEGERS})


@pytest.mark.parametrize("name", ["c", *(pytest.param(n, marks=pytest.mark.slow) for n in ("x86-64-v3", "arm64"))])
def test_extreme_numbers_give_the_defined_result(name: str, tmp_path):
    check_defined_results(name, extreme_cases(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "x86-64-v3"])
def test_extreme_floats_run(name: str, tmp_path):
    run_on_extreme_floats(name, (
        "sin", "tan", "asin", "sinh", "acosh", "atanh", "pow", "scatter_elements", "scatter_nd", "determinant",
        "cumprod"), tmp_path)
