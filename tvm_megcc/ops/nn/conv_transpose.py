# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution over two spatial axes, and the importer of ONNX's ConvTranspose. Over three axes it becomes a
matrix product and col2im."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most
from ...ir.dims import Dim, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from .windows import require_known_weights


@register
class Conv2dTranspose(Operator):
    """y[n, o, h*sh + i*dh - top, w*sw + j*dw - left] += x[n, c, h, w] * w[c, o, i, j], starting from b[o].

    It serves ONNX's ConvTranspose over one or two spatial axes, relax.nn.conv2d_transpose and Relay's
    nn.conv2d_transpose.

    Operands, of one dtype: x [N, C, H, W]; w [C, O / groups, KH, KW]; b [O]. Result: [N, O, OH, OW].
    Attributes: `strides`, `dilations` (h, w); `output_padding` (h, w), rows and columns that are added at the end of
    the result; `pads` (top, left, bottom, right), which are then cropped from it; `groups`.
    """

    kind = "conv2d_transpose"
    operands = ("x", "w", "b?")
    onnx = ("ConvTranspose",)
    relax = ("relax.nn.conv2d_transpose",)
    relay = ("nn.conv2d_transpose",)
    channel_axis = 1

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 4 or w.rank != 4:
            raise ShapeError(f"requires operands of rank 4, not {x} and {w}")
        require_known_weights(w)
        if x.shape[1] != w.shape[0] or w.shape[0] % attrs.groups:
            raise ShapeError(f"weights {w} in {attrs.groups} groups require {w.shape[0]} input channels, {x} has "
                             f"{x.shape[1]}")
        outputs = w.shape[1] * attrs.groups
        if b is not None and b.shape != (outputs,):
            raise ShapeError(f"bias {b} for {outputs} output channels")
        spatial = [_full_extent(x.shape[2 + i], w.shape[2 + i], attrs.strides[i], attrs.dilations[i])
                   + attrs.output_padding[i] - attrs.pads[i] - attrs.pads[2 + i] for i in range(2)]
        for dim in spatial:
            require_at_most(1, dim, f"pads {attrs.pads} leave nothing of the result")
        return (TensorType(x.dtype, (x.shape[0], outputs, *spatial)),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        # Sums in float64, as in conv2d.
        (sh, sw), (dh, dw), (top, left, _, _) = attrs.strides, attrs.dilations, attrs.pads
        (n, channels, ih, iw), (_, outputs, kh, kw), groups = x.shape, w.shape, attrs.groups
        (type_,) = Conv2dTranspose.infer(attrs, TensorType("float32", x.shape), TensorType("float32", w.shape))
        oh, ow = type_.shape[2:]
        full = np.zeros((n, groups, outputs, max(_full_extent(ih, kh, sh, dh), top + oh),
                         max(_full_extent(iw, kw, sw, dw), left + ow)))
        grouped = x.astype(np.float64).reshape(n, groups, channels // groups, ih, iw)
        weights = w.astype(np.float64).reshape(groups, channels // groups, outputs, kh, kw)
        for i in range(kh):
            for j in range(kw):
                full[..., i * dh:i * dh + ih * sh:sh, j * dw:j * dw + iw * sw:sw] \
                    += np.einsum("ngchw,gco->ngohw", grouped, weights[..., i, j], optimize=True)
        y = full[..., top:top + oh, left:left + ow].reshape(n, groups * outputs, oh, ow).astype(x.dtype)
        return (y if b is None else y + b.reshape(-1, 1, 1),)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        x, w = node.type(0), node.type(1)
        axes = x.rank - 2
        if w.rank != x.rank or axes not in (1, 2, 3):
            raise ShapeError(f"transposed convolution of {x} with weights {w}; 1 to 3 spatial axes are supported")
        attrs = _attributes(node, x.shape[2:], w.shape[2:])
        if axes == 3:
            return _emit_conv3d_transpose(node, attrs)
        if axes == 2:
            return node.emit(cls.kind, node.inputs, **attrs)
        # One spatial axis is imported as two with height 1.
        attrs = {**attrs, "strides": (1, *attrs["strides"]), "dilations": (1, *attrs["dilations"]),
                 "output_padding": (0, *attrs["output_padding"]), "pads": (0, attrs["pads"][0], 0, attrs["pads"][1])}
        (tall,) = node.emit("reshape", node.inputs[:1], shape=(*x.shape[:2], 1, x.shape[2]))
        (kernel,) = node.emit("reshape", node.inputs[1:2], shape=(*w.shape[:2], 1, w.shape[2]))
        (y,) = node.emit(cls.kind, (tall, kernel, *node.inputs[2:]), **attrs)
        shape = node.type_of(y).shape
        return node.emit("reshape", (y,), shape=(*shape[:2], shape[3]))

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return inputs[0].size * product(inputs[1].shape[1:])


def _full_extent(extent: Dim, kernel: int, stride: int, dilation: int) -> Dim:
    """Returns the extent of the result's axis before `output_padding` and `pads`."""
    return (extent - 1) * stride + (kernel - 1) * dilation + 1


def _attributes(node: OnnxNode, extents, kernel) -> dict:
    """Returns the attributes of our operator for an ONNX node.

    ONNX's `output_shape` and `auto_pad` become `output_padding` where the result is longer than the windows reach, and
    `pads` where it is shorter. An odd number of pads has one more at the end with SAME_UPPER, else at the begin.

    Args:
        extents, kernel: the spatial extents of x and w.

    Raises:
        MegccError: for attributes that contradict each other, and for an output shape of symbolic extents.
    """
    axes = len(kernel)
    strides, dilations = (tuple(node.attr(name, [1] * axes)) for name in ("strides", "dilations"))
    extra = tuple(node.attr("output_padding", [0] * axes))
    pads = tuple(node.attr("pads", [0] * (2 * axes)))
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape")
    if not len(strides) == len(dilations) == len(extra) == axes or len(pads) != 2 * axes:
        raise MegccError(f"strides {strides}, dilations {dilations}, pads {pads} and output_padding {extra} do not "
                         f"fit {axes} spatial axes")
    if min(*strides, *dilations, *kernel) < 1 or min(*extra, *pads) < 0:
        raise MegccError(f"strides {strides} and dilations {dilations} must be positive, pads {pads} and "
                         f"output_padding {extra} not negative")
    if auto == "VALID":
        pads = (0,) * (2 * axes)
    elif auto not in ("NOTSET", "", "SAME_UPPER", "SAME_LOWER"):
        raise MegccError(f"auto_pad {auto} is unknown")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    if wanted is not None:
        wanted = list(wanted)[-axes:]  # ONNX Runtime allows batch and channels before the spatial extents
        begins, ends, added = [], [], []
        for index in range(axes):
            full = _full_extent(extents[index], kernel[index], strides[index], dilations[index])
            surplus = full + extra[index] - wanted[index]
            if not isinstance(surplus, int):
                raise MegccError(f"output_shape {wanted} of the symbolic extent {extents[index]}; give the input a "
                                 "shape")
            cut = max(surplus, 0)
            begins.append(cut // 2 if auto == "SAME_UPPER" else cut - cut // 2)
            ends.append(cut - begins[-1])
            added.append(extra[index] + max(-surplus, 0))
        pads, extra = (*begins, *ends), tuple(added)
    return {"strides": strides, "dilations": dilations, "output_padding": extra, "pads": pads,
            "groups": node.attr("group", 1)}


def _emit_conv3d_transpose(node: OnnxNode, attrs: dict) -> tuple[str, ...]:
    """Emits a transposed convolution over three spatial axes: columns = wᵀ x for each group, which col2im sums into the
    image."""
    x, w = node.type(0), node.type(1)
    groups, pixels = attrs["groups"], product(x.shape[2:])
    if x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(f"weights {w} in {groups} groups for {x}")
    inputs, outputs = w.shape[0] // groups, w.shape[1]
    (weights,) = node.emit("reshape", node.inputs[1:2], shape=(1, groups, inputs, outputs * product(w.shape[2:])))
    (value,) = node.emit("reshape", node.inputs[:1], shape=(x.shape[0], groups, inputs, pixels))
    (columns,) = node.emit("matmul", (weights, value), trans_a=1, trans_b=0)
    (columns,) = node.emit("reshape", (columns,),
                           shape=(x.shape[0], groups * outputs * product(w.shape[2:]), pixels))
    image = [_full_extent(x.shape[2 + i], w.shape[2 + i], attrs["strides"][i], attrs["dilations"][i])
             + attrs["output_padding"][i] - attrs["pads"][i] - attrs["pads"][3 + i] for i in range(3)]
    (y,) = node.emit("col2im", (columns,), channels=groups * outputs, image=tuple(image),
                     kernel=tuple(w.shape[2:]), blocks=tuple(x.shape[2:]), strides=attrs["strides"],
                     dilations=attrs["dilations"], pads=attrs["pads"][:3])
    if not node.has(2):
        return (y,)
    (bias,) = node.emit("reshape", node.inputs[2:3], shape=(1, groups * outputs, 1, 1, 1))
    return node.emit("add", (y, bias))


def _case(x, w, bias=True, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), output_padding=(0, 0), groups=1,
          constant=(1, 2)) -> Case:
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "output_padding": output_padding,
             "groups": groups}
    return Case((f32(*x), f32(*w), f32(w[1] * groups) if bias else None), attrs, constant)


Conv2dTranspose.cases = (
    _case((1, 5, 1, 1), (5, 33, 4, 4)),
    _case((2, 37, 5, 19), (37, 32, 2, 2), strides=(2, 2), bias=False),
    _case((1, 17, 6, 13), (17, 20, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)),
    _case((1, 8, 4, 5), (8, 9, 3, 2), strides=(5, 4), output_padding=(2, 3)),
    _case((2, 7, 5, 6), (7, 5, 3, 4), strides=(2, 3), dilations=(2, 2), pads=(2, 0, 1, 3)),
    _case((1, 20, 4, 18), (20, 18, 2, 5), dilations=(3, 2), pads=(0, 4, 1, 2)),
    _case((1, 32, 5, 6), (32, 16, 3, 3), strides=(2, 2), pads=(1, 1, 0, 0), groups=2),
    _case((2, 6, 4, 5), (6, 3, 3, 3), strides=(2, 2), groups=3),
    _case((1, 33, 5, 19), (33, 1, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1), groups=33),
    _case((1, 16, 1, 23), (16, 1, 1, 3), strides=(1, 2), groups=16, bias=False),
    _case((1, 32, 5, 7), (32, 1, 5, 5), strides=(2, 2), pads=(1, 1, 2, 2)),
    _case((2, 16, 3, 21), (16, 3, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 3), bias=False),
    _case((1, 16, 3, 4), (16, 2, 1, 2), strides=(3, 3), output_padding=(2, 1)),
    _case((1, 4, 3, 3), (4, 6, 3, 3), strides=(2, 2), constant=()),
)
