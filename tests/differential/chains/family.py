# SPDX-License-Identifier: Apache-2.0
"""Drawn graphs as a family of cases, which are run several times each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from onnx import numpy_helper

import tvm_megcc
from tvm_megcc.errors import InternalError, MegccError

from ..cases import Case
from ..family import Family, features_of, merged, prefix, run_session
from ..verdict import Feature, Verdict, brief
from .builder import computed
from .draw import Chain, drawn
from .judge import Arrays, compared, judged


class Chains(Family):
    """Graphs of three to ten operators, drawn with emphasis on what passes rewrite."""

    name = "chains"

    def draw(self, seed: int, number: int, operator: str = "") -> Chain:
        return drawn(seed, number, operator)

    def check(self, case: Chain) -> Verdict:
        return judged(case)

    def run(self, cases: Sequence[Chain], target: str, folder: Path) -> list[list[Arrays]]:
        """The outputs of each run of each case."""
        model, _ = merged(cases)
        dims = next((case.dims for case in cases if case.dims), {})
        tvm_megcc.compile(model, target, dims=dict(dims)).save(folder / target, force=True)
        with tvm_megcc.load(folder / target, target) as session:
            found = [run_session(session, {prefix(case) + name: array for case in cases
                                           for name, array in case.runs[run].items()})
                     for run in range(len(cases[0].runs))]
        return [[{name: run[prefix(case) + name] for name in case.wanted[0]} for run in found] for case in cases]

    def alone(self, case: Chain) -> Iterator[Chain]:
        return (self.again(replace(case, feeds=dict(feeds))) for feeds in case.runs)

    def again(self, case: Case) -> Chain:
        """Of one run. Raises Undrawn where an operator cannot be computed."""
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in case.model.graph.initializer} | case.feeds
        for node in case.model.graph.node:
            (results,) = computed(node, [values], case.opset)
            values |= zip(node.output, results, strict=True)
        wanted = {value.name: values[value.name] for value in case.model.graph.output}
        return Chain(case.seed, case.number, case.kind, case.opset, case.label, case.model, case.feeds, dims=case.dims,
                     runs=(case.feeds,), wanted=(wanted,))

    def compare(self, case: Chain, found: Sequence[Arrays]) -> str:
        verdict = compared(case, found)
        return verdict.reason if verdict.verdict == "wrong" else ""

    def refusal(self, case: Chain) -> str:
        """Asked of each by itself: one graph in a folder of many that is refused has the others compiled again."""
        if any(array.size == 0 for feeds in case.runs for array in feeds.values()):
            return "an input without elements: open extents are at least 1 unless a size is given"
        try:
            tvm_megcc.compile(case.model, "c", dims=dict(case.dims))
        except Exception as error:
            if isinstance(error, MegccError) and not isinstance(error, InternalError):
                return brief(error)
        return ""  # a fault shows again when it is compiled for a target

    def features(self, case: Chain) -> tuple[Feature, ...]:
        return features_of(case.model)
