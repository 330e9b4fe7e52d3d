# SPDX-License-Identifier: Apache-2.0
"""Random Relax modules compute what TVM's own build of them does.

MEGCC_RANDOM_GRAPHS=300 runs so many seeds; without it there are the quick ones, and some more in the full suite.
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm

from .modules import assert_same, megcc, random_inputs, reference, run
from .random_graphs import LOOPS, SYMBOL, random_module

QUICK, SLOW = 15, 45
ALL = int(os.environ.get("MEGCC_RANDOM_GRAPHS", QUICK + SLOW))
OURS = ("megcc-native", "megcc-c")
"""In turn: the layouts of vectors, and scalar code, which compiles faster; one of the quick graphs has vectors."""
TIR = (True, False, True)
"""In turn: whether TVM's loops become kernels."""


@pytest.mark.parametrize("seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow)
                                                   for seed in range(QUICK, ALL))])
def test_random_graph(seed: int):
    mod = random_module(seed, most=6 if seed < QUICK else 40)
    target = OURS[min(seed, 1) if seed < QUICK else seed % 2]
    expected = reference(mod)
    partitioned = megcc.partition_for_megcc(mod, target=target, tir=TIR[seed % 3])
    for name, reasons in megcc.report(partitioned).reasons.items():
        assert name.startswith(LOOPS) and not TIR[seed % 3], f"{name} stayed with TVM: {reasons}"
    actual = tvm.compile(partitioned, target=target, relax_pipeline="megcc")
    for function in ("main", "second"):
        if function in [var.name_hint for var in mod.functions]:
            inputs = random_inputs(mod, function, seed, {SYMBOL: 1 + seed % 5})
            assert_same(run(actual, inputs, function), run(expected, inputs, function))
