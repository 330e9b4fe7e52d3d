# SPDX-License-Identifier: Apache-2.0
"""Sums and products of floats are as near to exact ones as docs/safety.md#replication states."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.kernel_harness import Program, Tail, _operands, jobs_of
from tests.kernels.test_kernels import toolchain
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.types import TensorType, from_layout
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS

#: The unit roundoff of float32.
UNIT = 2.0**-24

#: Operator -> the roundings besides those of the sum: a bias, a division by the number of elements and its reciprocal.
OTHER_ROUNDINGS = {"matmul": 1, "conv2d": 1, "conv3d": 1, "conv2d_transpose": 1, "avg_pool": 2, "global_avg_pool": 2,
                   "reduce_sum": 0, "reduce_l1": 0, "reduce_mean": 2, "cumsum": 0}


def gamma(n: int) -> float:
    return n * UNIT / (1 - n * UNIT)


def terms(kind: str, arrays: list, attrs: Attrs, result: np.ndarray) -> int:
    """The most terms of a sum."""
    if kind == "matmul":
        return arrays[0].shape[-2 if attrs.get("trans_a") else -1] + arrays[0].shape[-1]
    if kind in ("conv2d", "conv3d"):
        return math.prod(arrays[1].shape[1:])
    if kind == "conv2d_transpose":
        return arrays[1].size // arrays[1].shape[1]
    return arrays[0].size if kind in ("avg_pool", "cumsum") else arrays[0].size // max(1, result.size)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", pytest.param("x86-64-v3", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", OTHER_ROUNDINGS)
def test_errors_are_within_the_bound(kind: str, target: str, tmp_path: Path):
    """Every kernel but Winograd's, whose sums have other terms, on every case of an operator in float32."""
    compiler, flags, runner = toolchain(target)
    jobs = [job for index, case in enumerate(OPERATORS[kind].cases)
            if all(spec is None or spec[1] == "float32" for spec in case.inputs)
            for job in jobs_of(kind, case, index, TARGETS[target], "speed", Tail(), without=("winograd",))
            if "winograd" not in job.bound.spec.template]
    program = Program(jobs, tmp_path, compiler, flags, runner)
    compared = 0
    for job, status, flats in program.results(1):
        assert not status, (job.title, status)
        index = int(re.match(rf"{kind}\[(\d+)\]", job.title)[1])
        case, attrs = OPERATORS[kind].cases[index], Attrs(OPERATORS[kind].cases[index].attrs)
        types = [None if spec is None else TensorType(spec[1], tuple(spec[0])) for spec in case.inputs]
        arrays = [None if array is None else array.astype(np.float64)
                  for array in _operands(case, types, np.random.default_rng(index))]
        exact = OPERATORS[kind].compute(attrs, *arrays)[0]
        sizes = OPERATORS[kind].compute(attrs, *(None if array is None else abs(array) for array in arrays))[0]
        error = abs(from_layout(flats[0], job.output_types[0]).astype(np.float64) - exact)
        bound = gamma(terms(kind, arrays, attrs, exact) + OTHER_ROUNDINGS[kind]) * sizes
        assert np.all(error <= bound), (job.title, float((error / np.maximum(bound, 1e-300)).max()))
        compared += 1
    assert compared > 1
