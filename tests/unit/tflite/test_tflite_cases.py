# SPDX-License-Identifier: Apache-2.0
"""Random TFLite files of one operator, over what the schema lets it have: what LiteRT's reference kernels compute."""

from __future__ import annotations

import os

import pytest

from tests.differential.result import summary
from tests.tflite_case_moves import ALL, ROUND
from tests.tflite_comparison import results
from tvm_megcc.frontends.tflite.node import IMPORTERS
from tvm_megcc.frontends.tflite.quantized.importers import INT16_IMPORTERS, QUANTISED_IMPORTERS

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

#: Files that the test judges; more with $MEGCC_TFLITE_CASES.
COUNT = int(os.environ.get("MEGCC_TFLITE_CASES", "450"))
#: Drawn by other tests: items of lists, random numbers, states, sparse constants, complex numbers, open extents.
ELSEWHERE = {"TENSOR_LIST_SET_ITEM", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL", "SVDF", "DENSIFY",
             "RFFT2D", "WHERE"}


def test_every_operator_has_a_rule():
    known = {kind for kind in (*IMPORTERS, *QUANTISED_IMPORTERS, *INT16_IMPORTERS) if not kind.startswith("CUSTOM ")}
    assert known - ELSEWHERE == set(ALL)


@pytest.mark.slow
def test_files():
    """Of every second kind one; each kind has its turn with a larger count."""
    text, bad = summary(results(range(0, 2 * COUNT, 2) if COUNT < len(ROUND) else range(COUNT)))
    assert not bad, "\n".join([text, *map(str, bad)])
    assert "right: " in text and int(text.split("right: ")[1].split(",")[0]) > COUNT // 2
