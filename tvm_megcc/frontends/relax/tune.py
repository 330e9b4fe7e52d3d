# SPDX-License-Identifier: Apache-2.0
"""Tunes partitioned Relax modules: times candidate kernels of the regions and stores the times as their attributes."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import tvm

from ...compiler import context_of
from ...ir.graph import Graph, network_bytes
from ...ir.shapes import with_symbols
from ...passes import before_layouts
from ...runtime import tuner
from ...runtime.candidates import calls_of
from ...target import Target
from ...tuning_log import TuningLog
from .importer import import_region, region_bucket
from .regions import digest_of, is_ours

#: Attribute of a region: the rows of the tuning log for its calls, as text.
LOG = "megcc_log"


def tune_regions(mod: tvm.IRModule, target: Target, optimize: str, trials: int | None, log: str | Path | None,
                 runner) -> tvm.IRModule:
    """Measures the candidates that `log` lacks, and stores the rows that each region needs as its attribute.

    trials: the largest number of candidates for each call; None for all. runner: where to measure; None for this
    machine.
    """
    with tempfile.TemporaryDirectory(prefix="megcc-tune-") as folder:
        path = Path(log) if log is not None else Path(folder) / "tune.jsonl"
        graphs = {id(graph): graph for graph in _graphs(mod).values()}
        tuner.tune(list(graphs.values()), target, path, optimize=optimize, trials=trials, runner=runner,
                   progress=tuner.progress_bar(), weights=sum(map(network_bytes, graphs.values())))
        return with_log(mod, TuningLog.read(path), target, optimize)


def with_log(mod: tvm.IRModule, log: TuningLog, target: Target, optimize: str) -> tvm.IRModule:
    """Stores the log's rows for a region's calls as its attribute, so that a later build does not need the log."""
    functions = dict(mod.functions.items())
    for var, graph in _graphs(mod).items():
        functions[var] = functions[var].with_attr(LOG, _rows(graph, log, target, optimize).text())
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _graphs(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, Graph]:
    """Returns the regions as graphs, with symbols replaced by their likely values. Regions that differ only in bounds
    are compiled as one model, so they share one graph."""
    regions_by_digest: dict[str, list[tvm.ir.GlobalVar]] = {}
    for var, function in mod.functions.items():
        if is_ours(function):
            regions_by_digest.setdefault(digest_of(function, {}), []).append(var)
    graphs = {}
    for equal_regions in regions_by_digest.values():
        all_values = (region_bucket(mod[var]).representative for var in equal_regions)
        likely = max(all_values, key=lambda values: math.prod(values.values()))
        graph = with_symbols(import_region(mod[equal_regions[0]], equal_regions[0].name_hint), likely)
        graphs.update(dict.fromkeys(equal_regions, graph))
    return graphs


def _rows(graph: Graph, log: TuningLog, target: Target, optimize: str) -> TuningLog:
    """Returns the rows of the log for the calls of a graph."""
    context = context_of(graph, target, optimize=optimize)
    calls = {call.text for call in calls_of(before_layouts(graph, context), context)}
    return TuningLog(row for row in log.rows.values()
                     if (row.target, row.optimize) == (target.name, optimize) and row.call in calls)


def log_of(function) -> TuningLog | None:
    """Returns the tuning log that a region carries."""
    if function.attrs is None or LOG not in function.attrs:
        return None
    return TuningLog.parse(str(function.attrs[LOG]), f"attribute {LOG}")
