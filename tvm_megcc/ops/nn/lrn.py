# SPDX-License-Identifier: Apache-2.0
"""Local response normalisation across channels (Krizhevsky, Sutskever and Hinton 2012): ONNX's LRN, Relay's nn.lrn."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.dims import product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, f32, register


@register
class Lrn(Operator):
    """y = x / (bias + alpha / size * sum of the squares of `size` neighbouring channels)^beta.

    Operand: x [N, C, H, W] of floats; the result has its type. Attributes: `size`, `alpha`, `beta`, `bias`. The channel
    itself is in the middle of its neighbours; if `size` is even, there is one more after it than before it.
    """

    kind = "lrn"
    onnx = ("LRN",)
    relay = ("nn.lrn",)
    cases = (Case((f32(2, 5, 3, 2),), {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 1.0}),
             Case((f32(1, 37, 4, 5),), {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 2.0}),
             Case((f32(1, 16, 3, 3),), {"size": 4, "alpha": 2.0, "beta": 0.6, "bias": 1.0}),
             Case((f32(1, 3, 2, 2),), {"size": 9, "alpha": 2.0, "beta": 1.5, "bias": 0.5}),
             Case((f32(1, 3, 2, 2),), {"size": 3, "alpha": 2.0, "beta": -0.5, "bias": 0.5}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 4 or attrs.size < 1:
            raise ShapeError(f"a window of {attrs.size} over the channels of {x}")
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        before, channels = (attrs.size - 1) // 2, x.shape[1]
        squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (before, attrs.size - 1 - before), (0, 0), (0, 0)))
        total = sum(squares[:, i:i + channels] for i in range(attrs.size))
        return ((x / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta).astype(x.dtype),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        shape = node.type_of(node.inputs[0]).shape
        attrs = {"size": node.attr("size"), "alpha": node.attr("alpha", 1e-4), "beta": node.attr("beta", 0.75),
                 "bias": node.attr("bias", 1.0)}
        if len(shape) == 4:
            return node.emit(cls.kind, node.inputs, **attrs)
        (value,) = node.emit("reshape", node.inputs, shape=(*shape[:2], 1, product(shape[2:])))
        return node.emit("reshape", node.emit(cls.kind, (value,), **attrs), shape=shape)
