# SPDX-License-Identifier: Apache-2.0
"""`--reproducible`: of every operator on floats, all kernels that any CPU may take give the same bits."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.ir.types import DTYPES, from_layout
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS

from .kernel_harness import TAILS, Program, Tail, jobs_of
from .test_kernels import KINDS, toolchain

#: As many lanes as there are, with and without products and sums in one instruction.
HERE = ("c", "x86-64", "x86-64-v3", "x86-64-v4")
EMULATED = ("arm64", "armv7", "riscv64", "wasm32-simd128", "riscv64-v256")
#: Operators whose kernels add up, in each of the ways that there are.
SUMS = ("global_avg_pool", "layer_norm", "reduce_mean", "softmax")
#: Cases of an operator, and what a kernel ends with.
CASES = 5
ENDS = (Tail(), TAILS["f"][1])


def bits(kind: str, target: str, folder: Path) -> dict[tuple[int, bool], dict[str, bytes]]:
    """What all kernels of an operator give on a target: by case and whether they end so, by the kernel's title."""
    compiler, flags, runner = toolchain(target)
    jobs = [(number, job)
            for number, case in enumerate(OPERATORS[kind].cases[:CASES]) for tail in ENDS
            for job in jobs_of(kind, case, number, TARGETS[target], "reproducible", tail)]
    jobs = [row for row in jobs if any(DTYPES[type_.dtype].short.startswith("f") for type_ in row[1].output_types)]
    found: dict[tuple[int, bool], dict[str, bytes]] = defaultdict(dict)
    if not jobs:
        return found
    results = Program([job for _, job in jobs], folder / target, compiler, flags, runner).results()
    for (number, _), (job, status, flats) in zip(jobs, results, strict=True):
        assert not status, f"{job.title}: {status}"
        logical = (from_layout(flat, type_) if flat.size == type_.stored else flat
                   for flat, type_ in zip(flats, job.output_types, strict=True))
        found[number, job.bound.spec.epilogue is None][job.title] = b"".join(map(bytes_of, logical))
    return found


def bytes_of(array: np.ndarray) -> bytes:
    """Those of an array, of NaN always the same: CPUs differ there."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.tobytes()


@pytest.mark.parametrize(("kind", "targets"), [
    *(pytest.param(kind, HERE, marks=[pytest.mark.slow] + [pytest.mark.long] * (kind not in SUMS), id=kind)
      for kind in KINDS),
    *(pytest.param(kind, ("c", *EMULATED), marks=[pytest.mark.slow, pytest.mark.long], id=f"{kind}-emulated")
      for kind in KINDS)])
def test_all_kernels_of_all_cpus_give_the_same_bits(kind: str, targets: tuple[str, ...], tmp_path: Path):
    together: dict[tuple[int, bool], dict[str, bytes]] = defaultdict(dict)
    for target in targets:
        for case, kernels in bits(kind, target, tmp_path).items():
            together[case].update(kernels)
    if not together:
        pytest.skip(f"{kind} has no results of floats")
    for kernels in together.values():
        first = next(iter(kernels))
        different = [title for title, found in kernels.items() if found != kernels[first]]
        assert not different, "\n".join([f"other bits than {first}:", *different])
