# SPDX-License-Identifier: Apache-2.0
"""Convolution over two spatial axes, dense, grouped and depthwise, and the importer of ONNX's Conv."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from .conv3d import emit_conv3d
from .windows import convolution_attrs, output_extent, pad_for_windows, require_known_weights


@register
class Conv2d(Operator):
    """y[n, o, h, w] = b[o] + sum over i, kh, kw of x[n, i, h*sh + kh*dh - top, w*sw + kw*dw - left] * w[o, i, kh, kw].

    It serves ONNX's Conv over one or two spatial axes, relax.nn.conv2d and Relay's nn.conv2d.

    Operands, of one dtype: x [N, C, H, W]; w [O, C / groups, KH, KW]; b [O]. Result: [N, O, OH, OW].
    Attributes: `strides` (sh, sw), `dilations` (dh, dw); `pads` (top, left, bottom, right); `groups`.
    """

    kind = "conv2d"
    operands = ("x", "w", "b?")
    onnx = ("Conv",)
    relax = ("relax.nn.conv2d",)
    relay = ("nn.conv2d",)
    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 4 or w.rank != 4:
            raise ShapeError(f"requires operands of rank 4, not {x} and {w}")
        require_known_weights(w)
        outputs, inputs = w.shape[:2]
        if inputs * attrs.groups != x.shape[1]:
            raise ShapeError(f"weights {w} require {inputs * attrs.groups} input channels, {x} has {x.shape[1]}")
        if outputs % attrs.groups:
            raise ShapeError(f"{outputs} output channels do not divide into {attrs.groups} groups")
        if b is not None and b.shape != (outputs,):
            raise ShapeError(f"bias {b} for {outputs} output channels")
        spatial = [output_extent(x.shape[2 + i], w.shape[2 + i], attrs.strides[i], attrs.dilations[i],
                                 attrs.pads[i], attrs.pads[2 + i]) for i in range(2)]
        return (TensorType(x.dtype, (x.shape[0], outputs, *spatial)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        # Sums in float64, since the reference must not depend on the rounding of the machine's BLAS.
        (sh, sw), (dh, dw), (top, left, bottom, right) = attrs.strides, attrs.dilations, attrs.pads
        outputs, inputs, kh, kw = w.shape
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        oh = (padded.shape[2] - (kh - 1) * dh - 1) // sh + 1
        ow = (padded.shape[3] - (kw - 1) * dw - 1) // sw + 1
        grouped = padded.reshape(x.shape[0], attrs.groups, inputs, *padded.shape[2:])
        weights = w.astype(np.float64).reshape(attrs.groups, outputs // attrs.groups, inputs, kh, kw)
        y = np.zeros((x.shape[0], attrs.groups, outputs // attrs.groups, oh, ow))
        for i in range(kh):
            for j in range(kw):
                window = grouped[..., i * dh:i * dh + (oh - 1) * sh + 1:sh, j * dw:j * dw + (ow - 1) * sw + 1:sw]
                y += np.einsum("ngihw,goi->ngohw", window, weights[..., i, j], optimize=True)
        y = y.reshape(x.shape[0], outputs, oh, ow).astype(x.dtype)
        return (y if b is None else y + b.reshape(-1, 1, 1),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        return emit_convolution(node, cls.kind)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * product(inputs[1].shape[1:])


def emit_convolution(node: OnnxNode, kind: str, **attributes) -> tuple[str, ...]:
    """Emits the convolution of an ONNX node, whose operands are x, w and b.

    kind: "conv2d" or "conv2d_integer". attributes: those that the latter has besides conv2d's.

    Raises:
        ShapeError: for other than 1 to 3 spatial axes.
    """
    x, w = node.type(0), node.type(1)
    if x.rank == 5 and kind == "conv2d":
        return emit_conv3d(node)
    if x.rank not in (3, 4):
        raise ShapeError(f"convolution over {x.rank - 2} spatial axes; 1 to 3 are supported")
    value, windows = pad_for_windows(node, node.inputs[0], w.shape[2:], fill=attributes.get("x_zero", 0))
    attrs = {**convolution_attrs(windows), **attributes, "groups": node.attr("group", 1)}
    if x.rank == 4:
        return node.emit(kind, (value, *node.inputs[1:]), **attrs)
    # A convolution over one spatial axis is imported as one over two with height 1.
    x = node.type_of(value)
    (tall,) = node.emit("reshape", (value,), shape=(*x.shape[:2], 1, x.shape[2]))
    (kernel,) = node.emit("reshape", node.inputs[1:2], shape=(*w.shape[:2], 1, w.shape[2]))
    (y,) = node.emit(kind, (tall, kernel, *node.inputs[2:]), **attrs)
    shape = node.type_of(y).shape
    return node.emit("reshape", (y,), shape=(*shape[:2], shape[3]))


def _case(x, w, bias=True, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, constant=(1, 2)) -> Case:
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return Case((f32(*x), f32(*w), f32(w[0]) if bias else None), attrs, constant)


_SAME = (1, 1, 1, 1)
Conv2d.cases = (
    _case((1, 3, 5, 7), (4, 3, 1, 1)),
    _case((1, 32, 7, 7), (48, 32, 1, 1)),
    _case((2, 17, 5, 5), (20, 17, 1, 1), bias=False),
    _case((1, 64, 14, 14), (24, 64, 1, 1)),
    _case((1, 16, 9, 9), (33, 16, 1, 1), strides=(2, 2)),
    _case((1, 1, 28, 28), (8, 1, 5, 5), pads=(2, 2, 2, 2)),
    _case((1, 3, 19, 23), (16, 3, 3, 3), strides=(2, 2), pads=(0, 0, 1, 1)),
    _case((2, 3, 30, 30), (33, 3, 7, 7), strides=(2, 2), pads=(3, 3, 3, 3), bias=False),
    _case((1, 32, 14, 14), (32, 32, 3, 3), pads=_SAME),
    _case((2, 20, 11, 13), (37, 20, 3, 3), pads=_SAME),
    _case((1, 16, 10, 9), (16, 16, 3, 3), pads=(2, 1, 0, 3), strides=(3, 2)),
    _case((1, 32, 9, 17), (16, 32, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    _case((1, 16, 3, 2), (16, 16, 5, 5), pads=(3, 3, 3, 3)),
    _case((1, 4, 2, 2), (5, 4, 3, 3), pads=(4, 4, 4, 4), strides=(2, 3)),
    _case((1, 18, 1, 29), (19, 18, 1, 5), pads=(0, 2, 0, 2)),
    # Images of one column.
    _case((1, 18, 29, 1), (19, 18, 5, 1), pads=(2, 0, 3, 0), strides=(2, 1)),
    _case((2, 16, 13, 1), (16, 1, 3, 1), pads=(4, 0, 1, 0), dilations=(2, 1), groups=16),
    _case((1, 5, 4, 1), (6, 5, 3, 1), pads=(1, 1, 1, 0), strides=(1, 2)),
    _case((1, 96, 4, 4), (80, 96, 3, 3), pads=_SAME, bias=False),
    _case((1, 32, 8, 8), (32, 16, 3, 3), pads=_SAME, groups=2),
    _case((2, 64, 6, 5), (96, 32, 1, 1), groups=2),
    _case((1, 6, 8, 8), (9, 2, 3, 3), pads=_SAME, groups=3),
    _case((1, 16, 12, 12), (16, 1, 3, 3), pads=_SAME, groups=16),
    _case((2, 40, 15, 13), (40, 1, 3, 3), pads=_SAME, strides=(2, 2), groups=40),
    _case((1, 33, 9, 9), (33, 1, 5, 5), pads=(2, 2, 2, 2), groups=33, bias=False),
    _case((1, 20, 14, 14), (20, 1, 3, 3), pads=(0, 0, 1, 1), strides=(2, 2), groups=20),
    _case((1, 8, 7, 20), (8, 1, 3, 4), pads=(2, 3, 1, 0), dilations=(2, 3), groups=8),
    _case((1, 64, 1, 1), (64, 1, 1, 1), groups=64),
    _case((1, 64, 25, 5), (64, 1, 25, 5), groups=64),
    _case((1, 5, 4, 4), (10, 1, 3, 3), pads=_SAME, groups=5),
    _case((1, 300, 1, 1), (70, 300, 1, 1)),
    _case((2, 20, 3, 2), (215, 20, 3, 2)),
    _case((1, 64, 1, 1), (288, 32, 1, 1), groups=2),
    _case((1, 8, 6, 6), (12, 8, 3, 3), pads=_SAME, constant=()),
    _case((2, 38, 7, 37), (54, 19, 1, 1), groups=2),
    _case((1, 12, 9, 41), (28, 3, 3, 3), pads=(1, 2, 1, 0), strides=(1, 2), groups=4),
    _case((1, 10, 11, 70), (6, 5, 2, 3), pads=(0, 4, 1, 5), strides=(2, 3), dilations=(1, 2), groups=2, bias=False),
    _case((1, 34, 3, 33), (2, 34, 3, 5), pads=(2, 2, 2, 2), strides=(1, 2), dilations=(2, 3)),
    _case((2, 21, 30, 37), (40, 21, 3, 3), pads=(0, 1, 2, 1)),
    _case((1, 9, 6, 9), (260, 9, 3, 3), pads=_SAME, bias=False),
    _case((1, 12, 13, 11), (24, 12, 5, 5), pads=(2, 2, 2, 2)),
    # Input channels summed in chunks: of equal size, with a remainder, for two groups.
    _case((1, 384, 3, 7), (36, 384, 1, 1)),
    _case((2, 261, 3, 5), (72, 261, 1, 1), bias=False),
    _case((1, 520, 1, 11), (72, 260, 1, 1), groups=2),
    # Rows that stay in the L2 cache while two chunks of weights are applied.
    _case((2, 68, 3, 251), (40, 68, 1, 1)),
)
