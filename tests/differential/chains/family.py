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
from ..result import Feature, Result, brief
from .builder import computed
from .comparison import Arrays, check, compared
from .draw import Chain, drawn


class Chains(Family):
    """Graphs of three to ten operators, drawn with emphasis on what passes rewrite."""

    name = "chains"

    def draw(self, seed: int, number: int, operator: str = "") -> Chain:
        return drawn(seed, number, operator)

    def check(self, case: Chain) -> Result:
        return check(case)

    def run(self, cases: Sequence[Chain], target: str, folder: Path) -> list[list[Arrays]]:
        """The outputs of each run of each case."""
        model, _ = merged(cases)
        empty = {prefix(case) + name: shape for case in cases for name, shape in _empty(case).items()}
        dims = next((case.dims for case in cases if case.dims), {})
        tvm_megcc.compile(model, target, dims=dict(dims), input_shapes=empty).save(folder / target, force=True)
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
        result = compared(case, found)
        return result.reason if result.outcome == "wrong" else ""

    def refusal(self, case: Chain) -> str:
        """Asked of each by itself: one graph in a folder of many that is refused has the others compiled again."""
        try:
            tvm_megcc.compile(case.model, "c", dims=dict(case.dims), input_shapes=_empty(case))
        except Exception as error:
            if isinstance(error, MegccError) and not isinstance(error, InternalError):
                return brief(error)
        return ""  # a fault shows again when it is compiled for a target

    def features(self, case: Chain) -> tuple[Feature, ...]:
        return features_of(case.model)


def _empty(case: Chain) -> dict[str, tuple[int | None, ...]]:
    """Shapes of inputs that have no elements in any run: in a file an extent of 0 means that it is open."""
    found = {}
    for name in case.feeds:
        shapes = [feeds[name].shape for feeds in case.runs]
        if shapes and all(0 in shape for shape in shapes):
            found[name] = tuple(extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes, strict=True))
    return found
