# SPDX-License-Identifier: Apache-2.0
"""Float weights of products, quantised to int8 by the compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.context import Context
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ops.quantized.nbits import dequantize_weights
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.quantization.weights import quantize_rows
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS

CONTEXT = Context(TARGETS["x86-64-v3"])


@pytest.mark.parametrize(("shape", "size"), [((5, 64), 1.0), ((3, 75), 0.01), ((4, 33), 1e-9), ((2, 32), 1e8)])
def test_rows(shape, size):
    """Scales that float16 cannot represent stay float32."""
    rows = (np.random.default_rng(0).normal(size=shape) * size).astype(np.float32)
    rows[0, :32] = 0
    numbers, scale = quantize_rows(rows)
    assert (numbers[0, :32] == 128).all() and numbers.min() >= 1 and numbers.dtype == np.uint8
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16).astype(np.float32)
    assert np.array_equal(half, scale) == (size in (1.0, 0.01))
    found = dequantize_weights(numbers, scale, None, 8, 32, shape[1])
    blocks = np.pad(rows, ((0, 0), (0, -shape[1] % 32))).reshape(shape[0], -1, 32)
    step = np.repeat(np.abs(blocks).max(-1) / 127, 32, 1)[:, :shape[1]]
    assert (np.abs(found - rows) <= 0.57 * step).all()


@pytest.mark.parametrize("gathered", ["Gather", "GatherND"])
def test_a_decoder(gathered, tmp_path):
    """The embedding is that of the head; a product of two activations and one with a short depth keep floats."""
    random = np.random.default_rng(1)
    table, w, bias, short = (random.normal(size=size).astype(np.float32) for size in (
        (200, 64), (64, 96), 96, (8, 12)))
    parts = [node("Unsqueeze", "tokens last", "points")] if gathered == "GatherND" else []
    parts += [node(gathered, f"table {'points' if parts else 'tokens'}", "x"), node("MatMul", "x w", "y0"),
              node("Add", "y0 bias", "y"), node("Slice", "y begin end last", "few"), node("MatMul", "few short", "z"),
              node("Transpose", "table", "head", perm=[1, 0]), node("MatMul", "x head", "logits")]
    constants = {"table": table, "w": w, "bias": bias, "short": short, "begin": np.array([0]), "end": np.array([8]),
                 "last": np.array([-1])}
    if gathered == "Gather":
        constants["last"] = np.array([1])
    proto = model(parts, {"tokens": ("int64", [3])}, {"y": [3, 96], "z": [3, 12], "logits": [3, 200]}, constants)
    tokens = {"tokens": np.array([5, 199, 0])}
    after = before_layouts(import_onnx(proto), replace(CONTEXT, weight_dtype="int8"))
    kinds = [op.kind for op in after.ops]
    assert kinds.count("matmul_nbits_int8") == 2 and kinds.count("matmul") == 1 and "nbits_rows" in kinds
    exact = run(before_layouts(import_onnx(proto), CONTEXT), tokens)
    found = run(after, tokens)
    for name, values in exact.items():
        assert 0 < np.abs(found[name] - values).max() < 0.02 * np.abs(values).max(), name
    path = saved(proto, tmp_path / "decoder.onnx")
    small, large = (tvm_megcc.compile(path, "x86-64-v3", weight_dtype=dtype) for dtype in ("int8", "model"))
    assert len(small.image) < 0.4 * len(large.image), "the embedding is stored once"
    assert small.manifest["options"]["weight_dtype"] == "int8"
