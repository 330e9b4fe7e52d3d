# SPDX-License-Identifier: Apache-2.0
"""Convolution over three spatial axes."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from .windows import convolution_attrs, output_extent, pad_for_windows, require_known_weights


@register
class Conv3d(Operator):
    """The convolution of `conv2d` over three spatial axes, for ONNX's Conv, relax.nn.conv3d and Relay's nn.conv3d.

    Operands, of one dtype: x [N, C, D, H, W]; w [O, C / groups, KD, KH, KW]; b [O]. Result: [N, O, OD, OH, OW].
    Attributes: `strides`, `dilations` (d, h, w); `pads` (front, top, left, back, bottom, right); `groups`.
    """

    kind = "conv3d"
    operands = ("x", "w", "b?")
    relax = ("relax.nn.conv3d",)
    relay = ("nn.conv3d",)
    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 5 or w.rank != 5:
            raise ShapeError(f"requires operands of rank 5, not {x} and {w}")
        require_known_weights(w)
        if w.shape[1] * attrs.groups != x.shape[1] or w.shape[0] % attrs.groups:
            raise ShapeError(f"weights {w} in {attrs.groups} groups do not fit {x}")
        if b is not None and b.shape != w.shape[:1]:
            raise ShapeError(f"bias {b} for {w.shape[0]} output channels")
        spatial = [output_extent(x.shape[2 + i], w.shape[2 + i], attrs.strides[i], attrs.dilations[i], attrs.pads[i],
                                 attrs.pads[3 + i]) for i in range(3)]
        return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        # Sums in float64, as in conv2d.
        padded = np.pad(x, ((0, 0), (0, 0), *zip(attrs.pads[:3], attrs.pads[3:], strict=True)))
        axes = list(zip(padded.shape[2:], w.shape[2:], attrs.strides, attrs.dilations, strict=True))
        outputs = [output_extent(*axis, before=0, after=0) for axis in axes]
        grouped = padded.reshape(x.shape[0], attrs.groups, w.shape[1], *padded.shape[2:])
        weights = w.astype(np.float64).reshape(attrs.groups, w.shape[0] // attrs.groups, *w.shape[1:])
        y = np.zeros((x.shape[0], attrs.groups, w.shape[0] // attrs.groups, *outputs))
        for tap in np.ndindex(*w.shape[2:]):
            window = grouped[(..., *(slice(t * d, t * d + (n - 1) * s + 1, s)
                                     for t, n, (_, _, s, d) in zip(tap, outputs, axes, strict=True)))]
            y += np.einsum("ngidhw,goi->ngodhw", window, weights[(..., *tap)], optimize=True)
        y = y.reshape(x.shape[0], w.shape[0], *outputs).astype(x.dtype)
        return (y if b is None else y + b.reshape(-1, 1, 1, 1),)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * product(inputs[1].shape[1:])


def emit_conv3d(node: OnnxNode) -> tuple[str, ...]:
    """Imports an ONNX Conv whose operand has three spatial axes."""
    value, windows = pad_for_windows(node, node.inputs[0], node.type(1).shape[2:], fill=0)
    return node.emit(Conv3d.kind, (value, *node.inputs[1:]), groups=node.attr("group", 1),
                     **convolution_attrs(windows))


def _case(x, w, bias=True, strides=(1, 1, 1), pads=(0,) * 6, dilations=(1, 1, 1), groups=1) -> Case:
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return Case((f32(*x), f32(*w), f32(w[0]) if bias else None), attrs, (1, 2))


Conv3d.cases = (
    _case((1, 3, 5, 6, 37), (5, 3, 3, 3, 3), pads=(1,) * 6),
    _case((2, 4, 4, 5, 19), (6, 2, 2, 3, 1), strides=(2, 1, 2), pads=(0, 1, 0, 1, 1, 2), groups=2, bias=False),
    _case((1, 5, 6, 3, 9), (4, 5, 2, 1, 3), dilations=(3, 1, 2), pads=(0, 0, 3, 2, 0, 1)),
    _case((1, 3, 1, 1, 1), (7, 3, 1, 1, 1)),
)
