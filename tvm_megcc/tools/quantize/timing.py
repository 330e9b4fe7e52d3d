# SPDX-License-Identifier: Apache-2.0
"""Times a float model and the quantised one, compiled, in total and by layer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import api
from ...runtime.device import local_session
from ..bench import bench


def times(before: Path, after: Path, feeds: Mapping[str, np.ndarray], target: str, rows: Sequence[dict]) -> dict:
    """Returns seconds of both models and bytes of their containers; adds the times of each layer to its row.

    Raises:
        ToolError: if there is no C compiler, or this machine does not run the target.
    """
    found: dict[str, dict[str, Any]] = {}
    sizes: dict[str, int] = {}
    for when, path in (("before", before), ("after", after)):
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        artifact = api.compile(path, target, input_shapes=shapes, name="model")
        with tempfile.TemporaryDirectory(prefix="megcc-") as folder:
            report = bench.bench(local_session(artifact.save(Path(folder) / "model")))
        found[when], sizes[when] = report, len(artifact.container)
    # A call that several operators of the model were fused into has all their names, with "+" between them.
    for row in rows:
        row["seconds"] = {when: sum(call["seconds"] for call in report["calls"]
                                    if row["name"] in call["name"].split("+"))
                          for when, report in found.items()}
    return {"target": found["after"]["target"], "containers": sizes,
            **{when: report["seconds"]["median"] for when, report in found.items()}}


def text(report: dict) -> list[str]:
    """Returns lines about times, with a warning if the quantised model is slower."""
    spent = report["times"]
    if not spent:
        return [f"  not timed: {report['not_timed']}"] if "not_timed" in report else []
    sizes = spent["containers"]
    lines = [f"  {spent['target']}, one thread: {spent['before'] * 1e3:.4f} → {spent['after'] * 1e3:.4f} ms, compiled "
             f"{sizes['before']:,} → {sizes['after']:,} bytes"]
    if spent["after"] > spent["before"]:
        lines.append(f"  SLOWER than float, by {spent['after'] / spent['before'] - 1:.0%}: on this CPU only its size "
                     "speaks for the quantised model")
    return lines
