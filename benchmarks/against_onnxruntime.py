# SPDX-License-Identifier: Apache-2.0
"""Latency of compiled models against ONNX Runtime (its optimiser on), one thread, both in turn in one run.

    python benchmarks/against_onnxruntime.py MODEL.onnx [MODEL.onnx ...] [--rounds 9] [-O speed]

Each round times a burst of each engine on one processor, under a real-time class where that is allowed; a ratio is
taken inside one round, the table gives medians over the rounds. Ours is timed through the Python session, copies of
inputs and outputs included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import tvm_megcc
from tvm_megcc.api import parse_shapes

BURST_SECONDS = 0.06


def burst(run: Callable[[], object], count: int) -> float:
    """Median seconds of `count` inferences, after one that is not counted."""
    run()
    times = []
    realtime(True)
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    realtime(False)
    return statistics.median(times)


def realtime(on: bool) -> None:
    """For the time of a burst nothing else gets the processor, if we may ask for that."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO if on else os.SCHED_OTHER, os.sched_param(10 if on else 0))
    except PermissionError:
        pass


def onnxruntime_run(path: Path, inputs: dict[str, np.ndarray]) -> Callable[[], object]:
    """ONNX Runtime on bound buffers. Weights are taken out of the inputs, where old files list them: it could not
    fold them otherwise."""
    model = onnx.load(path)
    weights = {initializer.name for initializer in model.graph.initializer}
    for value in [value for value in model.graph.input if value.name in weights]:
        model.graph.input.remove(value)
    model.ir_version = max(model.ir_version, 4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


def compare(path: Path, args: argparse.Namespace, folder: Path) -> str:
    """One row of the table."""
    artifact = tvm_megcc.compile(path, "native", input_shapes=args.input_shapes, optimize=args.optimize)
    session = tvm_megcc.load(artifact.save(folder / f"{artifact.name}_megcc", force=True))
    generator = np.random.default_rng(0)
    inputs = {port.name: generator.standard_normal(port.shape).astype(port.dtype) for port in session.inputs}
    peer = onnxruntime_run(path, inputs)
    os.sched_setaffinity(0, {args.processor})
    count = max(3, int(BURST_SECONDS / max(burst(peer, 3), 1e-6)))
    rounds = [(burst(lambda: session.run(inputs), count), burst(peer, count)) for _ in range(args.rounds)]
    ratios = [theirs / ours for ours, theirs in rounds]
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    ours, theirs = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
    name = path.parent.name if path.stem == "model" else path.stem
    return (f"{name:32} {ours:9.3f} ms {theirs:10.3f} ms {statistics.median(ratios):9.2f}  "
            f"({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-O", "--optimize", default="speed", choices=("speed", "size"))
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--input-shapes", type=parse_shapes, default={})
    args = parser.parse_args()
    print(f"{'model':32} {'megcc':>12} {'onnxruntime':>13} {'relative speed':>16}")
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            print(compare(path, args, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
