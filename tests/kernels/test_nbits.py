# SPDX-License-Identifier: Apache-2.0
"""Products of int8 and weights of 4 to 8 bits in blocks have the bits of their numpy definition on every CPU; so
has the quantisation of activations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ops.base import Case
from tvm_megcc.ops.quantized.int4 import pack_two_per_byte
from tvm_megcc.ops.quantized.nbits import BLOCK, QuantizeBlocks, activation_multiple
from tvm_megcc.target import TARGETS

from .kernel_harness import Program, Tail, jobs_of
from .test_kernels import slow, toolchain

#: Weights, activations: drawn, zeros, the ends of their range, what is beyond it.
VALUES = ("drawn", "zero", "ends", "least", "huge")
#: Bits, block, offsets, and the encodings of GGUF that become these.
KINDS = {(4, 32, False): "Q4_0", (4, 32, True): "Q4_1, Q4_K", (8, 32, False): "Q8_0, IQ4_NL",
         (5, 32, False): "Q5_0", (5, 32, True): "Q5_1, Q5_K", (6, 16, False): "Q6_K", (4, 16, True): "",
         (4, 64, False): "", (8, 128, True): "", (8, 16, False): "", (6, 32, True): "", (5, 64, False): ""}


def activations(shape: tuple[int, ...], values: str) -> np.ndarray:
    random = np.random.default_rng(len(values))
    x = random.standard_normal(shape).astype(np.float32)
    match values:
        case "zero": return x * 0
        case "ends": return np.where(x > 0, np.float32(2), np.float32(-2))
        case "least": return x * np.float32(2.0 ** -100)
        case "huge": return np.where(np.abs(x) > 1.5, np.float32(np.inf), x * np.float32(1e36))
    return x


def product(bits: int, block: int, offset: bool, rows: int, depth: int, columns: int, values: str,
            whole: bool = False) -> Case:
    random = np.random.default_rng(depth * columns)
    numbers, blocks = random.integers(0, 1 << bits, (columns, depth)), -(-depth // block)
    if values in ("zero", "ends", "least"):
        numbers = np.full_like(numbers, {"zero": 1 << bits - 1, "ends": (1 << bits) - 1, "least": 0}[values])
    scale, offsets = (random.standard_normal((columns, blocks)).astype(np.float32) for _ in range(2))
    if rows == 7:
        scale, offsets = (array.astype(np.float16).astype(np.float32) for array in (scale, offsets))
    if depth == 512:  # integers times float16 that 256 elements share
        scale, offsets = (np.repeat(random.standard_normal((columns, 2)).astype(np.float16), blocks // 2, 1).astype(
            np.float32) * random.integers(-128, 128, (columns, blocks)).astype(np.float32) for _ in range(2))
    if rows == 1 and depth == 75:  # offsets of zero points
        offsets = -(random.integers(0, 1 << bits, scale.shape).astype(np.float32) * scale)
    how = Attrs(multiple=activation_multiple(block), part=min(block, BLOCK))
    with np.errstate(all="ignore"):
        q = QuantizeBlocks.compute(how, activations((rows, depth), values))
    given = {**dict(enumerate(q)), 3: pack_two_per_byte(numbers) if bits == 4 else numbers.astype(np.uint8), 4: scale,
             **({5: offsets} if offset else {})}
    if whole:
        given.pop(1)
    return Case(tuple((given[i].shape, given[i].dtype.name) if i in given else None for i in range(6 if offset else 5)),
                {"bits": bits, "block": block, "depth": depth}, (3, 4, 5), given)


#: The portable level alone is quick.
LEVELS = [pytest.param(name, marks=[] if name == "c" else slow(name).marks) for name in (
    "c", "x86-64", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4", "x86-64-v4-vnni", "arm64", "arm64-v82", "arm64-v86",
    "cortex-m4", "cortex-m55", "riscv64", "riscv64-v", "wasm32-simd128")]


def same_bits(jobs, folder: Path, name: str) -> None:
    compiler, flags, runner = toolchain(name)
    program = Program([replace(job, tolerance=0.0) for job in jobs], folder, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])


@pytest.mark.parametrize("name", LEVELS)
def test_products(name: str, tmp_path: Path):
    jobs = []
    for (bits, block, offset), (rows, depth, columns) in ((kind, shape) for kind in KINDS for shape in (
            (1, 96, 33), (1, 75, 9), (7, 131, 21), (5, 512, 18))):
        for index, values in enumerate(VALUES):
            whole = not offset and (index + depth // 32) % 2 == 1
            case = product(bits, block, offset, rows, depth, columns, values, whole)
            jobs += jobs_of("matmul_nbits_int8", case, index, TARGETS[name], "size", Tail())
    assert len(jobs) >= 4 * len(KINDS) * len(VALUES)
    same_bits(jobs, tmp_path, name)


@pytest.mark.slow
def test_products_of_pairs_of_rows(tmp_path: Path):
    """A few of those above, with the instruction that multiplies two rows by two columns."""
    jobs = [job for bits in (4, 8) for shape in ((1, 75, 9), (7, 131, 21))
            for job in jobs_of("matmul_nbits_int8", product(bits, 32, False, *shape, "drawn"), 0, TARGETS["arm64-v86"],
                               "size", Tail())]
    same_bits(jobs, tmp_path, "arm64-v86")


@pytest.mark.parametrize("name", LEVELS)
def test_quantisation(name: str, tmp_path: Path):
    jobs = []
    for part in (16, 32):
        for index, values in enumerate(VALUES):
            for shape in ((1, 96), (3, 131)):
                x = activations(shape, values)
                case = Case(((shape, "float32"),), {"multiple": 32, "part": part}, values={0: x})
                jobs += jobs_of("quantize_blocks", case, index, TARGETS[name], "size")
    same_bits(jobs, tmp_path, name)
