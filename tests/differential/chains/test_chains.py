# SPDX-License-Identifier: Apache-2.0
"""Drawn graphs of several operators beside what their operators give one by one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from ..draw import Undrawn
from .comparison import check, compared, within
from .draw import drawn, family

#: What is no fault of the compiler's: refusals are counted where many graphs are drawn.
FAULTLESS = {"right", "refused", "ill-conditioned", "references differ", "by one operator"}


def graphs(seed: int, first: int, count: int) -> list:
    found = []
    for number in range(first, first + count):
        try:
            found.append(drawn(seed, number))
        except Undrawn:
            continue
    return found


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_some_graphs_of_each_family(first: int):
    results = [check(chain) for chain in graphs(1, first, 8)]
    assert not [each for each in results if each.outcome not in FAULTLESS]
    assert sum(each.outcome == "right" for each in results) >= 5


def test_families_differ():
    kinds = {family(1, first)[1] for first in range(0, 800, 100)}
    assert kinds == {"static", "open", "values"}


def test_a_number_makes_one_graph():
    first, second = drawn(1, 3), drawn(1, 3)
    assert first.model == second.model
    for one, other in zip(first.wanted, second.wanted, strict=True):
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_graphs_have_several_operators_and_runs():
    chains = graphs(1, 0, 40)
    assert np.mean([len(chain.model.graph.node) for chain in chains]) > 4
    assert all(len(chain.runs) == len(chain.wanted) >= 1 for chain in chains)


def test_answers_that_are_wrong_are_found():
    """By a part in a thousand; a few graphs make more than that of an error in the last place."""
    found = []
    for chain in graphs(1, 400, 20):
        if all(array.dtype == np.float32 and array.size for run in chain.wanted for array in run.values()):
            shifted = tuple({name: array + np.float32(0.001) * max(1, np.abs(array).max())
                             for name, array in run.items()} for run in chain.wanted)
            found.append(compared(chain, shifted).outcome)
    assert len(found) > 5 and found.count("wrong") > 0.8 * len(found), found


def test_what_small_moves_make_of_a_result_bounds_its_error():
    wanted = np.array([1, 2, 3], np.float32)
    moved = [wanted + np.float32(1e-3), wanted - np.float32(1e-3)]
    assert within(wanted + np.float32(1.5e-3), wanted, moved)
    assert not within(wanted + np.float32(1e-2), wanted, moved)
    steps = np.array([5, 6], np.int8)
    assert within(np.array([5, 7], np.int8), steps, [np.array([5, 7], np.int8)])
    assert not within(np.array([6, 6], np.int8), steps, [np.array([5, 7], np.int8)])
