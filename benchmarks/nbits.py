#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products with weights of 4 and 8 bits in blocks of 32 on activations of int8, beside ONNX Runtime's MatMulNBits with
accuracy_level 4, on one thread.

    benchmarks/nbits.py                         # on an idle machine: the load of `uptime` below 1
    benchmarks/nbits.py --target x86-64-v3      # ours held to AVX2; ONNX Runtime takes what the CPU has

Products of SmolLM2's and of a Llama's shapes, with and without zero points, for one row (a token) and for 64 (a
prompt). Both engines run in turns in this process; times are medians, the ratio the median of the ratios of neighbours.
Results differ by the order of sums.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tvm_megcc
from tests.onnx_models import model, node

BLOCK = 32
#: Columns and depth.
SHAPES = ((576, 576), (1536, 576), (576, 1536), (4096, 1024), (1024, 4096), (49152, 576))


def product(rows: int, columns: int, depth: int, bits: int, zeros: bool) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    blocks = depth // BLOCK
    constants = {"b": random.integers(0, 256, (columns, blocks, BLOCK * bits // 8)).astype(np.uint8),
                 "s": random.uniform(0.01, 0.1, columns * blocks).astype(np.float16).astype(np.float32)}
    if zeros:
        constants["z"] = random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    nbits = node("MatMulNBits", " ".join(["a", *constants]), "y", domain="com.microsoft", K=depth, N=columns, bits=bits,
                 block_size=BLOCK, accuracy_level=4)
    return model([nbits], {"a": [rows, depth]}, {"y": [rows, columns]}, constants)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compared(proto: onnx.ModelProto, target: str, folder: Path, turns: int) -> tuple[float, float, float, float]:
    """Milliseconds of both, theirs over ours, and the largest difference beside the largest result."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ours = tvm_megcc.load(tvm_megcc.compile(proto, target, name="product").save(folder))
    a = np.random.default_rng(1).normal(size=[dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim])
    given = {"a": a.astype(np.float32)}
    bound = ours.bind(given)
    (expected,), found = theirs.run(None, given), ours.run(given)["y"]
    both = theirs.io_binding()
    both.bind_cpu_input("a", given["a"])
    both.bind_output("y")
    times = [(seconds(bound), seconds(lambda: theirs.run_with_iobinding(both))) for _ in range(turns + 5)][5:]
    ours.close()
    return (*(1000 * statistics.median(column) for column in zip(*times, strict=True)),
            statistics.median(their / our for our, their in times),
            float(np.abs(found - expected).max() / np.abs(expected).max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="native")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 64])
    args = parser.parse_args()
    print("rows columns depth bits zeros |  ours ms  ORT ms  ORT/ours  difference", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        for rows in args.rows:
            for columns, depth in SHAPES if rows == 1 else SHAPES[:-1]:
                for bits, zeros in ((4, False), (4, True), (8, False)):
                    number += 1
                    our, their, ratio, far = compared(product(rows, columns, depth, bits, zeros), args.target,
                                                      Path(folder) / str(number), args.turns)
                    print(f"{rows:4} {columns:7} {depth:5} {bits:4} {zeros!s:5} | {our:8.3f} {their:7.3f} {ratio:9.2f} "
                          f"{far:11.1e}", flush=True)


if __name__ == "__main__":
    main()
