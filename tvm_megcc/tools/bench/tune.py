# SPDX-License-Identifier: Apache-2.0
"""`megcc tune`: times candidate kernels of a model on its target, and shows what the times change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...codegen.plan import KernelPlan
from ...compiler import context_of, lower
from ...context import Context
from ...errors import MegccError
from ...frontends.models import import_model
from ...ir.graph import Graph
from ...ir.shapes import with_symbols
from ...kernels.choice import variant_costs
from ...kernels.site import Site
from ...options import CompileOptions
from ...passes.canonicalize.check import checked
from ...passes.canonicalize.preprocess import convert_inputs
from ...runtime.timing import LocalRunner
from ...runtime.tuner import progress_bar
from ...runtime.tuner import tune as tune_graphs
from ...target import Target
from ...tuning_log import TuningLog

__all__ = ["changes", "graph_of", "progress_bar", "runner_of", "text", "tune"]


def graph_of(model: str | Path, options: CompileOptions) -> tuple[str, Graph]:
    """Returns the name and graph of a model. Open shapes get the values that choices of speed are made for: the largest
    of the largest bucket."""
    graph, buckets = import_model(model, options)
    graph = checked(convert_inputs(graph, options.inputs), buckets)
    likely = max((bucket.representative for bucket in buckets), key=lambda values: math.prod(values.values()))
    return Path(model).name, with_symbols(graph, likely)


def tune(models: Sequence[tuple[str, Graph]], targets: Sequence[Target], log: str | Path, *, optimize: str = "speed",
         trials: int | None = None, runner=None, cc: str | None = None, progress=None) -> dict:
    """Tunes imported models (name, graph) for each target and reports; see `runtime.tuner.tune`."""
    report: dict = {"log": str(log), "optimize": optimize, "targets": []}
    for target in targets:
        summary = tune_graphs([graph for _, graph in models], target, log, optimize=optimize, trials=trials,
                              runner=runner, cc=cc, progress=progress)
        known = TuningLog.read(log)
        report["targets"].append({
            "target": str(target), "devices": summary.devices, "calls": summary.calls,
            "candidates": summary.candidates, "known": summary.known, "measured": summary.measured,
            "seconds": summary.seconds,
            "failed": [{"candidate": name, "error": error} for name, error in summary.failed],
            "models": [{"model": name, **changes(graph, target, known, optimize)} for name, graph in models]})
    return report


def changes(graph: Graph, target: Target, log: TuningLog, optimize: str) -> dict:
    """Returns the calls whose kernel or layout the log changes, and the sum of all calls' times before and after."""
    tuned = context_of(graph, target, optimize=optimize, log=log)
    before, after = (lower(graph, context).plan for context in (replace(tuned, times=None), tuned))
    old = {step.op.origin: step.spec.symbol for step in before.steps}
    new = {step.op.origin: step.spec.symbol for step in after.steps}
    changed = [{"origin": origin, "before": old[origin], "after": new[origin]}
               for origin in new if origin in old and old[origin] != new[origin]]
    return {"calls": len(after.steps), "changed": changed, "before_ns": _time(before, tuned),
            "after_ns": _time(after, tuned)}


def _time(plan: KernelPlan, tuned: Context) -> float:
    """Returns the sum of the times of a plan's calls in nanoseconds; 0.0 without a log. Calls that are not in the log
    have an estimated time."""
    if tuned.times is None:
        return 0.0
    nanoseconds = 0.0
    for step in plan.steps:
        site = Site.of(plan.graph, step.op, tuned)
        _, cost = next(variant_costs(site, step.bound.choice.kernel))  # the first is the kernel of the plan
        nanoseconds += cost
    return nanoseconds


def runner_of(rpc: str | None, key: str | None):
    """Returns the runner to measure on: this machine, or the devices with a key at the tracker `rpc` ("host:port").

    Raises:
        MegccError: if one is given without the other; if there is no such device.
    """
    if not rpc and not key:
        return LocalRunner()
    if not (rpc and key):
        raise MegccError("--rpc HOST:PORT says where the tracker is and --key KEY which devices: give both")
    from ...runtime.remote import RpcRunner

    return RpcRunner(rpc, key)


def text(report: dict) -> str:
    lines = []
    for row in report["targets"]:
        devices = f" on {', '.join(row['devices'])}" if row["devices"] else ""
        lines.append(f"{row['target']}: {row['calls']} calls, {row['candidates']} candidates; {row['known']} known "
                     f"before, {row['measured']} measured{devices} in {row['seconds']:.1f} s")
        lines += [f"  left out: {item['candidate']}: {item['error']}" for item in row["failed"]]
        for model in row["models"]:
            lines.append(f"  {model['model']}: {len(model['changed'])} of {model['calls']} calls get another kernel; "
                         f"all take {model['before_ns'] / 1e6:.4f} ms before, {model['after_ns'] / 1e6:.4f} ms after")
            lines += [f"    {item['origin'][:40]}: {item['before']} -> {item['after']}" for item in model["changed"]]
    lines.append(f"compile with --log {report['log']} to use it")
    return "\n".join(lines) + "\n"
