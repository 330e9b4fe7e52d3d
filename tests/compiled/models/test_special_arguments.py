# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of zeros, infinities and NaN, on targets whose vectors flush subnormal numbers too."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.differential.targets import TARGETS, missing
from tests.onnx_models import fed, model, node
from tvm_megcc.errors import MegccError

#: Whole vectors of each target, and what is left of one.
SPECIAL = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e30, 33, -34, 0, -1],
                   np.float32)
UNARY = {"Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Tanh": np.tanh, "Reciprocal": np.reciprocal, "Abs": np.abs,
         "Neg": np.negative, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sin": np.sin, "Cos": np.cos,
         "Atan": np.arctan, "Asinh": np.arcsinh, "Sinh": np.sinh, "Cosh": np.cosh, "Sign": np.sign,
         "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Relu": lambda x: np.where(x < 0, 0, x)}
#: Whether Max and Min keep a NaN is the CPU's: docs/reproducible.md.
BINARY = {"Pow": np.power, "Div": np.divide, "Add": np.add, "Sub": np.subtract, "Mul": np.multiply}


@pytest.mark.parametrize("target", ["native", "c", *(pytest.param(target, marks=pytest.mark.slow)
                                                     for target in TARGETS if target not in ("native", "c"))])
def test_special_arguments(target: str, tmp_path):
    if reason := missing(target):
        pytest.skip(reason)
    first, second = (array.ravel().copy() for array in np.meshgrid(SPECIAL, SPECIAL))
    feeds = {"x": SPECIAL, "a": first, "b": second}
    nodes = [node(kind, "x", kind) for kind in UNARY] + [node(kind, "a b", kind) for kind in BINARY]
    tvm_megcc.compile(model(nodes, fed(feeds), [*UNARY, *BINARY]), target).save(tmp_path / "out")
    try:
        found = tvm_megcc.load(tmp_path / "out", target).run(feeds)
    except MegccError as error:
        if "Assertion `ctx->insn_start" in str(error):
            pytest.skip("qemu's translator ends itself")
        raise
    with np.errstate(all="ignore"):
        wanted = {kind: function(SPECIAL) for kind, function in UNARY.items()}
        wanted |= {kind: function(first, second) for kind, function in BINARY.items()}
    for kind, array in wanted.items():
        np.testing.assert_allclose(found[kind], array.astype(np.float32), rtol=2e-5, atol=1e-6, err_msg=kind)
