# SPDX-License-Identifier: Apache-2.0
"""Compares two artifacts of one ONNX file: compiled directly, and from the Relax module of TVM's importer.

    python benchmarks/onnx_or_relax.py MODELS/resnet8/model.onnx … [--turns 60] [--target x86-64-v4]

A row for each file: the calls of kernels, how many of them differ in C code, bytes of the arena and of the weights,
bits of the results, and the time of a run through Relax over that of a run directly. The C code is compared without
comments and names, and the order of the operands of a sum, product, minimum or maximum does not count. The time is the
median of turns of 40 ms, in which both sessions run one after the other, on one thread; where the system allows it,
under its real-time scheduler. Inputs are those of `reference.npz` beside the file, else random numbers. After the row
come the kernels that only one of both has.

`--turns 0` compares the code only; `--all` also times models whose code is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from tvm.relax.frontend.onnx import from_onnx

import tvm_megcc
from tvm_megcc.target import native

#: Seconds that a session runs in a turn.
TURN = 0.04
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
#: Operands whose order does not count: of a sum, a product, a minimum or maximum.
OPERANDS = (re.compile(r"(\b\w+)( [+*] )(\w+\b)(?!\()"), re.compile(r"(\b\w+)(, )(\w+\b)(?=\))"))


def plain(name: str) -> str:
    """The name of a kernel without the digest of its expression, which depends on the order of operands."""
    return re.sub(r"_[0-9a-f]{4,6}(?=_)", "", name).replace("add_to", "add")


def code_of(artifact) -> dict[str, str]:
    """The C code of each kernel, without comments, names and the order of operands."""
    code = {}
    for text in artifact.sources.values():
        body = re.sub(r"\s+", " ", COMMENT.sub("", text))
        for name in sorted(set(re.findall(r"\b(\w+)\(const megcc_call \*", body)), key=len, reverse=True):
            body = body.replace(name, "KERNEL")
            for pattern in OPERANDS:
                body = pattern.sub(lambda match: match[2].join(sorted((match[1], match[3]))), body)
            code[name] = body
    return code


def calls(artifact) -> list[tuple[str, str, str]]:
    """(plain name, type of the result, C code) of each call of a kernel, in their order."""
    code = code_of(artifact)
    return [(plain(call["kernel"]), call["type"], code.get(call["kernel"], ""))
            for call in artifact.manifest["programs"][0]["calls"]]


@contextlib.contextmanager
def realtime() -> Iterator[None]:
    """Runs under the real-time scheduler where the system allows it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except (AttributeError, PermissionError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def seconds(run: Callable[[], object], count: int) -> float:
    """Seconds of a run, after one that is not counted."""
    with realtime():
        run()
        begin = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - begin) / count


def ratios(direct: Callable[[], object], relax: Callable[[], object], turns: int) -> list[float]:
    """Times of `relax` over those of `direct`, which run in turns; every second time in the other order."""
    count = max(1, int(TURN / seconds(direct, 3)))
    found = []
    for turn in range(turns):
        first, second = (direct, relax) if turn % 2 else (relax, direct)
        times = {first: seconds(first, count)}
        times[second] = seconds(second, count)
        found.append(times[relax] / times[direct])
    return found


def inputs_of(path: Path, proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """{input: array}, from `reference.npz` or random; a dimension of no size is 1."""
    reference = path.with_name("reference.npz")
    if reference.exists():
        stored = np.load(reference)
        return {key[3:]: stored[key] for key in stored.files if key.startswith("in:")}
    generator, known = np.random.default_rng(0), {tensor.name for tensor in proto.graph.initializer}
    arrays = {}
    for value in (value for value in proto.graph.input if value.name not in known):
        shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        arrays[value.name] = generator.standard_normal(shape).astype(dtype) if dtype.kind == "f" \
            else generator.integers(0, 2, shape).astype(dtype)
    return arrays


def measured(direct, relax, inputs: dict[str, np.ndarray], folder: Path, turns: int) -> list[str]:
    """Whether bits are the same, and the median of times through Relax over direct ones."""
    sessions = [tvm_megcc.load(artifact.save(folder / name)) for artifact, name in ((direct, "onnx"), (relax, "relax"))]
    ours, theirs = (list(session.run(inputs).values()) for session in sessions)
    same = all(np.array_equal(one, other, equal_nan=True) for one, other in zip(ours, theirs, strict=True))
    bound = [session.bind(inputs) for session in sessions]
    found = ratios(bound[0], bound[1], turns) if turns else []
    return ["the same" if same else "differ", f"{statistics.median(found):.3f}" if found else ""]


def row(path: Path, target: str, turns: int, times_all: bool) -> str:
    """A line of the table, and one for each kernel that only one artifact has.

    Raises:
        Exception: whatever TVM's importer raises for a file that it does not take.
    """
    proto = onnx.load(path)
    inputs = inputs_of(path, proto)
    mod = from_onnx(proto, shape_dict={name: list(array.shape) for name, array in inputs.items()})
    shapes = ";".join(f"{name}=({','.join(map(str, array.shape))})" for name, array in inputs.items())
    direct = tvm_megcc.compile(path, target, input_shapes=shapes, name="network", threads=1)
    relax = tvm_megcc.compile(mod, target, name="network", threads=1)
    ours, theirs = Counter(calls(direct)), Counter(calls(relax))
    less, more = ours - theirs, theirs - ours
    same_order = calls(direct) == calls(relax)
    programs = [artifact.manifest["programs"][0] for artifact in (direct, relax)]
    cells = [path.parent.name if path.stem == "model" else path.stem, str(ours.total()),
             "the same" if same_order else f"{less.total()} and {more.total()} differ" if less or more
             else "the same in another order"]
    for key in ("arena_bytes", "weight_bytes"):
        values = [program[key] for program in programs]
        cells.append(f"{values[0]:,}" if values[0] == values[1] else f"{values[0]:,} and {values[1]:,}")
    with tempfile.TemporaryDirectory() as folder:
        cells += measured(direct, relax, inputs, Path(folder), turns if times_all or not same_order else 0)
    lines = [f"| {' | '.join(cells)} |"]
    lines += [f"    {sign}{count} {name} {type_}"
              for sign, found in (("+", more), ("-", less)) for (name, type_, _), count in found.items()]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=60, help="turns in which both run; 0: no times")
    parser.add_argument("--all", action="store_true", help="also time models whose code is the same")
    parser.add_argument("--target", default="native")
    args = parser.parse_args(arguments)
    target = native().name if args.target == "native" else args.target
    titles = ["model", "calls", "C code", "arena", "weights", "bits", "Relax over ONNX"]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in args.models:
            try:
                print(row(path, target, args.turns, args.all), flush=True)
            except Exception as error:  # TVM's importer raises many kinds
                message = str(error).strip().splitlines()[-1:]
                print(f"| {path.parent.name} {path.stem} | {type(error).__name__}: {message} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
