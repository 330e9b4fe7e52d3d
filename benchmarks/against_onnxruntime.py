# SPDX-License-Identifier: Apache-2.0
"""Latency of compiled models against ONNX Runtime, one thread, both in turn in one run.

    python benchmarks/against_onnxruntime.py MODEL.onnx [MODEL.onnx ...] [--rounds 9] [--optimize speed]

Each round times a burst of each engine; a ratio is taken inside one round, the table gives medians over the rounds.
Both engines are pinned to one processor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

import tvm_megcc
from tvm_megcc.api import parse_shapes
from tvm_megcc.runtime.build import build_runner

BURST_SECONDS = 0.1


class OnnxRuntime:
    """ONNX Runtime with its optimiser on, on bound buffers."""

    def __init__(self, path: Path, inputs: dict[str, np.ndarray]):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        for name, array in inputs.items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)

    def burst(self, count: int) -> float:
        """Median seconds of `count` inferences, after one that is not counted."""
        times = []
        for _ in range(count + 1):
            start = time.perf_counter()
            self.session.run_with_iobinding(self.binding)
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])


class Compiled:
    """The generated folder's own runner, a process a burst."""

    def __init__(self, path: Path, shapes: dict, optimize: str, folder: Path):
        artifact = tvm_megcc.compile(path, "native", input_shapes=shapes, optimize=optimize)
        self.inputs = artifact.manifest["inputs"]
        self.folder = artifact.save(folder / artifact.name)
        self.runner = build_runner(self.folder, "native")
        self.model = self.folder / f"{artifact.name}.megcc"

    def burst(self, count: int) -> float:
        output = subprocess.run([str(self.runner), "--model", str(self.model), "--repeat", str(count)],
                                check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            if line.startswith("median"):
                return float(line.split()[1]) * 1e-9
        raise RuntimeError(output)


def compare(path: Path, args, folder: Path) -> None:
    ours = Compiled(path, args.input_shapes, args.optimize, folder)
    generator = np.random.default_rng(0)
    inputs = {i["name"]: generator.standard_normal(i["shape"]).astype(i["dtype"]) for i in ours.inputs}
    peer = OnnxRuntime(path, inputs)
    count = max(3, int(BURST_SECONDS / max(peer.burst(3), 1e-6)))
    rounds = [(ours.burst(count), peer.burst(count)) for _ in range(args.rounds)]
    ratios = [theirs / mine for mine, theirs in rounds]
    print(f"{path.parent.name if path.name == 'model.onnx' else path.stem:32} "
          f"{statistics.median(m for m, _ in rounds) * 1e3:9.3f} ms  "
          f"{statistics.median(t for _, t in rounds) * 1e3:9.3f} ms  "
          f"{statistics.median(ratios):6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--optimize", default="speed")
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--input-shapes", type=parse_shapes, default={})
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.processor})
    print(f"{'model':32} {'megcc':>12} {'onnxruntime':>13}  speed of megcc relative to it")
    with tempfile.TemporaryDirectory() as folder:
        for path in args.models:
            compare(path, args, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
