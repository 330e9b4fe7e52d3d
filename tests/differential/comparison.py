# SPDX-License-Identifier: Apache-2.0
"""A case beside ONNX Runtime, unoptimised, and ONNX's own reference evaluator."""

from __future__ import annotations

import numpy as np

from tvm_megcc.context import Context
from tvm_megcc.errors import InternalError, MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.strings import StringTable
from tvm_megcc.target import TARGETS

from .cases import RANDOM, Case
from .decided import decided
from .references import Outputs, differs, references
from .result import Result, brief


def in_numpy(case: Case) -> Outputs:
    """What import and passes make of it, by numpy. An extent of 0 in the file is one that is not known."""
    graph = import_onnx(case.model, {name: array.shape for name, array in case.feeds.items()})
    table, others = StringTable(graph.strings), dict[str, int]()
    feeds = {name: table.codes(array, others) if array.dtype == object else array
             for name, array in case.feeds.items()}
    feeds |= {name: np.zeros(graph.types[name].shape, np.int64) for name in graph.inputs if name not in feeds}  # a seed
    found = reference.run(before_layouts(graph, Context(TARGETS["x86-64-v3"])), feeds)
    return {name: table.strings(array, others) if name in graph.string_ports else array
            for name, array in found.items()}


def check(case: Case) -> Result:
    """By the first reference that has an answer, and where that is another, by all of them."""
    answers = references(case)
    first = next(answers, None)
    if first is None:
        return Result(case.number, case.label, "no reference")
    try:
        found = in_numpy(case)
    except Exception as error:
        if isinstance(error, MegccError) and not isinstance(error, InternalError):
            return Result(case.number, case.label, "refused", brief(error))
        return Result(case.number, case.label, "crash", f"{type(error).__name__}: {brief(error)}")
    if case.kind in RANDOM:  # each has its own numbers
        found, first = ({name: np.zeros_like(array) for name, array in each.items()} for each in (found, first[0]))
        first = first, 0.0
    reason = differs(found, *first)
    if not reason:
        return Result(case.number, case.label, "right")
    rows, others = decided(case), list(answers)
    if all(differs(found, *other) for other in others):
        rows = [row for row in rows if row.unspecified or (row.within and any(
            not differs(found, wanted, row.within) for wanted, _ in (first, *others)))]
        if not rows:
            return Result(case.number, case.label, "wrong", reason)
    sentence = next((row.sentence for row in rows), "")
    return Result(case.number, case.label, "references differ" if sentence else "undecided", sentence or reason)


def compare(case: Case, found: Outputs) -> str:
    """How outputs of a case that is right in numpy differ from every reference; "" where one of them agrees."""
    first = ""
    for wanted, tolerance in references(case):
        if case.kind in RANDOM:
            found, wanted = ({name: np.zeros_like(array) for name, array in each.items()} for each in (found, wanted))
        reason = differs(found, wanted, max(tolerance, *(row.within for row in decided(case)), 0))
        if not reason:
            return ""
        first = first or reason
    return first
