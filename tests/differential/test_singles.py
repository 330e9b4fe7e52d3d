# SPDX-License-Identifier: Apache-2.0
"""Single operators: each rule draws, each answer by the text agrees with a reference, and what is wrong is found."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from tvm_megcc.errors import InternalError, MegccError

from . import comparison
from .cases import OPSETS, RANDOM, drawn, kinds
from .decided import DECIDED
from .draw import Undrawn
from .references import differs, of_float32, of_onnx, of_onnxruntime
from .result import BAD
from .rules import RULES
from .specified import SPECIFIED, of_specification

KINDS = sorted({name for opset in OPSETS for name in kinds(opset)})


def some(kind: str, count: int, seed: int = 1, numbers: int = 20000):
    """Cases of an operator."""
    for number in range(0, numbers, 100):  # each of another operator set
        try:
            yield drawn(seed, number, kind)
        except Undrawn:
            continue
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("kind", KINDS)
def test_each_operator_is_drawn_and_right(kind: str):
    with np.errstate(all="ignore"):
        results = [comparison.check(case) for case in some(kind, 3)]
    assert results and not [each for each in results if each.outcome in BAD]


def test_the_tables_name_operators_that_are_drawn():
    named = {name for row in DECIDED for name in row.operators} | set(RULES) | set(SPECIFIED) | RANDOM
    assert named <= set(KINDS)


@pytest.mark.parametrize("kind", sorted(SPECIFIED))
def test_answers_by_the_text_are_those_of_a_reference(kind: str):
    agree = 0
    for case in some(kind, 200):
        try:
            own = of_specification(case)
        except ValueError:
            continue
        with np.errstate(all="ignore"):
            for answer in (of_onnxruntime, of_onnx, of_float32):
                try:
                    agree += not differs(own, {name: answer(case)[name] for name in own}, 2e-5)
                except Exception:
                    continue
    assert agree >= 5


def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch):
    """By one in the last element: no row of the table lets that pass."""
    right = comparison.in_numpy
    numbers = [number for number in range(150, 260) if number % 3 == 0]
    found = []

    def wrong(case):
        outputs = right(case)
        for name, array in outputs.items():
            changed = array.copy().reshape(-1)
            if changed.size and changed.dtype.kind in "fui":
                top = np.abs(changed[np.isfinite(changed)].astype(np.float64)).max(initial=1)
                changed[-1] = changed[-1] + np.asarray(max(0.05 * top, 3)).astype(changed.dtype)
                found.append(case.number)
            outputs[name] = changed.reshape(array.shape)
        return outputs

    monkeypatch.setattr(comparison, "in_numpy", wrong)
    with np.errstate(all="ignore"):
        results = [comparison.check(drawn(1, number)) for number in numbers]
    passed = [each for each in results if each.number in found and each.outcome not in (
        *BAD, "no reference") and each.label.split()[1].split("-")[0] not in RANDOM]
    assert len(set(found)) > 20 and not passed


@pytest.mark.parametrize("error, result", [
    (MegccError("not supported"), "refused"), (InternalError("no kernel"), "crash"), (KeyError("x"), "crash")])
def test_faults_are_no_refusals(monkeypatch, error: Exception, result: str):
    def failing(case):
        raise error

    monkeypatch.setattr(comparison, "in_numpy", failing)
    assert comparison.check(next(some("Relu", 1))).outcome == result
