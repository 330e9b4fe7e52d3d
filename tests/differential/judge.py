# SPDX-License-Identifier: Apache-2.0
"""A case beside ONNX Runtime, unoptimised, and ONNX's own reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnxruntime

from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

from .cases import Case
from .verdict import Verdict, brief

#: Largest error, relative to the largest magnitude of an output, or to 1.
TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}
Outputs = dict[str, np.ndarray]


def of_onnxruntime(case: Case) -> Outputs:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(_names(case), session.run(None, case.feeds), strict=True))


def of_onnx(case: Case) -> Outputs:
    found = onnx.reference.ReferenceEvaluator(case.model).run(None, case.feeds)
    return dict(zip(_names(case), map(np.asarray, found), strict=True))


def _names(case: Case) -> list[str]:
    return [value.name for value in case.model.graph.output]


def references(case: Case, both: bool = False) -> list[Outputs]:
    """The second only where the first has none, or both are asked for."""
    found = []
    for answer in (of_onnxruntime, of_onnx):
        if both or not found:
            try:
                found.append(answer(case))
            except Exception:  # either has cases that it does not know, and says so in many ways
                continue
    return found


def in_numpy(case: Case) -> Outputs:
    """What import and passes make of it, by numpy."""
    graph = import_onnx(case.model)
    return reference.run(before_layouts(graph, Context(TARGETS["x86-64-v3"])), case.feeds)


def judged(case: Case) -> Verdict:
    wanted = references(case)
    if not wanted:
        return Verdict(case.number, case.label, "no reference")
    try:
        found = in_numpy(case)
    except MegccError as error:
        return Verdict(case.number, case.label, "refused", brief(error))
    except Exception as error:
        return Verdict(case.number, case.label, "crash", f"{type(error).__name__}: {brief(error)}")
    reason = differs(found, wanted[0])
    if not reason:
        return Verdict(case.number, case.label, "right")
    others = references(case, both=True)
    if len(others) > 1 and any(not differs(found, other) for other in others):
        return Verdict(case.number, case.label, "references differ", reason)
    return Verdict(case.number, case.label, "wrong", reason)


def compare(case: Case, found: Outputs) -> str:
    """How outputs differ from those of every reference; "" where one of them agrees."""
    reasons = [differs(found, wanted) for wanted in references(case, both=True)]
    return reasons[0] if all(reasons) else ""


def differs(found: Outputs, wanted: Outputs) -> str:
    """How, "" where it does not."""
    return next(filter(None, (_differs(found[name], array) for name, array in wanted.items())), "")


def _differs(found: np.ndarray, wanted: np.ndarray) -> str:
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        where = found != wanted
        return f"{int(where.sum())} of {where.size} differ" if where.any() else ""
    with np.errstate(all="ignore"):
        real, other = wanted.astype(np.float64), found.astype(np.float64)
        same = (real == other) | (np.isnan(real) & np.isnan(other))
        apart = np.where(same, 0, np.abs(real - other))
        limit = TOLERANCE[wanted.dtype.name] * np.abs(real[np.isfinite(real)]).max(initial=1)
        where = ~(apart <= limit)
    return f"{int(where.sum())} of {where.size} differ, by up to {apart.max():.4g}" if where.any() else ""
