# SPDX-License-Identifier: Apache-2.0
"""Tunes partitioned Relax modules: times candidate kernels of the regions and stores the times as their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tvm

from ...ir.graph import Graph
from ...target import Target
from ...tuning_log import TuningLog
from ..tvm_common import tune
from .importer import import_region, region_bucket
from .regions import digest_of, is_ours


def tune_regions(mod: tvm.IRModule, target: Target, optimize: str, trials: int | None, log: str | Path | None,
                 runner) -> tvm.IRModule:
    """Measures the candidates that `log` lacks, and stores the rows that each region needs as its attribute.

    trials: the largest number of candidates for each call; None for all. runner: where to measure; None for this
    machine.
    """
    return _with_rows(mod, tune.tuned_rows(_graphs(mod), target, optimize, trials, log, runner))


def with_log(mod: tvm.IRModule, log: TuningLog, target: Target, optimize: str) -> tvm.IRModule:
    """Stores the log's rows for a region's calls as its attribute, so that a later build does not need the log."""
    return _with_rows(mod, tune.rows_of(_graphs(mod), log, target, optimize))


def _graphs(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, Graph]:
    """Returns the regions as graphs, with symbols replaced by their likely values."""
    regions = {var: function for var, function in mod.functions.items() if is_ours(function)}
    return tune.graphs_of(regions, lambda function: digest_of(function, {}),
                          lambda function, var: import_region(function, var.name_hint),
                          lambda function: [region_bucket(function)])


def _with_rows(mod: tvm.IRModule, rows: Mapping[tvm.ir.GlobalVar, str]) -> tvm.IRModule:
    """Stores the text of rows of the log as attributes of regions."""
    functions = dict(mod.functions.items())
    for var, text in rows.items():
        functions[var] = functions[var].with_attr(tune.LOG, text)
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def log_of(function) -> TuningLog | None:
    """Returns the tuning log that a region carries."""
    return tune.log_of(None if function.attrs is None else function.attrs.get(tune.LOG))
