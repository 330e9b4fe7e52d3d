# SPDX-License-Identifier: Apache-2.0
"""Measures the time of a call from Python, ours and ONNX Runtime's, and writes benchmarks/results/python.md.

    python benchmarks/python_calls.py [MODEL …] [--processor N] [--rounds N]
    python benchmarks/performance.py        # puts it on the page

Besides the models, which have fixed shapes, a network of four neurons and one output is called, which takes hardly more
than the call.
All ways of calling run in turn in one process, a burst of each in a round, under a real-time class if that is allowed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tvm_megcc.runtime.device import local_session
from tvm_megcc.tools.bench.cpu import cpu_name
from tvm_megcc.tools.bench.peers import undisturbed
from tvm_megcc.tools.run import seeded

RESULT = Path(__file__).with_name("results") / "python.md"
BURST = 0.03
WORDS = """\
Microseconds of a call, {machine}, one thread, the median of {rounds} rounds in one run of `benchmarks/python_calls.py`.
*C*: `megcc_session_run` in a loop in C. *bound*: a call of `session.bind(inputs)`; ONNX Runtime with an `IOBinding`.
*dictionary*: `session.run({{name: array}})`; ONNX Runtime's `run(None, {{name: array}})`. In brackets: the time that
Python adds. *3 → 4 → 1* is a network of two dense layers, with 3 inputs, 4 neurons and 1 output.
"""
#: With a load average above 1.
BUSY = "Other programs kept the machine busy ({load:.0f} wanted it): figures are large, ratios tell.\n"



def tiny() -> onnx.ModelProto:
    """3 inputs, 4 neurons, 1 output."""
    generator = np.random.default_rng(0)
    weights = {"w1": (3, 4), "b1": (4,), "w2": (4, 1), "b2": (1,)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
         helper.make_node("Gemm", ["r", "w2", "b2"], ["y"])], "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)
         for name, shape in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def row(path: Path, name: str, rounds: int, scratch: Path) -> list[str]:
    """The cells of a model."""
    folder = tvm_megcc.compile(path, name="model").save(scratch / f"{name}_megcc")
    session, in_c = tvm_megcc.load(folder), local_session(folder)
    inputs = seeded(session.inputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = peer.io_binding()
    for port, array in inputs.items():
        binding.bind_cpu_input(port, array)
    for output in peer.get_outputs():
        binding.bind_output(output.name)
    ways: dict[str, Callable[[], object]] = {
        "bound": session.bind(inputs), "dictionary": lambda: session.run(inputs),
        "ort bound": lambda: peer.run_with_iobinding(binding), "ort dictionary": lambda: peer.run(None, inputs)}
    counts = {way: calibrated(call) for way, call in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ("C", *ways)}
    for _ in range(rounds):
        with undisturbed():
            seconds["C"].append(statistics.median(in_c.times(inputs, counts["bound"], 0).seconds))
            for way, call in ways.items():
                seconds[way].append(burst(call, counts[way]))
    median = {way: 1e6 * statistics.median(times) for way, times in seconds.items()}
    ours = [f"{median[way]:.2f} (+{median[way] - median['C']:.2f})" for way in ("bound", "dictionary")]
    return [name, f"{median['C']:.2f}", *ours, f"{median['ort bound']:.2f}", f"{median['ort dictionary']:.2f}"]


def burst(call: Callable[[], object], count: int) -> float:
    """Seconds of a call, the mean of so many."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def calibrated(call: Callable[[], object]) -> int:
    """Calls that fill a burst."""
    return max(3, int(BURST / min(burst(call, 20) for _ in range(5))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="ONNX files of fixed shapes")
    parser.add_argument("--processor", type=int, help="the one to be bound to (default: the first there is)")
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0)) if args.processor is None else args.processor})
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="megcc-python-") as scratch:
        onnx.save(tiny(), Path(scratch) / "tiny.onnx")
        models = {"3 → 4 → 1": Path(scratch) / "tiny.onnx",
                  **{path.parent.name if path.stem == "model" else path.stem: path for path in args.models}}
        rows = [row(path, name, args.rounds, Path(scratch)) for name, path in models.items()]
    columns = ["network", "C", "bound", "dictionary", "ONNX Runtime, bound", "ONNX Runtime, dictionary"]
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    text = (WORDS.format(machine=cpu_name(), rounds=args.rounds) + (BUSY.format(load=load) if load > 1 else "")
            + f"tvm_megcc {tvm_megcc.__version__}, onnxruntime {onnxruntime.__version__}.\n\n"
            + "".join(f"| {' | '.join(cells)} |\n" for cells in lines))
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
