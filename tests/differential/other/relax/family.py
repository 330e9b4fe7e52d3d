# SPDX-License-Identifier: Apache-2.0
"""Relax operators beside TVM's own build of them, where TVM is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tvm_megcc
from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError, MegccError
from tvm_megcc.frontends import _tvm
from tvm_megcc.frontends.models import import_model
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

from ...family import Family, Outputs, run_session, value_class
from ...result import Feature, Result, brief

if TYPE_CHECKING:
    from .case import RelaxCase


class Relax(Family):
    name, batch = "relax", 50

    def missing(self) -> str:
        try:
            found = _tvm.front_end()
        except ImportError:
            return "TVM is not installed"
        return "" if found == "relax" else "this TVM has Relay, not Relax"

    def draw(self, seed: int, number: int, operator: str = "") -> RelaxCase:
        from .case import drawn  # TVM may be missing where nobody asks for this family

        return drawn(seed, number, operator)

    def check(self, case: RelaxCase) -> Result:
        try:
            wanted = case.expected
        except Exception as error:  # TVM has operators that it cannot build
            return Result(case.number, case.label, "no reference", brief(error))
        try:
            found = in_numpy(case)
        except Exception as error:
            if isinstance(error, MegccError) and not isinstance(error, InternalError):
                return Result(case.number, case.label, "refused", brief(error))
            return Result(case.number, case.label, "crash", f"{type(error).__name__}: {brief(error)}")
        reason = _differs(found, wanted, case.tolerance)
        return Result(case.number, case.label, "wrong" if reason else "right", reason)

    def run(self, cases: Sequence[RelaxCase], target: str, folder: Path) -> list[Outputs]:
        from .case import module

        dims, feeds = {}, {}
        for case in cases:
            dims |= case.dims
            feeds |= case.feeds
        tvm_megcc.compile(module(cases), target, dims=dims).save(folder / target, force=True)
        with tvm_megcc.load(folder / target, target) as session:
            found = iter(run_session(session, feeds).values())
        return [{f"y{place}": next(found) for place in range(len(case.expected))} for case in cases]

    def compare(self, case: RelaxCase, found: Outputs) -> str:
        return _differs(list(found.values()), case.expected, case.tolerance)

    def features(self, case: RelaxCase) -> tuple[Feature, ...]:
        dtypes = [array.dtype.name for array in case.draw.operands]
        attributes = [f"{name}={value if isinstance(value, str) else value_class(value) if value is not None else ''}"
                      for name, value in case.draw.attributes.items()]
        return (Feature(case.draw.kind, tuple(dict.fromkeys(dtypes)), tuple(attributes)),)


def in_numpy(case: RelaxCase) -> list[np.ndarray]:
    """What import and passes make of it."""
    from .case import module

    graph, _ = import_model(module([case]))
    found = reference.run(before_layouts(graph, Context(TARGETS["x86-64-v3"])), case.feeds)
    return [found[name] for name in graph.outputs]


def _differs(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> str:
    from ...references import differs  # ONNX Runtime may be missing, too

    names = [f"y{place}" for place in range(len(wanted))]
    if len(found) != len(wanted):
        return f"{len(found)} results for {len(wanted)}"
    return differs(dict(zip(names, found, strict=True)), dict(zip(names, wanted, strict=True)), tolerance)
