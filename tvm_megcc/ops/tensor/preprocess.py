# SPDX-License-Identifier: Apache-2.0
"""Converts raw data of a camera or a microphone to a network's input in one pass over the data;
passes/canonicalize/preprocess.py emits it."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, f32, register


@register
class ConvertInput(Operator):
    """y[n, c, …] = (float32(x[n, c, …]) - mean[c]) * scale[c].

    Operands: x of any dtype, [N, C, …], or [N, …, C] with attribute `channels_last`; mean and scale float32 [C], or [1]
    for all channels. Result: float32 [N, C, …]. Attribute `reverse`: channel c of y is computed from channel C - 1 - c
    of x, as for RGB from BGR.
    """

    kind = "convert_input"
    operands = ("x", "mean", "scale")
    cases = (Case((((1, 5, 7, 3), "uint8"), f32(3), f32(3)), {"channels_last": True, "reverse": False}),
             Case((((2, 30, 41, 3), "uint8"), f32(3), f32(3)), {"channels_last": True, "reverse": True}),
             Case((((2, 3, 5, 7), "int8"), f32(3), f32(3)), {"channels_last": False, "reverse": True}),
             Case((((1, 20, 3, 5), "float32"), f32(1), f32(1)), {"channels_last": False, "reverse": False}),
             Case((((2, 9, 5, 18), "float16"), f32(18), f32(18)), {"channels_last": True, "reverse": False}),
             Case((((1, 700), "int16"), f32(1), f32(1)), {"channels_last": False, "reverse": False}),
             Case((((2, 4, 6), "int32"), f32(4), f32(4)), {"channels_last": False, "reverse": False}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, mean: TensorType, scale: TensorType) -> tuple[TensorType, ...]:
        shape = x.shape
        if attrs.channels_last:
            shape = (shape[0], shape[-1], *shape[1:-1])
        values = {(1,), shape[1:2]} if x.rank > 1 else {(1,)}
        if mean.shape != scale.shape or mean.shape not in values or {mean.dtype, scale.dtype} != {"float32"}:
            raise ShapeError(f"mean {mean} and scale {scale} for channels of {x}")
        return (TensorType("float32", shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, ...]:
        planes = np.moveaxis(x, -1, 1) if attrs.channels_last else x
        planes = planes[:, ::-1] if attrs.reverse else planes
        channel_axis = min(1, x.ndim - 1)  # x [N] has no channels: mean and scale are [1]
        per_channel = [-1 if axis == channel_axis else 1 for axis in range(x.ndim)]
        with np.errstate(all="ignore"):
            return ((planes.astype(np.float32) - mean.reshape(per_channel)) * scale.reshape(per_channel),)
