# SPDX-License-Identifier: Apache-2.0
"""`megcc bench`: times a model, in total and by operator. The clock is read where the model runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...runtime.device import DeviceSession
from ...runtime.wasm.engine import WebSession
from .. import layers
from ..run import asking_for_inputs, inputs_of

#: If no number of runs is given: the seconds to run, and the bounds of the number of runs.
SECONDS, LEAST, MOST = 1.0, 10, 1000
#: The most runs in which each kernel call is timed.
WATCHED = 50


def bench(session: DeviceSession | WebSession, inputs: str | None = None, repeat: int | None = None, seed: int = 0,
          shapes: Mapping[str, Sequence[int] | int] = MappingProxyType({})) -> dict:
    """Times a session and reports.

    Args:
        inputs: .npz file with arrays by tensor name; else seeded random numbers.
        repeat: timed runs; None: what takes about a second.
        shapes: name of an input whose shape may change -> its shape, or name of a dimension -> its size; for seeded
            inputs.

    Returns:
        With `calls` in the order of execution, and `kinds`, as `layers` makes them.
    """
    feeds = inputs_of(session.inputs, inputs, seed, shapes)
    with asking_for_inputs(session.inputs, inputs):
        if repeat is None:
            once = statistics.median(session.times(feeds, runs=3, watched=0).seconds)
            repeat = int(min(max(SECONDS / max(once, 1e-9), LEAST), MOST))
        runs = max(repeat, 1)
        times = session.times(feeds, runs=runs, watched=min(runs, WATCHED))
    calls = layers.layers(session.calls, times.calls)
    median = statistics.median(times.seconds)
    fast, slow = quantile(times.seconds, 0.1), quantile(times.seconds, 0.9)
    operations = 2 * sum(call["macs"] for call in session.calls)  # a product and a sum for each multiply-add
    return {"model": session.name, "target": str(session.target), "where": session.where,
            "threads": next(p["workers"] for p in session.programs if p["target"] == str(session.target)),
            "seconds": {"median": median, "min": min(times.seconds), "max": max(times.seconds),
                        "spread": (slow - fast) / median if median else 0.0, "runs": len(times.seconds)},
            "gflops": 1e-9 * operations / median if median else None, "calls": calls, "kinds": layers.kinds(calls)}


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the value below which this part of the values lies, from 0 (the least) to 1 (the greatest)."""
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


def text(report: dict) -> str:
    seconds = report["seconds"]
    lines = [f"{report['model']} on {report['target']}, {report['where']}, {report['threads']} "
             f"thread{'s' * (report['threads'] != 1)}",
             f"  median {seconds['median'] * 1e3:.4f} ms, min {seconds['min'] * 1e3:.4f} ms, "
             f"spread {seconds['spread']:.1%} (10th to 90th percentile) of {seconds['runs']} runs"
             + (f", {report['gflops']:.2f} GFLOP/s" if report["gflops"] else "")]
    return "\n".join([*lines, *layers.text(report["calls"])]) + "\n"
