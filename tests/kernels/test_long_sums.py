# SPDX-License-Identifier: Apache-2.0
"""Sums of many numbers of one sign, which a single chain of additions gets wrong by their number: errors stay at the
rounding of the result."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.errors import MissingTool

WIDE, TALL = [1, 16, 80, 80], [1, 6400, 32]
LONG = [1, 2, 512, 512]
#: Operator, its attributes, the shape of its operand, the exact result.
CASES = {
    "pool": ("GlobalAveragePool", {}, WIDE, lambda x: x.mean((2, 3), keepdims=True)),
    "mean of rows": ("ReduceMean", {"axes": [2, 3]}, LONG, lambda x: x.mean((2, 3), keepdims=True)),
    "norm of rows": ("ReduceL2", {"axes": [2, 3]}, LONG, lambda x: np.sqrt((x * x).sum((2, 3), keepdims=True))),
    "mean of columns": ("ReduceMean", {"axes": [1]}, TALL, lambda x: x.mean(1, keepdims=True)),
    "softmax of rows": ("Softmax", {"axis": 1}, [1, 40000], lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "softmax of columns": ("Softmax", {"axis": 1}, TALL, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["c", "native", pytest.param("arm64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_errors_stay_at_rounding(name: str, target: str, tmp_path):
    kind, attributes, shape, exact = CASES[name]
    artifact = tvm_megcc.compile(model([node(kind, "x", "y", **attributes)], {"x": shape}, {"y": None}), target)
    try:
        session = tvm_megcc.load(artifact.save(tmp_path / "sum"), target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    x = (1 + 0.1 * np.random.default_rng(1).random(shape)).astype(np.float32)
    found, wanted = session.run({"x": x})["y"], exact(x.astype(np.float64))
    assert np.abs(found / wanted - 1).max() < 6e-7
