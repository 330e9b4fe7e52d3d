# SPDX-License-Identifier: Apache-2.0
"""Times each operator on shapes of real models, ours and ONNX Runtime's or LiteRT's, and writes docs/operator-speed.md.

    python benchmarks/operators.py FILE_OR_FOLDER … [--shapes 5] [--rounds 9] [--only Conv,SOFTMAX]
    python benchmarks/operators.py          # only writes the page again, from benchmarks/results/operators.jsonl

Every operator of the files becomes a model of its own, with its attributes, shapes and weights (benchmarks/nodes.py).
Of each operator and dtype up to five are taken, from the smallest to the largest. Both engines run in turns in one
process on one thread, a burst of each in a round, under a real-time class if that is allowed. Cases that are in the
results already are not measured again: delete their lines first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

import numpy as np

import tvm_megcc
from tvm_megcc.tools.bench.cpu import cpu_name
from tvm_megcc.tools.bench.peers import burst, undisturbed
from tvm_megcc.tools.run import seeded

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "operators.jsonl", ROOT / "docs" / "operator-speed.md"
#: Seconds of a burst, and of a case that hangs.
BURST, PATIENCE = 0.015, 240
#: The largest error against the peer's results that a timed case may have, relative to the largest magnitude; of
#: integers, in steps.
CLOSE, STEPS = 1e-2, 2
#: Operators that are used most: none of them should be slower than the peer's.
MOST_USED = 60
WORDS = """\
# Operators beside other engines

Operators of {models} real models, each extracted with its attributes, shapes and weights as a model of its own, beside
ONNX Runtime (ONNX) and LiteRT (TFLite): {machine}, one thread, batch 1. Up to five shapes of each operator and dtype
are measured, from the smallest to the largest. *Speed* is the peer's time divided by ours: the geometric mean over all
shapes, and the minimum with its time and shapes. A layer alone also pays for changing the layout of its operands to
that of its kernel; in a network it does not. The second core was busy with other programs.

Where LiteRT is faster by more than a tenth:

* FILL and TILE with a size that is an operand: LiteRT keeps the memory of the last run, ours decides it in every run.
* QUANTIZE of floats: ours divides exactly and rounds ties away from zero, as TFLite's reference does; XNNPACK
  multiplies by the reciprocal and rounds ties to even.
* SOFTMAX of bytes: ours has the bits of TFLite's reference, whose reciprocal takes three steps of Newton's method.
* TANH: the error of ours is at most 2 ULP, that of LiteRT's is 4.7 (at a million points of [-10, 10]).
* SQRT and LOG: ours is the correctly rounded root, and a logarithm within 1.5 ULP.
* DEPTHWISE_CONV_2D of one channel and rows of three pixels: each row is copied with its padding.
* HARD_SWISH, RELU and others that do little but read and write memory: between 0.7 and 1.0 from run to run. LiteRT's
  arrays begin at cache lines, and copying to them is not timed; ours are the caller's.

This command writes the page:

    python benchmarks/operators.py MODELS

"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE_OR_FOLDER", help=".onnx and .tflite files")
    parser.add_argument("--shapes", type=int, default=5, help="of each operator and dtype, at most")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", metavar="NAMES", help="operators, by comma")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    args = parser.parse_args(arguments)
    if args.files:
        measure_all(args)
    PAGE.write_text(page([json.loads(line) for line in RESULTS.read_text().splitlines()]))
    return 0


def measure_all(args: argparse.Namespace) -> None:
    """Compiles the cases that were not measured yet, measures them one by one, and adds a line for each."""
    from nodes import cases_of

    files = [file for given in args.files for file in (
        [given] if given.is_file() else sorted([*given.rglob("*.onnx"), *given.rglob("*.tflite")]))]
    cases = cases_of(files, args.shapes, lambda text: print(text, file=sys.stderr))
    only = set(filter(None, args.only.split(",")))
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    if not only:  # cases of other files, or that are cut out in another way by now
        digests = {case.digest for case in cases}
        rows = [row for row in rows if row["digest"] in digests]
    known = {row["digest"] for row in rows}
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted = [case for case in cases if case.digest not in known and (not only or case.operator in only)]
    print(f"{len(files)} files, {len(cases)} cases, {len(wanted)} to measure", file=sys.stderr)
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="megcc-operators-") as scratch:
        jobs = [(case, Path(scratch) / case.digest) for case in wanted]
        with fork.Pool(args.jobs, maxtasksperchild=50) as pool:
            refused = dict(zip([case.digest for case in wanted], pool.imap(compiled, jobs), strict=True))
        processor = min(os.sched_getaffinity(0))
        for number, (case, folder) in enumerate(jobs):
            row = {"digest": case.digest, "operator": case.operator, "dtype": case.dtype, "shapes": case.signature,
                   "models": sorted(case.models), "peer": "litert" if case.suffix == ".tflite" else "onnxruntime"}
            row |= {"machine": cpu_name()} | ({"refused": refused[case.digest]} if refused[case.digest] else isolated(
                fork, case, folder, args.rounds, processor))
            print(f"{number + 1}/{len(jobs)} {case.operator} {row.get('speed', row)}", file=sys.stderr)
            with open(RESULTS, "a") as out:
                out.write(json.dumps(row) + "\n")


def compiled(job: tuple) -> str:
    """Compiles and builds a case. Returns why that is not possible, or nothing."""
    case, folder = job
    file = folder.with_suffix(case.suffix)
    file.write_bytes(case.file)
    try:
        tvm_megcc.load(tvm_megcc.compile(file, name="one").save(folder))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def isolated(fork, case, folder: Path, rounds: int, processor: int) -> dict:
    """Measures a case in a process of its own, which may crash or hang."""
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: theirs.send(measured(case, folder, rounds, processor)))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(PATIENCE) else {"error": f"more than {PATIENCE} seconds"}
    except EOFError:
        return {"error": "a crash"}
    finally:
        child.kill()
        child.join()


def measured(case, folder: Path, rounds: int, processor: int) -> dict:
    """Times of an inference in seconds, and the speed beside the peer: medians over the rounds."""
    os.sched_setaffinity(0, {processor})
    try:
        session = tvm_megcc.load(folder)
        inputs = seeded(session.inputs)
        wanted, peer = (litert if case.suffix == ".tflite" else onnx_runtime)(case.file, inputs)
        found = list(session.run(inputs).values())
        if difference := differ(found, wanted):
            return {"error": difference}
        runs: Mapping[str, Callable[[], object]] = {"ours": session.bind(inputs), "theirs": peer}
        seconds: dict[str, list[float]] = defaultdict(list)
        with undisturbed():
            for _ in range(rounds):
                for name, run in runs.items():
                    seconds[name].append(statistics.median(burst(run, BURST)))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    ratios = [theirs / ours for ours, theirs in zip(seconds["ours"], seconds["theirs"], strict=True)]
    return {"ours": statistics.median(seconds["ours"]), "theirs": statistics.median(seconds["theirs"]),
            "speed": statistics.median(ratios)}


def onnx_runtime(file: bytes, inputs: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], Callable[[], object]]:
    """Returns the results of ONNX Runtime, and a function that computes them again in place."""
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    results = session.run(None, dict(inputs))
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return results, lambda: session.run_with_iobinding(binding)


def litert(file: bytes, inputs: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], Callable[[], object]]:
    """Returns the results of LiteRT, with XNNPACK as it comes, and a function that computes them again."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(model_content=file, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()], interpreter.invoke


def differ(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> str:
    """Says how results differ by more than what rounding explains, or nothing: what is wrong is not timed."""
    for ours, theirs in zip(found, wanted, strict=True):
        if not isinstance(theirs, np.ndarray) or ours.shape != theirs.shape:
            return "results of other shapes"
        if not theirs.size or theirs.dtype.kind not in "fiu":
            continue
        left, right = ours.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(left) & np.isfinite(right)
        error = float(np.abs(left - right)[finite].max(initial=0))
        if error > (STEPS if theirs.dtype.kind in "iu" else CLOSE * float(np.abs(right[finite]).max(initial=1e-6))):
            return f"results that differ by {error:.2g}"
    return ""


def page(rows: Sequence[Mapping]) -> str:
    """Returns the page: a row for each operator and dtype, the slowest first."""
    groups: dict[tuple[str, str, str], list[Mapping]] = defaultdict(list)
    for row in rows:
        groups[row["operator"], row["dtype"], row["peer"]].append(row)
    timed = {key: [row for row in group if "speed" in row] for key, group in groups.items()}
    models = {key: {name for row in group for name in row["models"]} for key, group in groups.items()}
    often = set(sorted(groups, key=lambda key: len(models[key]), reverse=True)[:MOST_USED])
    speeds = [row["speed"] for group in timed.values() for row in group]
    machines = ", ".join(sorted({row["machine"] for row in rows}))
    lines = [WORDS.format(models=len(set().union(*models.values())), machine=machines),
             f"{len(speeds)} cases of {len(groups)} operators and dtypes: geometric mean {geometric_mean(speeds):.2f}, "
             f"{sum(speed >= 1 for speed in speeds)} at least as fast as the peer. Operators in bold are among the "
             f"{MOST_USED} that most models use.\n\n",
             "| operator | dtype | peer | shapes | speed | lowest | ours, theirs, µs "
             "| shapes and attributes of the lowest |\n"
             "|---|---|---|--:|--:|--:|--:|---|\n"]
    for key, group in sorted(timed.items(), key=lambda item: min([row["speed"] for row in item[1]], default=99)):
        if group:
            least = min(group, key=lambda row: row["speed"])
            name = f"**{key[0]}**" if key in often else key[0]
            lines.append(f"| {name} | {key[1]} | {key[2]} | {len(group)} "
                         f"| {geometric_mean([row['speed'] for row in group]):.2f} | {least['speed']:.2f} "
                         f"| {1e6 * least['ours']:.1f}, {1e6 * least['theirs']:.1f} | `{least['shapes'][:120]}` |\n")
    lines.append("\nNot timed:\n\n| operator | dtype | why |\n|---|---|---|\n")
    lines += [f"| {row['operator']} | {row['dtype']} | {(row.get('refused') or row['error'])[:160]} |\n"
              for row in rows if "speed" not in row]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
