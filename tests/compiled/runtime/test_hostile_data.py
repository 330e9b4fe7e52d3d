# SPDX-License-Identifier: Apache-2.0
"""Tensor data is hostile: indices off their axis fail the call, extreme numbers give the defined result.

All under sanitizers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.ops.base import OPERATORS, Case
from tvm_megcc.target import TARGETS

from ...kernels.kernel_harness import Program, jobs_of
from ...kernels.test_kernels import toolchain

FAILED = 0x41
EXTREME_INDICES = (-(2**31), 2**31 - 1, -6, 5, 1 << 20)


def indexed_cases():
    """(kind, case, operand that holds indices, its elements to spoil): every operator that reads where a tensor
    says."""
    ends = (0, -1)
    for kind in ("gather", "gather_elements", "gather_nd", "reverse_sequence", "max_unpool", "resample"):
        yield kind, OPERATORS[kind].cases[0], 1, ends
    for case in OPERATORS["resize"].cases:
        yield "resize", case, 1, ends
    for case in OPERATORS["resize_bilinear"].cases[4:6]:
        for table in (1, 2, 4, 5):
            yield "resize_bilinear", case, table, ends
    yield "roi_align", OPERATORS["roi_align"].cases[0], 2, ends
    yield "roi_max_pool", OPERATORS["roi_max_pool"].cases[0], 1, (0,)


@pytest.mark.slow
@pytest.mark.parametrize("optimize", [pytest.param("speed", marks=pytest.mark.slow), "size"])
def test_indices_off_their_axis_fail_the_call(optimize: str, tmp_path):
    compiler, flags, runner = toolchain("x86-64-v3")
    jobs = []
    for kind, case, position, places in indexed_cases():
        for job in jobs_of(kind, case, 0, TARGETS["x86-64-v3"], optimize):
            for place in places:
                for index in EXTREME_INDICES:
                    (parameter,) = (n for n, operand in enumerate(job.bound.inputs) if operand.index == position)
                    table = job.inputs[parameter].copy()
                    extent = max(job.bound.op.attrs.get("axis", 0), 8)
                    table.flat[place] = index if abs(index) > extent else index * 100
                    hostile = list(job.inputs)
                    hostile[parameter] = table
                    jobs.append(type(job)(job.title, job.bound, hostile, job.output_types, job.expected, np.inf))
    failures = Program(jobs, tmp_path, compiler, flags, runner).run()
    statuses = [text for text in failures if text.endswith(f"status {FAILED}")]
    assert len(statuses) == len(jobs), "\n".join(failures[:5])


@pytest.mark.parametrize("name", ["c", "x86-64-v3"])
def test_sequence_lengths_off_the_input_fail_the_call(name: str, tmp_path):
    compiler, flags, runner = toolchain(name)
    jobs = []
    for kind in ("lstm", "gru", "rnn"):
        case = next(case for case in OPERATORS[kind].cases if 2 in case.values)
        steps = case.inputs[0][0][0]
        for job in jobs_of(kind, case, 0, TARGETS[name], "size"):
            (parameter,) = (n for n, operand in enumerate(job.bound.inputs) if operand.index == 2)
            for place in (0, -1):
                for length in (-1, steps + 1, -(2**31), 2**31 - 1):
                    hostile = [array.copy() for array in job.inputs]
                    hostile[parameter].flat[place] = length
                    jobs.append(type(job)(job.title, job.bound, hostile, job.output_types, job.expected, np.inf))
    failures = Program(jobs, tmp_path, compiler, flags, runner).run()
    assert len([text for text in failures if text.endswith(f"status {FAILED}")]) == len(jobs) > 0, failures[:5]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_lists_of_weights_end_where_they_end(name: str, tmp_path):
    """A container's: lists beyond all entries fail the call, entries beyond a run are read at its end."""
    compiler, flags, runner = toolchain(name)
    listed = [job for index in (6, 11) for job in jobs_of("conv2d_integer", OPERATORS["conv2d_integer"].cases[index],
                                                          index, TARGETS[name], "speed")
              if "pmaddubsw" in job.bound.spec.symbol]
    assert listed

    def spoiled(job, operand: str, place, number: int):
        names = [each.name for each in job.bound.inputs]
        hostile = [array.copy() for array in job.inputs]
        hostile[names.index(operand)].flat[place] = number
        return type(job)(job.title, job.bound, hostile, job.output_types, job.expected, np.inf)
    jobs = [spoiled(job, "lists", place, number) for job in listed for place in (0, 1, 3, -1)
            for number in (-1, 10**6, 2**31 - 1, -(2**31))]
    failures = Program(jobs, tmp_path, compiler, flags, runner).run()
    assert len([text for text in failures if text.endswith(f"status {FAILED}")]) == len(jobs), failures[:5]
    jobs = [spoiled(job, "moves", slice(None), 255) for job in listed]
    failures = Program(jobs, tmp_path, compiler, flags, runner).run()
    assert not [text for text in failures if "status" in text or "died" in text], failures[:5]


LEAST, MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
INTEGERS = np.array([LEAST, MOST, LEAST, 0, 7, -7, -1, 1], np.int32)
DIVISORS = np.array([-1, -1, 0, 0, -2, 2, LEAST, MOST], np.int32)
FLOATS = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 2147483648.0], np.float32)


def extreme_cases():
    pair = (((8,), "int32"), ((8,), "int32"))
    for kind in ("add", "sub", "mul", "div", "mod", "fmod", "min", "max"):
        yield kind, Case(pair, values={0: INTEGERS, 1: DIVISORS})
    for kind in ("neg", "abs", "sign", "bitwise_not"):
        yield kind, Case(pair[:1], values={0: INTEGERS})
    for kind in ("shift_left", "shift_right"):
        yield kind, Case((((4,), "uint32"), ((4,), "uint32")),
                         values={0: np.array([1, 2**31, 5, 7]), 1: np.array([31, 31, 0, 3])})
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "float64"):
        yield "cast", Case((((8,), "float32"),), {"dtype": dtype}, values={0: FLOATS})
        yield "cast", Case((((8,), "int32"),), {"dtype": dtype}, values={0: INTEGERS})
    for mode, dtype in (("max", "int32"), ("sum", "int32"), ("prod", "int32")):
        yield f"reduce_{mode}", Case((((2, 4), dtype),), {"axes": (1,), "keepdims": True},
                                     values={0: INTEGERS.reshape(2, 4)})
    yield "roi_max_pool", Case((((1, 5, 6, 7), "float32"), ((8, 5), "float32")), {"size": (2, 3), "scale": 0.5},
                               values={1: np.stack([np.zeros(8), *(np.roll(FLOATS, i) for i in range(4))], 1)})
    yield "quantize_linear", Case((((8,), "float32"), ((), "float32"), ((), "int8")),
                                  {"axis": 0, "block": 0, "dtype": "int8"},
                                  values={0: FLOATS, 1: np.array(0.5), 2: np.array(3)})


def check_defined_results(name: str, cases: Iterable[tuple[str, Case]], folder: Path) -> None:
    """Integers and conversions have one result on all targets, that of the reference."""
    compiler, flags, runner = toolchain(name)
    with np.errstate(all="ignore"):
        jobs = [job for kind, case in cases for job in jobs_of(kind, case, 0, TARGETS[name], "size")]
    failures = Program(jobs, folder, compiler, flags, runner).run()
    assert jobs and not failures, "\n".join(failures[:10])


def run_on_extreme_floats(name: str, kinds: Iterable[str], folder: Path) -> None:
    """Kernels of float operands on NaN, infinities and subnormals: any result, no undefined behaviour."""
    compiler, flags, runner = toolchain(name)
    generator = np.random.default_rng(0)
    jobs = []
    for kind in kinds:
        for index, case in enumerate(OPERATORS[kind].cases[:4]):
            for job in jobs_of(kind, case, index, TARGETS[name], "size"):
                hostile = [generator.choice(FLOATS, array.shape).astype(array.dtype)
                           if array.dtype.kind == "f" else array for array in job.inputs]
                jobs.append(type(job)(job.title, job.bound, hostile, job.output_types, job.expected, np.inf))
    failures = Program(jobs, folder, compiler, flags, runner).run()
    assert jobs and not [text for text in failures if "status" in text or "died" in text], "\n".join(failures[:5])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "x86-64-v3", "arm64"])
def test_extreme_numbers_give_the_defined_result(name: str, tmp_path):
    check_defined_results(name, extreme_cases(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "x86-64-v3"])
def test_extreme_floats_run(name: str, tmp_path):
    run_on_extreme_floats(name, (
        "elementwise", "softmax", "log_softmax", "reduce_max", "reduce_log_sum", "arg_max", "resize", "resample", "lrn",
        "max_pool_indices", "grid_sample", "roi_align", "deform_conv", "lstm", "gru", "rnn"), tmp_path)
