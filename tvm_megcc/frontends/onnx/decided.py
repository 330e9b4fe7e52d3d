# SPDX-License-Identifier: Apache-2.0
"""Lists operators for which ONNX's reference evaluator and ONNX Runtime differ, and which one is followed here."""

from __future__ import annotations

DECIDED = {
    "GridSample": "cubic with `border` clips each of the neighbours of a place, not the place before they are "
                  "looked for: \"border: use border values for out-of-bound grid locations\", \"see also "
                  "torch.nn.functional.grid_sample\". ONNX Runtime and PyTorch do so, the reference evaluator does not",
    "Max, Min, ReduceMax, ReduceMin, MaxPool, GlobalMaxPool, MaxRoiPool": "NaN where an element is, on every CPU, as "
        "numpy, IEEE 754-2019 (maximum) and PyTorch have it. ONNX Runtime agrees on Max and Min, skips NaN in "
        "reductions, and keeps some of a pool's; the reference evaluator skips them in MaxPool",
    "ReduceLogSumExp": "infinite numbers give what log(sum(exp(x))) is of them: -inf where all are -inf, inf where one "
                       "is. ONNX Runtime does so, the reference evaluator gives NaN",
}
