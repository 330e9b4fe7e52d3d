# SPDX-License-Identifier: Apache-2.0
"""ONNX's DynamicQuantizeLinear, whose scale and zero point are computed from the data."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, register


@register
class DynamicQuantize(Operator):
    """ONNX's DynamicQuantizeLinear: quantises x, float32 of any shape, to uint8 over the range of its elements and 0.

    Results: the numbers, uint8 of x's shape; their scale float32 []; their zero point uint8 [].
    """

    kind = "dynamic_quantize"
    onnx = ("DynamicQuantizeLinear",)

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype != "float32":
            raise ShapeError(f"quantises float32, not {x}")
        return TensorType("uint8", x.shape), TensorType("float32", ()), TensorType("uint8", ())

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        smallest, largest = np.float32(x.min(initial=0)), np.float32(x.max(initial=0))
        scale = np.float32((largest - smallest) / np.float32(255))
        with np.errstate(all="ignore"):
            # If all elements are 0 the scale is 0, and 0 / 0 = NaN: zero point and numbers become 0.
            zero = np.rint(np.clip(np.nan_to_num((np.float32(0) - smallest) / scale, nan=0.0), 0, 255))
            numbers = np.nan_to_num(np.rint(x / scale), nan=0.0).astype(np.float64) + zero
        return np.clip(numbers, 0, 255).astype(np.uint8), np.asarray(scale), np.asarray(zero, np.uint8)


DynamicQuantize.cases = tuple(
    Case(((shape, "float32"),), {}, values={0: numbers}) for shape, numbers in (
        ((3, 4, 17), np.random.default_rng(0).standard_normal((3, 4, 17))),
        ((2, 40), np.random.default_rng(1).uniform(0.5, 3, (2, 40))),
        ((33,), -np.random.default_rng(2).uniform(0.5, 3, 33)), ((5,), np.zeros(5)), ((1, 1), np.array([[-2.5]])),
        ((1, 64, 5, 5), np.random.default_rng(3).standard_normal((1, 64, 5, 5)) * 1e-20)))
