# SPDX-License-Identifier: Apache-2.0
"""Lists operators for which ONNX's reference evaluator and ONNX Runtime give different results, and what is right here
(a list in docs/operators.md)."""

from __future__ import annotations

DECIDED = {
    "GridSample": "with mode `cubic` and padding `border`, the coordinates of each neighbouring pixel are clipped, not "
                  "those of the sampling point: \"border: use border values for out-of-bound grid locations\", \"see "
                  "also torch.nn.functional.grid_sample\". ONNX Runtime and PyTorch do so, the reference evaluator "
                  "does not",
    "Max, Min, ReduceMax, ReduceMin, MaxPool, GlobalMaxPool, MaxRoiPool": "the result is NaN if an element is NaN, on "
        "every CPU, as in numpy, IEEE 754-2019 (maximum) and PyTorch. ONNX Runtime agrees on Max and Min, ignores NaN "
        "in reductions, and ignores some of them in pools; the reference evaluator ignores them in MaxPool",
    "ReduceLogSumExp": "infinite elements give log(sum(exp(x))): -inf if all are -inf, inf if one is. ONNX Runtime "
                       "does so, the reference evaluator gives NaN",
}
