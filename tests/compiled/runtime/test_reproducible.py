# SPDX-License-Identifier: Apache-2.0
"""`--reproducible`: of every operator on floats, all kernels that any CPU may take give the same bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.ir.types import DTYPES, from_layout
from tvm_megcc.ops.base import OPERATORS, Case, f32
from tvm_megcc.target import TARGETS

from ...kernels.kernel_harness import TAILS, Program, Tail, jobs_of, random_operand
from ...kernels.test_kernels import KINDS, toolchain

#: As many lanes as there are, with and without products and sums in one instruction.
HERE = ("c", "x86-64", "x86-64-v3", "x86-64-v4")
EMULATED = ("arm64", "armv7", "riscv64", "wasm32-simd128", "riscv64-v256")
#: Operators whose kernels add up, in each of the ways that there are.
SUMS = ("global_avg_pool", "layer_norm", "reduce_mean", "softmax")
#: Cases of an operator, and what a kernel ends with.
CASES = 5
ENDS = (Tail(), TAILS["f"][1])


def bits(kind: str, target: str, folder: Path, cases: Sequence[Case] = (), ends: Sequence[Tail] = ENDS
         ) -> dict[tuple[int, bool], dict[str, bytes]]:
    """What all kernels of an operator give on a target: by case and whether they end so, by the kernel's title."""
    compiler, flags, runner = toolchain(target)
    jobs = [(number, job)
            for number, case in enumerate(cases or OPERATORS[kind].cases[:CASES]) for tail in ends
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


def convolution(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1) -> Case:
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return Case((f32(*x), f32(*w), f32(w[0])), attrs, (1, 2))


#: Convolutions of every kind of kernel, with extents that are no multiples of anything.
ODD = (
    convolution((1, 3, 7, 5), (5, 3, 3, 3), pads=(1, 1, 1, 1)),
    convolution((2, 17, 5, 9), (19, 17, 1, 1), strides=(1, 2)),
    convolution((1, 35, 6, 7), (33, 35, 3, 3), strides=(2, 1), dilations=(1, 2), pads=(1, 0, 1, 2)),
    convolution((1, 12, 5, 5), (6, 4, 3, 3), groups=3, pads=(0, 1, 1, 0)),
    convolution((1, 21, 9, 7), (21, 1, 5, 3), groups=21, pads=(2, 1, 2, 1)),
    convolution((1, 7, 6, 11), (14, 1, 3, 3), groups=7, strides=(2, 2)),
    convolution((1, 18, 1, 37), (16, 18, 1, 3), dilations=(1, 4)),
)


def fused(x: np.ndarray, w: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """x * w + sums of float32, rounded once. The product is exact in float64; what is cut off of the sum there decides
    its last bit (rounding to odd), so that the second rounding is as if it were the only one."""
    exact, there = x.astype(np.float64) * w, sums.astype(np.float64)
    total = exact + there
    back = total - exact
    lost = (exact - (total - back)) + (there - back)
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    return np.where((lost != 0) & even, np.nextafter(total, towards), total).astype(np.float32)


def as_written(attrs: dict, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A convolution in the order of docs/reproducible.md: from the bias on, sixteen input channels of each tap, tap by
    tap."""
    (sh, sw), (dh, dw), (top, left, bottom, right) = attrs["strides"], attrs["dilations"], attrs["pads"]
    outputs, inputs, kh, kw = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh, ow = (padded.shape[2] - (kh - 1) * dh - 1) // sh + 1, (padded.shape[3] - (kw - 1) * dw - 1) // sw + 1
    y = np.broadcast_to(b.reshape(-1, 1, 1), (x.shape[0], outputs, oh, ow))
    first = np.arange(outputs) // (outputs // attrs["groups"]) * inputs
    for block, i, j in product(range(0, inputs, 16), range(kh), range(kw)):
        taps = padded[:, :, i * dh:i * dh + (oh - 1) * sh + 1:sh, j * dw:j * dw + (ow - 1) * sw + 1:sw]
        for channel in range(block, min(block + 16, inputs)):
            y = fused(taps[:, first + channel], w[:, channel, i, j].reshape(-1, 1, 1), y)
    return y


@pytest.mark.slow
@pytest.mark.parametrize("target", [
    "c", *(pytest.param(name, marks=pytest.mark.slow) for name in ("x86-64-v3", "x86-64-v4", "arm64")),
    *(pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long])
      for name in ("x86-64", "armv7", "riscv64", "wasm32-simd128", "riscv64-v256", "cortex-m4", "cortex-m55"))])
def test_convolutions_of_odd_shapes_are_the_sums_as_written(target: str, tmp_path: Path):
    """The numbers do not depend on how lanes, tiles and tasks lie, and numpy gives them too."""
    wrong, seen = [], set()
    for (number, _), kernels in bits("conv2d", target, tmp_path, ODD, ENDS[:1]).items():
        case, generator = ODD[number], np.random.default_rng(number)
        x, w, b = (random_operand(*operand, generator) for operand in case.inputs)
        expected = bytes_of(as_written(case.attrs, x, w, b))
        wrong += [title for title, found in kernels.items() if found != expected]
        seen.add(number)
    assert not wrong and seen == set(range(len(ODD))), "\n".join(["other bits than numpy:", *wrong])
