# SPDX-License-Identifier: Apache-2.0
"""Copies, which passes insert where a view is not possible, and ONNX's BitCast."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.narrow import bits_of
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from ..cast import element_type
from ..memory import same_memory


@register
class Copy(Operator):
    """Copies a tensor of any type to memory of its own."""

    kind = "copy"
    cases = (Case((f32(2, 5, 3, 4),)), Case((f32(),)), Case((((7,), "int64"),)))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(x.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.copy(),)


@register
class BitCast(Operator):
    """ONNX's BitCast: reinterprets the bits of each element as attribute `dtype`, which has the same size."""

    kind = "bitcast"
    onnx = ("BitCast",)
    on_bits = True
    cases = (Case((f32(2, 5, 3, 4),), {"dtype": "int32"}),
             Case((((7,), "int64"),), {"dtype": "float64"}),
             Case((((3, 2), "bool"),), {"dtype": "uint8"}),
             Case((((9,), "uint16"),), {"dtype": "bfloat16"}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        if bits_of(x.dtype) != bits_of(attrs.dtype):
            raise ShapeError(f"{x.dtype} has {bits_of(x.dtype)} bits, {attrs.dtype} has {bits_of(attrs.dtype)}")
        return (TensorType(attrs.dtype, x.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x.view(np.dtype(attrs.dtype)),)

    @staticmethod
    def view_offset(attrs: Attrs, inputs: Types, outputs: Types) -> Dim | None:
        return 0 if same_memory(inputs[0], outputs[0]) else None

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict[str, Any]:
        return {"dtype": element_type(node.attr("to"))}
