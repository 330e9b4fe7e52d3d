# SPDX-License-Identifier: Apache-2.0
"""The example of TVM's RFC #4118: a speech recogniser whose utterances have any length.

    python benchmarks/tvm_dispatch.py [--way fixed|dispatch|tvm] [--calls 50]

An encoder of two convolutions over time, each with a stride of 2, two blocks of self-attention with a perceptron, and
a product with 32 characters. Ways: `fixed` is compiled for 1,024 frames, and shorter utterances are padded to it;
`dispatch` has a version for each range of lengths; `tvm` is TVM's own build of the symbolic module. Each way has a
process of its own. A row for each length: milliseconds of a call, the median; then the largest resident memory of the
calls beyond that of the built module.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

import tvm_megcc
from tvm_megcc.dispatch import Dispatch, log_dispatcher

LENGTHS, MOST, BANDS, WIDTH, HEADS = (64, 128, 256, 512, 1024), 1024, 80, 144, 4


def weight(*shape: int, seed: list[int] = [0]):  # noqa: B006  (counts)
    seed[0] += 1
    values = np.random.default_rng(seed[0]).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return relax.const(values.astype("float32"))


def recogniser(frames) -> tvm.IRModule:
    """frames: how many, a number or a symbol that is a multiple of 4."""
    builder = relax.BlockBuilder()
    x = relax.Var("sound", relax.TensorType((1, BANDS, frames), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            emit, y = builder.emit, x
            for channels in (BANDS, WIDTH):
                y = emit(op.nn.relu(emit(op.nn.conv1d(y, weight(WIDTH, channels, 3), strides=2, padding=1))))
            y = emit(op.permute_dims(y, [0, 2, 1]))
            for _ in range(2):
                q, k, v = (emit(op.matmul(y, weight(WIDTH, WIDTH))) for _ in range(3))
                scores = emit(op.nn.softmax(emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1]))))))
                y = emit(op.add(y, emit(op.matmul(scores, v))))
                inner = emit(op.nn.gelu(emit(op.matmul(y, weight(WIDTH, 4 * WIDTH)))))
                y = emit(op.add(y, emit(op.matmul(inner, weight(4 * WIDTH, WIDTH)))))
                y = emit(op.nn.layer_norm(y, weight(WIDTH), weight(WIDTH), axes=[-1]))
            result = builder.emit_output(emit(op.nn.softmax(emit(op.matmul(y, weight(WIDTH, 32))))))
        builder.emit_func_output(result)
    return builder.get()


def built(way: str):
    if way == "fixed":
        return tvm_megcc.build(recogniser(MOST))
    mod = recogniser(tvm.tirx.Var("frames", "int64"))
    if way == "tvm":
        return tvm.compile(mod, target="llvm")
    return tvm_megcc.build(Dispatch("main", {"sound": (1, BANDS, None)}, log_dispatcher(2, 64, MOST + 1))(mod))


def measure(way: str, calls: int) -> None:
    machine = relax.VirtualMachine(built(way), tvm.cpu())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: that of the compiler does not count
    before = resident("VmRSS")
    cells = []
    for length in LENGTHS:
        frames = MOST if way == "fixed" else length
        sound = tvm.runtime.tensor(np.random.default_rng(0).standard_normal((1, BANDS, frames)).astype("float32"))
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            machine["main"](sound)
            times.append(time.perf_counter() - begin)
        cells.append(f"{1e3 * statistics.median(times):.2f}")
    print(f"| {way} | {' | '.join(cells)} | {(resident('VmHWM') - before) / 1024:.1f} MB |", flush=True)


def resident(name: str) -> int:
    """A line of /proc/self/status, in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--way", choices=("fixed", "dispatch", "tvm"))
    parser.add_argument("--calls", type=int, default=50)
    args = parser.parse_args(arguments)
    if args.way:
        measure(args.way, args.calls)
        return 0
    print(f"| way | {' | '.join(map(str, LENGTHS))} | memory |\n|---|{'---|' * (len(LENGTHS) + 1)}", flush=True)
    for way in ("fixed", "dispatch", "tvm"):
        subprocess.run([sys.executable, __file__, "--way", way, "--calls", str(args.calls)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
