# SPDX-License-Identifier: Apache-2.0
"""Times quantised networks and those of ONNX Runtime, OpenVINO and LiteRT on one thread of x86-64 Linux, for
docs/performance.md.

    python benchmarks/integers.py NAME[:SHAPE]=MODEL.onnx[,MODEL.tflite] … [--target x86-64-v3]

SHAPE is that of all inputs where the model leaves it open, such as 1x15. All engines of a row run in turn in this
process, a burst of each in every round under a real-time class; the shortest inference of a burst, and medians of these
over the rounds, count. Each row replaces its line in results/integers.jsonl. `megcc bench --against` does not serve
here, since it refuses engines whose results differ: OpenVINO and LiteRT round in other ways than ONNX says. No engine
has AMX, which we do not use, unless --amx is given: the system refuses its registers to this process. For a target
without AVX-512, OpenVINO is limited to AVX2 (openvino_avx2.py), and the others are left out, since they cannot be
limited.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

import tvm_megcc
from tvm_megcc.runtime.device import local_session
from tvm_megcc.target import TARGETS, native
from tvm_megcc.tools.run import seeded

sys.path.insert(0, str(Path(tvm_megcc.__file__).parent / "tools" / "bench"))
import peers

LINES = Path(__file__).parent / "results" / "integers.jsonl"
#: Seconds of a burst, and bursts of a round of which the shortest counts.
BURST, BURSTS = 0.01, 4
#: Runs so many inferences, and returns the seconds of the shortest.
Timer = Callable[[int], float]
PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "ai-edge-litert"}


def once(run: Callable[[], object]) -> Timer:
    def timed(count: int) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times)
    return timed


def ours(path: Path, target: str, folder: Path, feeds: dict | None) -> tuple[Timer, dict]:
    if not folder.exists():
        shapes = {name: array.shape for name, array in feeds.items()} if feeds else None
        tvm_megcc.compile(path, target, input_shapes=shapes).save(folder)
    session = local_session(folder)
    given = feeds or seeded(session.inputs, 0, {})
    return lambda count: min(session.times(given, count, 0).seconds), given


def onnxruntime(path: Path, feeds: dict) -> Timer:
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    for name, array in feeds.items():
        bound.bind_cpu_input(name, array)
    for result in session.get_outputs():
        bound.bind_output(result.name)
    return once(lambda: session.run_with_iobinding(bound))


def openvino(path: Path, feeds: dict) -> Timer:
    import openvino as ov
    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1})
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    request = core.compile_model(model, "CPU").create_infer_request()
    for name, array in feeds.items():
        request.set_tensor(name, ov.Tensor(array))
    return once(request.infer)


def litert(path: Path, feeds: dict) -> Timer:
    from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), feeds.values(), strict=True):
        interpreter.set_tensor(detail["index"], array.reshape(detail["shape"]))
    return once(interpreter.invoke)


def filled(path: Path, shape: list[int]) -> dict | None:
    """Returns random inputs of a shape if the model leaves extents open, else None."""
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype
    graph, rng = onnx.load(path).graph, np.random.default_rng(0)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [(value.name, value.type.tensor_type) for value in graph.input if value.name not in constants]
    if all(dim.dim_value > 0 for _, kind in inputs for dim in kind.shape.dim):
        return None
    return {name: rng.integers(0, 2, shape).astype(tensor_dtype_to_np_dtype(kind.elem_type)) for name, kind in inputs}


def measured(name: str, paths: list[Path], shape: list[int], target: str, rounds: int, limited: bool,
             folder: Path) -> dict:
    timers: dict[str, Timer] = {}
    files = {path.suffix: path for path in paths}
    onnx_file, tflite_file = files.get(".onnx"), files.get(".tflite")
    if onnx_file:
        timers["megcc"], feeds = ours(onnx_file, target, folder / "onnx", filled(onnx_file, shape))
        for engine in (openvino,) if limited else (onnxruntime, openvino):
            try:
                timers[engine.__name__] = engine(onnx_file, feeds)
            except Exception as reason:  # whatever an engine says of a model that it does not take
                print(f"{name}: {engine.__name__}: {str(reason).splitlines()[0]}", file=sys.stderr)
    if tflite_file:
        timers["megcc, TFLite"], feeds = ours(tflite_file, target, folder / "tflite", None)
        if not limited:
            timers["litert"] = litert(tflite_file, feeds)
    counts = {engine: max(1, int(BURST / max(timer(2), 1e-6))) for engine, timer in timers.items()}
    times = {engine: [] for engine in timers}
    for _ in range(rounds):
        for engine, timer in timers.items():
            with peers.undisturbed():
                times[engine].append(min(timer(counts[engine]) for _ in range(BURSTS)))
    return {"model": name, "target": target, "rounds": rounds,
            "versions": {engine: version(PACKAGES[engine]) for engine in timers if engine in PACKAGES},
            "ms": {engine: round(statistics.median(values) * 1e3, 5) for engine, values in times.items()}}


def refuse_amx() -> None:
    """Lets arch_prctl(ARCH_REQ_XCOMP_PERM), by which every library asks for AMX's registers, fail from now on: a filter
    of four steps, of code, jumps and operand each, which sees the number of a system call and its arguments."""
    load, equal, leave = 0x20, 0x15, 0x06
    arch_prctl, xcomp_perm, allow, not_permitted = 158, 0x1023, 0x7FFF0000, 0x00050001
    steps = ((load, 0, 0, 0), (equal, 0, 3, arch_prctl), (load, 0, 0, 16), (equal, 0, 1, xcomp_perm),
             (leave, 0, 0, not_permitted), (leave, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    set_seccomp, set_no_new_privileges, filter_mode = 22, 38, 2
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(set_no_new_privileges, 1, 0, 0, 0) or prctl(set_seccomp, filter_mode, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the system takes no filter of calls")


def limit_openvino() -> None:
    """Makes `import openvino` give a copy of the package that finds no AVX-512."""
    import openvino_avx2
    folder = Path(tempfile.gettempdir()) / f"openvino-avx2-{version('openvino')}"
    engine = object.__new__(openvino_avx2.Engine)
    engine.folder = folder
    if not (folder / "handler.so").exists():
        folder.mkdir(exist_ok=True)
        engine.convert(folder)
    assert engine.module == "openvino"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME[:SHAPE]=MODEL.onnx[,MODEL.tflite]")
    parser.add_argument("--target", default=native().name, choices=TARGETS)
    parser.add_argument("--folder", type=Path, help="where compiled networks are kept, and found again")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--amx", action="store_true", help="engines may use AMX")
    parser.add_argument("--processor", type=int, default=0)
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.processor})
    if not args.amx:
        refuse_amx()
    limited = "v4" not in args.target
    if limited:
        limit_openvino()
    for given in args.models:
        name, files = given.split("=", 1)
        name, shape = name.split(":") if ":" in name else (name, "1")
        with tempfile.TemporaryDirectory() as scratch:
            folder = (args.folder or Path(scratch)) / f"{name}-{args.target}"
            paths = [Path(file) for file in files.split(",")]
            line = measured(name, paths, [*map(int, shape.split("x"))], args.target, args.rounds, limited, folder)
        print(json.dumps(line), flush=True)
        lines = [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.exists() else []
        key = line["model"], line["target"]
        LINES.write_text("".join(json.dumps(row) + "\n" for row in
                                 [*(row for row in lines if (row["model"], row["target"]) != key), line]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
