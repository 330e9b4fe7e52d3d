# SPDX-License-Identifier: Apache-2.0
"""Measures how much slower the kernels that the cost model chooses are than the fastest candidates.

    python benchmarks/models.py MODELS
    python benchmarks/cost_model.py MODELS/mobilenet_v2.onnx … [--target native] [--processor 1] [--json FILE]

Times the kernels of each distinct convolution and matrix product of the models on this machine, in all layouts, with
weights as far away as those of the whole model put them (docs/tuning.md), and compares the fastest with the one of
least cost, and with what the compiled network has. The network's may be slower than the fastest for a reason: relayouts
would come on top. Register tiles that only tuning takes are left out. "time" is the sum over the layers, over that of
the fastest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tvm_megcc.compiler import context_of, lower
from tvm_megcc.frontends.models import import_model
from tvm_megcc.ir.graph import network_bytes
from tvm_megcc.kernels.site import Site
from tvm_megcc.ops.base import operator
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.candidates import Call, Candidate, calls_of
from tvm_megcc.runtime.timing import LocalRunner, library
from tvm_megcc.target import Target, parse_targets
from tvm_megcc.tuning_log import call_text, layouts_text

KINDS = ("conv2d", "matmul")
#: A kernel counts as fast as the fastest up to this ratio of times.
NEAR = 1.05
#: Candidates that cost so many times the least are far from the choice, whatever the cost model's mistakes.
HOPELESS = 8.0


@dataclass
class Layer:
    """A distinct call of a model. chosen: the kernel and layouts that the compiled network has; times: microseconds."""

    model: str
    call: Call
    chosen: Candidate
    times: dict[int, float] = field(default_factory=dict)


def layers_of(path: Path, target: Target, shapes: str) -> list[Layer]:
    """The distinct calls of a model that have a choice; those of static shapes."""
    graph, _ = import_model(path, input_shapes=shapes or None)
    context = context_of(graph, target)
    plan = lower(graph, context).plan
    chosen = {}
    for step in plan.steps:
        site = Site.of(plan.graph, step.op, context)
        chosen[call_text(step.op, site.types, site.outputs, site.constants)] = (
            step.bound.choice.kernel.label, layouts_text(site.types, site.outputs))
    layers = []
    for call in calls_of(before_layouts(graph, context), context):
        if call.op.kind in KINDS and call.text in chosen:
            call.candidates = [c for c in call.candidates if not c.kernel.tile]
            found = [c for c in call.candidates if (c.kernel.label, c.layouts) == chosen[call.text]]
            if found:
                layers.append(Layer(path.stem, call, found[0]))
    return layers


def measure(layers: Sequence[Layer], target: Target, rounds: int, processor: int | None) -> None:
    """Fills in the least time of each candidate over some rounds, in which candidates of a layer follow each other."""
    values = _values(layers)
    runner = LocalRunner()
    runner.require(target)
    read = network_bytes(layers[0].call.graph)
    for number, layer in enumerate(layers, start=1):
        call = layer.call
        least = min(c.cost for c in call.candidates)
        tried = [c for c in call.candidates if c.cost <= HOPELESS * least or c is layer.chosen]
        specs = list(dict.fromkeys(c.bound.spec for c in tried))
        with library(specs, target, runner.program) as made, runner.session(made, 0) as session, undisturbed(processor):
            for _ in range(rounds):
                for c in tried:
                    if c.bound.spec in made.index:
                        sample = session.measure(call.measurement(c, values, read), made.index[c.bound.spec])
                        if sample.error:
                            raise SystemExit(f"{c.bound.spec.symbol}: {sample.error}")
                        layer.times[id(c)] = min(layer.times.get(id(c), math.inf), min(sample.ns) / 1e3)
        print(f"\r{layer.model}: {number} of {len(layers)} layers", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _values(layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """Operands and results of a model's layers, on seeded inputs."""
    graph, generator, feeds = layers[0].call.graph, np.random.default_rng(0), {}
    for name in graph.inputs:
        type_ = graph.types[name]
        dtype = np.dtype(type_.dtype)
        feeds[name] = (generator.standard_normal(type_.shape) if dtype.kind == "f"
                       else generator.integers(0, 2, type_.shape)).astype(dtype)
    needed = {name for layer in layers for name in (*layer.call.op.inputs, *layer.call.op.outputs) if name}
    return reference.run(graph, feeds, sorted(needed - set(graph.constants)))


@contextmanager
def undisturbed(processor: int | None) -> Iterator[None]:
    """Everything started inside runs on one processor, before all ordinary processes."""
    if processor is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, before)


def rows_of(layers: Sequence[Layer]) -> list[dict]:
    rows = []
    for layer in layers:
        graph, op = layer.call.graph, layer.call.op
        timed = [c for c in layer.call.candidates if id(c) in layer.times]
        fastest = min(timed, key=lambda c: layer.times[id(c)])
        macs = int(operator(op.kind).macs(op.attrs, graph.input_types(op)[:len(op.own_inputs)], graph.output_types(op)))
        row = {"model": layer.model, "call": layer.call.text, "macs": macs, "fastest": _name(fastest),
               "fastest_us": layer.times[id(fastest)]}
        for key, taken in (("guess", min(timed, key=lambda c: c.cost)), ("network", layer.chosen)):
            row.update({key: _name(taken), f"{key}_us": layer.times[id(taken)],
                        f"{key}_ratio": layer.times[id(taken)] / layer.times[id(fastest)]})
        rows.append({**row, "candidates": [{"kernel": c.kernel.label, "layouts": c.layouts, "cost": c.cost,
                                            "us": layer.times.get(id(c))} for c in layer.call.candidates]})
    return rows


def _name(candidate: Candidate) -> str:
    return f"{candidate.kernel.label} ({candidate.layouts})"


def summary(rows: Sequence[dict], worst: int) -> str:
    lines = [f"{'':<22}        {'least cost':>24}{'in the network':>24}",
             f"{'model':<22}{'layers':>8}{'within 5 %':>12}{'time':>12}{'within 5 %':>12}{'time':>12}"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    for name in [*models, "all"] if len(models) > 1 else models:
        own = [row for row in rows if name in (row["model"], "all")]
        cells = [f"{name:<22}{len(own):>8}"]
        for key in ("guess", "network"):
            near = sum(row[f"{key}_ratio"] <= NEAR for row in own) / len(own)
            time = sum(row[f"{key}_us"] for row in own) / sum(row["fastest_us"] for row in own)
            cells.append(f"{near:>12.0%}{time:>12.3f}")
        lines.append("".join(cells))
    far = sorted((row for row in rows if row["guess_ratio"] > NEAR),
                 key=lambda row: row["fastest_us"] - row["guess_us"])
    lines += [f"{row['guess_ratio']:5.2f}  {row['guess_us']:9.1f} us  {row['guess']} instead of {row['fastest']}  "
              f"{row['model']}: {row['call']}" for row in far[:worst]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="native")
    parser.add_argument("--shapes", default="", help="of inputs with open extents, as megcc --input-shapes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processor", type=int, help="measure on this processor only, before ordinary processes")
    parser.add_argument("--worst", type=int, default=25, help="how many layers to name")
    parser.add_argument("--json", type=Path, help="everything, for a closer look")
    args = parser.parse_args()
    target = parse_targets(args.target)[0]
    rows = []
    for path in args.models:
        layers = layers_of(path, target, args.shapes)
        if layers:
            measure(layers, target, args.rounds, args.processor)
            rows += rows_of(layers)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))
    print(summary(rows, args.worst))


if __name__ == "__main__":
    main()
