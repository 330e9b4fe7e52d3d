# SPDX-License-Identifier: Apache-2.0
"""Tunes the regions of a partitioned module: times candidate kernels, and finds the times that each region keeps as an
attribute. Works without TVM."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...compiler import context_of
from ...errors import MegccError
from ...ir.graph import Graph, network_bytes
from ...ir.shapes import Bucket, with_symbols
from ...passes import before_layouts
from ...runtime import tuner
from ...runtime.candidates import calls_of
from ...target import Target
from ...tuning_log import TuningLog

if TYPE_CHECKING:
    from ...runtime.remote import RpcRunner

#: Attribute of a region: the rows of the tuning log for its calls, as text.
LOG = "megcc_log"

#: The name of a region in a front end: a global function.
Region = TypeVar("Region", bound=Hashable)


def require_tuning_arguments(trials: object, log: object) -> None:
    """Raises MegccError unless `trials` is a positive number or None, and `log` a path or None."""
    if trials is not None and (not isinstance(trials, int) or trials < 1):
        raise MegccError(f"trials is a number of 1 or more, or None, not {trials!r:.40}")
    require_log(log)


def require_log(log: object) -> None:
    """Raises MegccError unless `log` is a path or None."""
    if log is not None and not isinstance(log, (str, Path)):
        raise MegccError(f"log is the path of a file or None, not {log!r:.40}")


def graphs_of(regions: Mapping[Region, Any], digest: Callable[[Any], str], import_: Callable[[Any, Region], Graph],
              buckets: Callable[[Any], Iterable[Bucket]]) -> dict[Region, Graph]:
    """Returns the regions as graphs, with symbols replaced by their likely values. Regions that differ only in bounds
    are compiled as one model, so they share one graph.

    Args:
        regions: name -> function of the front end's TVM.
        digest: returns a digest of what a function computes, without its bounds.
        import_: returns a function as a graph; its second argument is the function's name.
        buckets: returns the ranges of shapes that a function is compiled for.
    """
    regions_by_digest: dict[str, list[Region]] = {}
    for region, function in regions.items():
        regions_by_digest.setdefault(digest(function), []).append(region)
    graphs: dict[Region, Graph] = {}
    for equal_regions in regions_by_digest.values():
        all_values = [bucket.representative for region in equal_regions for bucket in buckets(regions[region])]
        likely = max(all_values, key=lambda values: math.prod(values.values()))
        graph = with_symbols(import_(regions[equal_regions[0]], equal_regions[0]), likely)
        graphs.update(dict.fromkeys(equal_regions, graph))
    return graphs


def tuned_rows(graphs: Mapping[Region, Graph], target: Target, optimize: str, trials: int | None,
               log: str | Path | None, runner: RpcRunner | None) -> dict[Region, str]:
    """Measures the candidates that `log` lacks, and returns the text of the rows that each region needs.

    Args:
        graphs: the result of `graphs_of`.
        trials: the largest number of candidates for each call; None for all.
        log: new times are appended to it; None for no log.
        runner: where to measure; None for this machine.

    Raises:
        MegccError: if this machine cannot run the target's code and there is no runner, if all devices are lost, and
            for an invalid line in the log.
    """
    with tempfile.TemporaryDirectory(prefix="megcc-tune-") as folder:
        path = Path(log) if log is not None else Path(folder) / "tune.jsonl"
        distinct = {id(graph): graph for graph in graphs.values()}
        tuner.tune(list(distinct.values()), target, path, optimize=optimize, trials=trials, runner=runner,
                   progress=tuner.progress_bar(), weights=sum(map(network_bytes, distinct.values())))
        return rows_of(graphs, TuningLog.read(path), target, optimize)


def rows_of(graphs: Mapping[Region, Graph], log: TuningLog, target: Target, optimize: str) -> dict[Region, str]:
    """Returns the text of the log's rows for the calls of each region."""
    return {region: _rows(graph, log, target, optimize).text() for region, graph in graphs.items()}


def _rows(graph: Graph, log: TuningLog, target: Target, optimize: str) -> TuningLog:
    """Returns the rows of the log for the calls of a graph."""
    context = context_of(graph, target, optimize=optimize)
    calls = {call.text for call in calls_of(before_layouts(graph, context), context)}
    return TuningLog(row for row in log.rows.values()
                     if (row.target, row.optimize) == (target.name, optimize) and row.call in calls)


def log_of(attribute: object) -> TuningLog | None:
    """Returns the tuning log of a region. attribute: the value of its attribute `LOG`, None without it."""
    return None if attribute is None else TuningLog.parse(str(attribute), f"attribute {LOG}")
