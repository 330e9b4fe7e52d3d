# SPDX-License-Identifier: Apache-2.0
"""Float operators of com.microsoft that ONNX Runtime's optimiser creates by fusion: activations, and products and
convolutions with the operators after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import Decomposition, OnnxNode, decomposes
from ..elementwise import emit_broadcast
from ..emit_onnx import given, number, onnx_operator

DOMAIN = "com.microsoft"


def contrib(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Registers a function as the importer of operators of com.microsoft."""
    return decomposes(*(f"{DOMAIN}::{name}" for name in names))


def _same(node: OnnxNode) -> tuple[str, ...]:
    """Imports ONNX's operator of the same name, operands and attributes."""
    attributes = {name: node.attr(name) for name in ("mode", "upper") if node.attr(name) is not None}
    return (onnx_operator(node, node.op_type, *node.inputs, opset=16, **attributes),)


contrib("Trilu", "GatherND", "Pad")(_same)


@contrib("GridSample")
def grid_sample(node: OnnxNode) -> tuple[str, ...]:
    """Imports GridSample as ONNX's of operator set 16. Cubic interpolation with padding by the border is refused, since
    the two differ there."""
    mode, padding = node.attr("mode", "bilinear"), node.attr("padding_mode", "zeros")
    if (mode, padding) == ("bicubic", "border"):
        raise MegccError("mode bicubic with padding_mode border is not supported; use ONNX's GridSample")
    return (onnx_operator(node, "GridSample", *node.inputs, opset=16, mode=mode, padding_mode=padding,
                          align_corners=node.attr("align_corners", 0)),)


@contrib("QuantizeLinear", "DequantizeLinear")
def quantisation(node: OnnxNode) -> tuple[str, ...]:
    """Imports QuantizeLinear and DequantizeLinear, which are ONNX's with more dtypes."""
    return (onnx_operator(node, node.op_type, *node.inputs, axis=node.attr("axis", 1)),)


@contrib("ExpandDims")
def expand_dims(node: OnnxNode) -> tuple[str, ...]:
    (axis,) = node.const(1, "axis").reshape(-1)
    shape = list(node.type(0).shape)
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ShapeError(f"axis {axis} of a result with {len(shape) + 1} axes")
    shape.insert(int(axis) % (len(shape) + 1), 1)
    return node.emit("reshape", node.inputs[:1], shape=tuple(shape))


def _with_bias(node: OnnxNode) -> str:
    return emit_broadcast(node, "add", node.inputs[:2])[0] if node.has(1) else node.inputs[0]


@contrib("Gelu", "BiasGelu")
def gelu(node: OnnxNode) -> tuple[str, ...]:
    return node.emit("gelu", (_with_bias(node),))


@contrib("FastGelu")
def fast_gelu(node: OnnxNode) -> tuple[str, ...]:
    return node.emit("gelu_tanh", (_with_bias(node),))


@contrib("QuickGelu")
def quick_gelu(node: OnnxNode) -> tuple[str, ...]:
    return node.emit("swish", node.inputs, alpha=float(node.attr("alpha", 1.702)))


#: Attributes of ONNX's activations, in the order of `activation_params`.
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"), "Relu": (),
               "Tanh": (), "Sigmoid": (), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",), "Selu": ("alpha", "gamma"),
               "HardSwish": (), "Softplus": (), "Softsign": ()}


def activated(node: OnnxNode, value: str, kind: str, given_: Sequence[float] = ()) -> str:
    """Applies the activation of this name to a value; "" for none."""
    if not kind:
        return value
    if kind not in _PARAMETERS:
        raise MegccError(f"activation {kind} is not supported")
    parameters = dict(zip(_PARAMETERS[kind], given_, strict=False))
    return onnx_operator(node, kind, value, opset=10 if kind == "Clip" else 22, **parameters)


def _transposed(node: OnnxNode, index: int, last: bool, batch: bool) -> str:
    """Transposes operand `index`: swaps its last two axes (`last`), and moves its first axis before the last one
    (`batch`)."""
    value, rank = node.inputs[index], node.type(index).rank
    if rank < 2:
        return value
    order = list(range(rank))
    if batch and rank > 2:
        order = [*order[1:-1], 0, rank - 1]
    if last:
        order[-2:] = order[:-3:-1]
    return onnx_operator(node, "Transpose", value, perm=order)


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(node: OnnxNode) -> tuple[str, ...]:
    a, b = node.type(0), node.type(1)
    swapped = [node.attr(name, 0) for name in ("transA", "transB")]
    batch = [node.attr(name, 0) for name in ("transBatchA", "transBatchB")]
    if min(a.rank, b.rank) >= 2 and not any(batch):
        (y,) = node.emit("matmul", node.inputs[:2], trans_a=swapped[0], trans_b=swapped[1])
    else:
        y = onnx_operator(node, "MatMul", *(_transposed(node, index, bool(swapped[index]), bool(batch[index]))
                                            for index in range(2)))
    alpha = float(node.attr("alpha", 1.0))
    return (y,) if alpha == 1.0 else node.emit("mul", (y, number(node, alpha, a.dtype)))


@contrib("FusedGemm")
def fused_gemm(node: OnnxNode) -> tuple[str, ...]:
    attributes = {name: node.attr(name, 0) for name in ("transA", "transB")}
    attributes |= {name: node.attr(name, 1.0) for name in ("alpha", "beta")}
    y = onnx_operator(node, "Gemm", *node.inputs, **attributes)
    kind = node.attr("activation", "")
    values = {name: node.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    if kind not in ("", *_PARAMETERS) or kind == "Clip":
        raise MegccError(f"activation {kind} is not supported")
    if kind:
        given_ = {name: values[name] for name in _PARAMETERS[kind] if values[name] is not None}
        y = onnx_operator(node, kind, y, **given_)
    return (y,)


_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode", "output_padding")


def window_attributes(node: OnnxNode) -> dict:
    return {name: node.attr(name) for name in _WINDOW if node.attr(name) is not None}


def channels_first(node: OnnxNode, value: str) -> str:
    rank = node.type_of(value).rank
    return onnx_operator(node, "Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(node: OnnxNode, value: str) -> str:
    rank = node.type_of(value).rank
    return onnx_operator(node, "Transpose", value, perm=[0, *range(2, rank), 1])


def _has_channels_last(node: OnnxNode) -> bool:
    """Whether weights are [M, kH, kW, C / group], as ONNX Runtime's kernels expect, contrary to the documentation."""
    x, w = node.type(0).shape, node.type(1).shape
    window = node.attr("kernel_shape")
    return w[-1] * node.attr("group", 1) == x[-1] and (not window or tuple(window) == tuple(w[1:-1]))


@contrib("FusedConv", "NhwcConv", "NhwcFusedConv")
def fused_conv(node: OnnxNode) -> tuple[str, ...]:
    """Operands: X, W, B, and Z, which is added before the activation. Two of these operators have X, Z and the result
    channels-last, and NhwcConv also W."""
    last = node.op_type != "FusedConv"
    x, w = node.inputs[:2]
    if node.op_type == "NhwcConv" and _has_channels_last(node):
        w = channels_first(node, w)
    x = channels_first(node, x) if last else x
    y = onnx_operator(node, "Conv", x, w, given(node, 2), **window_attributes(node))
    if node.has(3):
        z = channels_first(node, node.inputs[3]) if last else node.inputs[3]
        (y,) = emit_broadcast(node, "add", (y, z))
    y = activated(node, y, node.attr("activation", ""), node.attr("activation_params", ()))
    return (channels_last(node, y) if last else y,)


@contrib("NhwcMaxPool")
def max_pool(node: OnnxNode) -> tuple[str, ...]:
    x = channels_first(node, node.inputs[0])
    return (channels_last(node, onnx_operator(node, "MaxPool", x, **window_attributes(node))),)


@contrib("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearConv, which is ONNX's except that X and Y may be channels-last."""
    last = node.attr("channels_last", 0)
    x = channels_first(node, node.inputs[0]) if last else node.inputs[0]
    y = onnx_operator(node, "QLinearConv", x, *node.inputs[1:], **window_attributes(node))
    return (channels_last(node, y) if last else y,)


@contrib("ConvTransposeWithDynamicPads")
def conv_transpose(node: OnnxNode) -> tuple[str, ...]:
    """Operands: X, W, Pads, B. Pads that are computed at run time are cropped from the result without padding."""
    attributes, operands = window_attributes(node), (*node.inputs[:2], given(node, 3))
    if not node.has(2) or node.is_constant(node.inputs[2]):
        if node.has(2):
            attributes["pads"] = [int(pad) for pad in node.const(2, "Pads").reshape(-1)]
        return (onnx_operator(node, "ConvTranspose", *operands, **attributes),)
    axes = node.type(0).rank - 2
    y = onnx_operator(node, "ConvTranspose", *operands, **attributes | {"pads": [0] * 2 * axes})
    zero, middle, end = (node.constant(np.array([bound])) for bound in (0, axes, 2 * axes))
    first = onnx_operator(node, "Slice", node.inputs[2], zero, middle)
    end_pads = onnx_operator(node, "Slice", node.inputs[2], middle, end)
    last = onnx_operator(node, "Sub", onnx_operator(node, "Shape", y, start=2), end_pads)
    return (onnx_operator(node, "Slice", y, first, last, node.constant(np.arange(2, 2 + axes))),)


@contrib("Rfft", "Irfft")
def real_fourier(node: OnnxNode) -> tuple[str, ...]:
    """Imports Rfft over the last axis, and Irfft from [..., frequencies, 2]; the signal has an even length."""
    from ..math.spectral import transformed
    if node.attr("normalized", 0) or not node.attr("onesided", 1) or node.attr("signal_ndim", 1) != 1:
        raise MegccError("wants attributes normalized = 0, onesided = 1 and signal_ndim = 1")
    shape = node.type(0).shape
    if node.op_type == "Rfft":
        (value,) = node.emit("reshape", node.inputs[:1], shape=(*shape, 1))
        return (transformed(node, value, shape[-1], False, True),)
    length = 2 * (shape[-2] - 1)
    value = transformed(node, node.inputs[0], length, True, True)
    return node.emit("reshape", (value,), shape=(*shape[:-2], length))
