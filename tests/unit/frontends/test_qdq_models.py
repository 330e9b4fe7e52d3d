# SPDX-License-Identifier: Apache-2.0
"""Random QDQ models mean what ONNX's reference evaluator says, within one of the last place."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.qdq_models import random_model
from tvm_megcc.context import Context
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])
#: What is left of reals between integers.
BY_FLOAT = {"quantize_linear", "dequantize_linear", "conv2d", "matmul", "avg_pool", "global_avg_pool", "reduce_mean",
            "softmax"}


def check(seed: int) -> set[str]:
    """The operators that the model became."""
    proto, inputs = random_model(seed)
    (expected,) = ReferenceEvaluator(proto).run(None, inputs)
    after = before_layouts(import_onnx(proto), CONTEXT)
    verify(after)
    (actual,) = run(after, inputs).values()
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    steps = np.abs(actual.astype(np.int64) - expected)
    assert steps.max() <= 1 and (steps > 0).sum() <= 1 + expected.size // 100, (seed, steps.max(), (steps > 0).mean())
    return {op.kind for op in after.ops}


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.long)])
def test_random_models(seeds):
    for seed in seeds:
        assert not check(seed) & BY_FLOAT, seed
