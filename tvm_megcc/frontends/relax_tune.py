# SPDX-License-Identifier: Apache-2.0
"""Tuning of partitioned Relax modules: kernels of the regions timed, the times kept as attributes of the regions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tvm

from ..codegen.tuning_log import TuningLog
from ..ir.graph import Graph
from ..ir.shapes import graph_symbols
from ..runtime import tuner
from ..runtime.candidates import before_layouts, calls_of
from ..target import Target
from .relax_import import import_region
from .relax_regions import is_ours

#: Attribute of a region: the rows of a tuning log that speak of its calls, as text.
LOG = "megcc_log"


def tune_regions(mod: tvm.IRModule, target: Target, optimize: str, trials: int | None, log: str | Path | None,
                 runner) -> tvm.IRModule:
    """Measures what `log` does not have, and gives the regions what they need of it."""
    with tempfile.TemporaryDirectory(prefix="megcc-tune-") as folder:
        path = Path(log) if log is not None else Path(folder) / "tune.jsonl"
        tuner.tune(list(_graphs(mod).values()), target, path, optimize=optimize, trials=trials, runner=runner,
                   progress=tuner.progress_bar())
        return with_log(mod, TuningLog.read(path), target, optimize)


def with_log(mod: tvm.IRModule, log: TuningLog, target: Target, optimize: str) -> tvm.IRModule:
    """The module whose regions carry the log's rows for their calls: all that a later build has to know of it."""
    functions = dict(mod.functions.items())
    for var, graph in _graphs(mod).items():
        functions[var] = functions[var].with_attr(LOG, _rows(graph, log, target, optimize).text())
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _graphs(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, Graph]:
    """The regions whose shapes are known; there is nothing definite to measure in others."""
    graphs = {var: import_region(function, var.name_hint)
              for var, function in mod.functions.items() if is_ours(function)}
    return {var: graph for var, graph in graphs.items() if not graph_symbols(graph)}


def _rows(graph: Graph, log: TuningLog, target: Target, optimize: str) -> TuningLog:
    calls = {call.text for call in calls_of(before_layouts(graph, target), target, optimize)}
    return TuningLog(row for row in log.rows.values()
                     if (row.target, row.optimize) == (target.name, optimize) and row.call in calls)


def log_of(function) -> TuningLog | None:
    """What a region carries."""
    if function.attrs is None or LOG not in function.attrs:
        return None
    return TuningLog.parse(str(function.attrs[LOG]), f"attribute {LOG}")
