# SPDX-License-Identifier: Apache-2.0
"""Compares ONNX and TFLite files compiled inside TVM with the same files compiled by `tvm_megcc.compile`.

    python benchmarks/tvm_regions.py MODELS/resnet8/model.onnx … [--calls 200] [--target x86-64-v4]

A row for each file that TVM's importer takes: regions, share of the multiply-accumulates, whether both have the same
kernels, whether both give the same bits, and the time of a call of TVM's virtual machine over that of a run of the
session: the median of pairs that take turns, so that a busy machine slows down both. Inputs are those of
`reference.npz` beside the file, for TFLite of `reference_tflite.npz` where that is there. After the row come the
kernels that only one of both has, and what stays with TVM.

With `--calls 0` nothing is compiled by a C compiler, and there are no bits and no times.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import tvm_megcc
from tvm_megcc.compiler import compile_graph
from tvm_megcc.frontends.relax import is_ours, partition_for_megcc, report
from tvm_megcc.frontends.relax.files import load
from tvm_megcc.frontends.relax.importer import import_region
from tvm_megcc.frontends.tvm_versions import name_of
from tvm_megcc.target import native, parse_targets


def kernels(artifact) -> Counter:
    """How often each kernel is called. The order of the operands of its sums and products does not count."""
    names = (call["kernel"] for call in artifact.manifest["programs"][0]["calls"])
    return Counter(re.sub(r"_[0-9a-f]{4,6}(?=_)", "", name).replace("add_to", "add") for name in names)


def seconds(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def row(path: Path, calls: int, target: str, folder: Path) -> str:
    """A line of the table, and one for each difference.

    Raises:
        Exception: whatever TVM's importer raises for a file that it does not take.
    """
    mod, inputs = imported(path)
    partitioned = partition_for_megcc(mod, target=f"megcc-{target}")
    found = report(partitioned)
    shapes = ";".join(f"{name}=({','.join(map(str, array.shape))})" for name, array in inputs.items())
    alone = tvm_megcc.compile(path, target, input_shapes=shapes, name="alone")
    inside = Counter()
    for region in filter(is_ours, partitioned.functions.values()):
        inside += kernels(compile_graph(import_region(region, "region"), parse_targets(target), name="region"))
    more, less = inside - kernels(alone), kernels(alone) - inside
    cells = [path.parent.name, len(found.regions), f"{100 * found.share:.1f} %",
             "the same" if not more and not less else
             f"{less.total()} of {kernels(alone).total()} differ, {inside.total()} inside"]
    if calls:
        cells += measured(partitioned, alone.save(folder / path.parent.name), inputs, target, calls)
    lines = [f"| {' | '.join(map(str, cells))} |"]
    lines += [f"    {sign}{count} {name}"
              for sign, names in (("+", more), ("-", less)) for name, count in names.items()]
    lines += [f"    {label}: {reason}" for label, reasons in found.reasons.items() for reason in reasons]
    return "\n".join(lines)


def imported(path: Path):
    """(module that TVM's importer makes of the file, {input: array} in the order of its parameters)."""
    reference = path.parent / "reference_tflite.npz"
    stored = np.load(reference if path.suffix == ".tflite" and reference.exists() else path.parent / "reference.npz")
    inputs = {key[3:]: stored[key] for key in stored.files if key.startswith("in:")}
    if path.suffix == ".tflite":
        mod = load(path)
        names = [name_of(parameter) for parameter in mod["main"].params]
        return mod, inputs if len(inputs) == 1 else {name: inputs[name] for name in names}
    proto = onnx.load(path)
    mod = from_onnx(proto, shape_dict={name: list(array.shape) for name, array in inputs.items()})
    return mod, {value.name: inputs[value.name] for value in proto.graph.input if value.name in inputs}


def measured(partitioned, alone: Path, inputs, target: str, calls: int) -> list[str]:
    """Whether bits are the same, and the median of times inside TVM over times alone."""
    session = tvm_megcc.load(alone)
    machine = relax.VirtualMachine(tvm.compile(partitioned, target=f"megcc-{target}"), tvm.cpu())
    tensors = [tvm.runtime.tensor(array) for array in inputs.values()]
    given = machine["main"](*tensors)
    arrays = [given.numpy()] if hasattr(given, "numpy") else [tensor.numpy() for tensor in given]
    same = all(np.array_equal(ours, theirs, equal_nan=True) for ours, theirs in
               zip(arrays, session.run(inputs).values(), strict=True))
    run = machine["main"]
    pairs = [seconds(lambda: run(*tensors)) / seconds(lambda: session.run(inputs)) for _ in range(calls)]
    return ["the same" if same else "differ", f"{statistics.median(pairs):.3f}"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--calls", type=int, default=200, help="pairs of calls; 0: kernels only")
    parser.add_argument("--target", default="native")
    args = parser.parse_args(arguments)
    target = native().name if args.target == "native" else args.target
    measured = ["bits", "time of TVM's VM / of a session"] if args.calls else []
    titles = ["model", "regions", "MACs", "kernels", *measured]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in args.models:
            try:
                print(row(path, args.calls, target, Path(folder)), flush=True)
            except Exception as error:  # TVM's importer raises many kinds
                message = str(error).strip().splitlines()[-1]
                print(f"| {path.parent.name} | {type(error).__name__} {'| ' * (len(titles) - 1)}")
                print(f"    {message}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
