# SPDX-License-Identifier: Apache-2.0
"""Deformable convolution (Dai et al. 2017; with a mask, Zhu et al. 2018): ONNX's DeformConv and Relay's
nn.deformable_conv2d."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from ..rules import shape_text
from .windows import convolution_attrs, output_extent, require_known_weights, window_attrs


@register
class DeformConv(Operator):
    """A convolution over two spatial axes whose taps read x at positions that are shifted by operand `offset`, with
    bilinear interpolation and zeros around x, times operand `mask`.

    Operands, of one dtype: x [N, C, H, W]; w [O, C / groups, KH, KW]; offset [N, offset_groups * KH * KW * 2, OH, OW],
    for each tap the shift of the row, then of the column, in pixels; b [O]; mask [N, offset_groups * KH * KW, OH, OW].
    Result: [N, O, OH, OW]. Attributes: those of `conv2d`; `offset_groups`: the number of groups of channels of x with
    offsets of their own.
    """

    kind = "deform_conv"
    operands = ("x", "w", "offset", "b?", "mask?")
    onnx = ("DeformConv",)
    relay = ("nn.deformable_conv2d",)
    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, w: TensorType, offset: TensorType, b: TensorType | None = None,
              mask: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 4 or w.rank != 4 or offset.rank != 4:
            raise ShapeError(f"requires operands of rank 4, not {x}, {w} and {offset}: only images are supported")
        require_known_weights(w)
        if w.shape[1] * attrs.groups != x.shape[1] or w.shape[0] % attrs.groups or x.shape[1] % attrs.offset_groups:
            raise ShapeError(f"weights {w} in {attrs.groups} groups, offsets in {attrs.offset_groups}, do not fit {x}")
        if b is not None and b.shape != w.shape[:1]:
            raise ShapeError(f"bias {b} for {w.shape[0]} output channels")
        spatial = tuple(output_extent(x.shape[2 + i], w.shape[2 + i], attrs.strides[i], attrs.dilations[i],
                                      attrs.pads[i], attrs.pads[2 + i]) for i in range(2))
        taps = attrs.offset_groups * product(w.shape[2:])
        for name, type_, channels in (("offset", offset, 2 * taps), ("mask", mask, taps)):
            if type_ is not None:
                wanted = (x.shape[0], channels, *spatial)
                require_shape(type_.shape, wanted, f"{name} is {type_}, not {shape_text(wanted)}")
        return (TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, w: np.ndarray, offset: np.ndarray, b: np.ndarray | None = None,
                mask: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        (n, c, ih, iw), (oc, per_group, kh, kw), (oh, ow) = x.shape, w.shape, offset.shape[2:]
        parts, taps = attrs.offset_groups, kh * kw
        shifts = offset.astype(np.float32).reshape(n, parts, taps, 2, oh, ow)
        factors = np.ones((n, parts, taps, oh, ow)) if mask is None else mask.reshape(n, parts, taps, oh, ow)
        # Positions in x of each tap of each result, [n, parts, taps, oh, ow], in float32 as kernels compute them. From
        # 1 pixel outside of x on all is zero, so positions are clipped to -2 and the extent + 1. x is padded by 2 zeros
        # before and 3 after, which the four neighbours of a position need.
        tap = np.arange(taps)[:, None, None]
        rows = (np.arange(oh)[:, None] * attrs.strides[0] - attrs.pads[0] + tap // kw * attrs.dilations[0]) \
            .astype(np.float32) + shifts[..., 0, :, :]
        columns = (np.arange(ow) * attrs.strides[1] - attrs.pads[1] + tap % kw * attrs.dilations[1]) \
            .astype(np.float32) + shifts[..., 1, :, :]
        rows, columns = (np.clip(np.nan_to_num(v, nan=-2), -2, extent + 1) for v, extent in ((rows, ih), (columns, iw)))
        top, left = np.floor(rows), np.floor(columns)
        padded = np.pad(x, ((0, 0), (0, 0), (2, 3), (2, 3))).astype(np.float64).reshape(n, parts, c // parts, ih + 5,
                                                                                       iw + 5)
        image, part = np.arange(n)[:, None, None, None, None], np.arange(parts)[None, :, None, None, None]
        total = np.zeros((n, parts, taps, oh, ow, c // parts))
        for down in (0, 1):
            for right in (0, 1):
                corner_weights = np.abs(1 - down - (rows - top)) * np.abs(1 - right - (columns - left))
                corner = padded[image, part, :, (top + down + 2).astype(int), (left + right + 2).astype(int)]
                total += corner * (corner_weights * factors)[..., None]
        windows = np.moveaxis(total, -1, 2).reshape(n, attrs.groups, per_group * taps, oh, ow)
        filters = w.astype(np.float64).reshape(attrs.groups, oc // attrs.groups, per_group * taps)
        y = np.einsum("ngkhw,gok->ngohw", windows, filters, optimize=True).reshape(n, oc, oh, ow).astype(x.dtype)
        return (y if b is None else y + b.reshape(-1, 1, 1),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        if node.type(0).rank != 4:
            raise MegccError(f"only two spatial axes are supported, not those of {node.type(0)}")
        attrs = window_attrs(node, node.type(1).shape[2:])
        return {**convolution_attrs(attrs), "groups": node.attr("group", 1),
                "offset_groups": node.attr("offset_group", 1)}

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return outputs[0].size * product(inputs[1].shape[1:])


DeformConv.cases = (
    Case((f32(1, 6, 5, 7), f32(4, 6, 3, 3), f32(1, 18, 5, 7), f32(4)),
         {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1, "offset_groups": 1}, (1, 3)),
    Case((f32(2, 4, 6, 5), f32(6, 2, 2, 3), f32(2, 24, 3, 3), None, f32(2, 12, 3, 3)),
         {"strides": (2, 1), "dilations": (2, 1), "pads": (0, 0, 1, 0), "groups": 2, "offset_groups": 2}, (1,)),
    # A last block of channels of x that is not full, groups of offsets that end within a vector, and vectors of y that
    # are not full; then two groups of whole blocks.
    Case((f32(1, 40, 5, 7), f32(21, 40, 3, 3), f32(1, 36, 5, 7), f32(21), f32(1, 18, 5, 7)),
         {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1, "offset_groups": 2}, (1, 3)),
    Case((f32(2, 32, 3, 6), f32(64, 16, 2, 3), f32(2, 12, 2, 4), f32(64)),
         {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "groups": 2, "offset_groups": 1}, (1, 3)),
)
