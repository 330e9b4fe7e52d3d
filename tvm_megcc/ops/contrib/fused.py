# SPDX-License-Identifier: Apache-2.0
"""Imports operators of the domain com.microsoft on floats: those that ONNX Runtime's optimiser creates by fusion
(activations, products and convolutions with the operators after them), and those that are ONNX's under another domain.

Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import Decomposition, OnnxNode, decomposes
from ..elementwise import emit_broadcast
from ..emit_onnx import OPSET, given, number, onnx_operator
from ..math.spectral import emit_dft

DOMAIN = "com.microsoft"
#: The version of ONNX's operator set whose Trilu, GatherND, Pad and GridSample have the operands of com.microsoft's.
_SAME_OPSET = 16


def contrib(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Returns a decorator that registers a function as the importer of operators of com.microsoft."""
    return decomposes(*(f"{DOMAIN}::{name}" for name in names))


def _import_onnx_equivalent(node: OnnxNode) -> tuple[str, ...]:
    """Imports ONNX's operator of the same name, operands and attributes."""
    attributes = {name: node.attr(name) for name in ("mode", "upper") if node.attr(name) is not None}
    return (onnx_operator(node, node.op_type, *node.inputs, opset=_SAME_OPSET, **attributes),)


contrib("Trilu", "GatherND", "Pad")(_import_onnx_equivalent)


@contrib("GridSample")
def grid_sample(node: OnnxNode) -> tuple[str, ...]:
    """Imports GridSample as ONNX's. Cubic interpolation with padding by the border is refused, since
    the two differ there."""
    mode, padding = node.attr("mode", "bilinear"), node.attr("padding_mode", "zeros")
    if (mode, padding) == ("bicubic", "border"):
        raise MegccError("mode bicubic with padding_mode border is not supported; use ONNX's GridSample")
    return (onnx_operator(node, "GridSample", *node.inputs, opset=_SAME_OPSET, mode=mode, padding_mode=padding,
                          align_corners=node.attr("align_corners", 0)),)


@contrib("QuantizeLinear", "DequantizeLinear")
def quantisation(node: OnnxNode) -> tuple[str, ...]:
    """Imports QuantizeLinear and DequantizeLinear as ONNX's operators, whose dtypes here are more than ONNX's first
    versions have."""
    return (onnx_operator(node, node.op_type, *node.inputs, axis=node.attr("axis", 1)),)


@contrib("ExpandDims")
def expand_dims(node: OnnxNode) -> tuple[str, ...]:
    """Imports ExpandDims, which inserts an axis of extent 1 at the constant second operand."""
    (axis,) = node.const(1, "axis").reshape(-1)
    shape = list(node.type(0).shape)
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ShapeError(f"axis {axis} of a result with {len(shape) + 1} axes")
    shape.insert(int(axis) % (len(shape) + 1), 1)
    return node.emit("reshape", node.inputs[:1], shape=tuple(shape))


def _with_bias(node: OnnxNode) -> str:
    """Emits the sum of the first operand and the second one, if there is one."""
    return emit_broadcast(node, "add", node.inputs[:2])[0] if node.has(1) else node.inputs[0]


@contrib("Gelu", "BiasGelu")
def gelu(node: OnnxNode) -> tuple[str, ...]:
    """Imports Gelu, and BiasGelu, which adds a bias first."""
    return node.emit("gelu", (_with_bias(node),))


@contrib("FastGelu")
def fast_gelu(node: OnnxNode) -> tuple[str, ...]:
    """Imports FastGelu, Gelu's approximation by tanh, of x or x + bias."""
    return node.emit("gelu_tanh", (_with_bias(node),))


@contrib("QuickGelu")
def quick_gelu(node: OnnxNode) -> tuple[str, ...]:
    """Imports QuickGelu, x * sigmoid(alpha * x)."""
    return node.emit("swish", node.inputs, alpha=float(node.attr("alpha", 1.702)))


#: Attributes of ONNX's activations, in the order of `activation_params`.
_ACTIVATION_PARAMETERS = {
    "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max"), "Relu": (), "Tanh": (),
    "Sigmoid": (), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",), "Selu": ("alpha", "gamma"), "HardSwish": (),
    "Softplus": (), "Softsign": ()}


def emit_activation(node: OnnxNode, value: str, kind: str, parameters: Sequence[float] = ()) -> str:
    """Emits ONNX's activation `kind` of a value; "" for none.

    parameters: its attributes, in the order of _ACTIVATION_PARAMETERS.
    """
    if not kind:
        return value
    if kind not in _ACTIVATION_PARAMETERS:
        raise MegccError(f"activation {kind} is not supported")
    attributes = dict(zip(_ACTIVATION_PARAMETERS[kind], parameters, strict=False))
    opset = 10 if kind == "Clip" else OPSET  # the last one in which the bounds of Clip are attributes
    return onnx_operator(node, kind, value, opset=opset, **attributes)


def _transpose_operand(node: OnnxNode, index: int, last: bool, batch: bool) -> str:
    """Transposes operand `index` of a FusedMatMul.

    batch: moves the first axis before the last one (attribute transBatchA). last: then swaps the last two axes
    (attribute transA).
    """
    value, rank = node.inputs[index], node.type(index).rank
    if rank < 2:
        return value
    order = list(range(rank))
    if batch and rank > 2:
        order = [*order[1:-1], 0, rank - 1]
    if last:
        order[-2:] = [order[-1], order[-2]]
    return onnx_operator(node, "Transpose", value, perm=order)


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(node: OnnxNode) -> tuple[str, ...]:
    """Imports FusedMatMul, alpha * A' @ B', whose operands may be transposed."""
    a, b = node.type(0), node.type(1)
    swapped = [node.attr(name, 0) for name in ("transA", "transB")]
    batch = [node.attr(name, 0) for name in ("transBatchA", "transBatchB")]
    if min(a.rank, b.rank) >= 2 and not any(batch):
        (y,) = node.emit("matmul", node.inputs[:2], trans_a=swapped[0], trans_b=swapped[1])
    else:
        y = onnx_operator(node, "MatMul", *(_transpose_operand(node, index, bool(swapped[index]), bool(batch[index]))
                                            for index in range(2)))
    alpha = float(node.attr("alpha", 1.0))
    return (y,) if alpha == 1.0 else node.emit("mul", (y, number(node, alpha, a.dtype)))


@contrib("FusedGemm")
def fused_gemm(node: OnnxNode) -> tuple[str, ...]:
    """Imports FusedGemm, a Gemm with an activation."""
    attributes = {name: node.attr(name, 0) for name in ("transA", "transB")}
    attributes |= {name: node.attr(name, 1.0) for name in ("alpha", "beta")}
    y = onnx_operator(node, "Gemm", *node.inputs, **attributes)
    kind = node.attr("activation", "")
    values = {name: node.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    # The parameters of FusedGemm are alpha, beta and gamma, so it has no bounds for a Clip.
    if kind not in ("", *_ACTIVATION_PARAMETERS) or kind == "Clip":
        raise MegccError(f"activation {kind} is not supported")
    if kind:
        parameters = {name: values[name] for name in _ACTIVATION_PARAMETERS[kind] if values[name] is not None}
        y = onnx_operator(node, kind, y, **parameters)
    return (y,)


_WINDOW_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "ceil_mode",
                      "output_padding")


def window_attributes(node: OnnxNode) -> dict:
    """Returns the attributes of windows (strides, pads, …) that the node has."""
    return {name: node.attr(name) for name in _WINDOW_ATTRIBUTES if node.attr(name) is not None}


def channels_first(node: OnnxNode, value: str) -> str:
    """Emits a transpose from [N, …, C] to [N, C, …]."""
    rank = node.type_of(value).rank
    return onnx_operator(node, "Transpose", value, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(node: OnnxNode, value: str) -> str:
    """Emits a transpose from [N, C, …] to [N, …, C]."""
    rank = node.type_of(value).rank
    return onnx_operator(node, "Transpose", value, perm=[0, *range(2, rank), 1])


def _weights_are_channels_last(node: OnnxNode) -> bool:
    """Returns whether weights are [M, kH, kW, C / group], as ONNX Runtime's kernels expect, contrary to its
    documentation."""
    x, w = node.type(0).shape, node.type(1).shape
    window = node.attr("kernel_shape")
    return w[-1] * node.attr("group", 1) == x[-1] and (not window or tuple(window) == tuple(w[1:-1]))


@contrib("FusedConv", "NhwcConv", "NhwcFusedConv")
def fused_conv(node: OnnxNode) -> tuple[str, ...]:
    """Imports FusedConv, NhwcConv and NhwcFusedConv, convolutions with an activation. Operands: X, W, B, and Z, which
    is added before the activation. NhwcConv and NhwcFusedConv have X, Z and the result channels-last, and NhwcConv also
    W."""
    is_channels_last = node.op_type != "FusedConv"
    x, w = node.inputs[:2]
    if node.op_type == "NhwcConv" and _weights_are_channels_last(node):
        w = channels_first(node, w)
    x = channels_first(node, x) if is_channels_last else x
    y = onnx_operator(node, "Conv", x, w, given(node, 2), **window_attributes(node))
    if node.has(3):
        z = channels_first(node, node.inputs[3]) if is_channels_last else node.inputs[3]
        (y,) = emit_broadcast(node, "add", (y, z))
    y = emit_activation(node, y, node.attr("activation", ""), node.attr("activation_params", ()))
    return (channels_last(node, y) if is_channels_last else y,)


@contrib("NhwcMaxPool")
def max_pool(node: OnnxNode) -> tuple[str, ...]:
    """Imports NhwcMaxPool, a MaxPool whose operand and result are channels-last."""
    x = channels_first(node, node.inputs[0])
    return (channels_last(node, onnx_operator(node, "MaxPool", x, **window_attributes(node))),)


@contrib("QLinearConv")
def qlinear_conv(node: OnnxNode) -> tuple[str, ...]:
    """Imports QLinearConv, which is ONNX's except that with attribute channels_last X and Y are channels-last."""
    is_channels_last = node.attr("channels_last", 0)
    x = channels_first(node, node.inputs[0]) if is_channels_last else node.inputs[0]
    y = onnx_operator(node, "QLinearConv", x, *node.inputs[1:], **window_attributes(node))
    return (channels_last(node, y) if is_channels_last else y,)


@contrib("ConvTransposeWithDynamicPads")
def conv_transpose(node: OnnxNode) -> tuple[str, ...]:
    """Imports ConvTransposeWithDynamicPads. Operands: X, W, Pads, B. Pads that are computed at run time become a slice
    of the result without pads."""
    attributes, operands = window_attributes(node), (*node.inputs[:2], given(node, 3))
    if not node.has(2) or node.is_constant(node.inputs[2]):
        if node.has(2):
            attributes["pads"] = [int(pad) for pad in node.const(2, "Pads").reshape(-1)]
        return (onnx_operator(node, "ConvTranspose", *operands, **attributes),)
    axes = node.type(0).rank - 2
    # Pads holds the begins of all axes, then their ends.
    y = onnx_operator(node, "ConvTranspose", *operands, **attributes | {"pads": [0] * 2 * axes})
    zero, middle, end = (node.constant(np.array([bound])) for bound in (0, axes, 2 * axes))
    begin_pads = onnx_operator(node, "Slice", node.inputs[2], zero, middle)
    end_pads = onnx_operator(node, "Slice", node.inputs[2], middle, end)
    stops = onnx_operator(node, "Sub", onnx_operator(node, "Shape", y, start=2), end_pads)
    return (onnx_operator(node, "Slice", y, begin_pads, stops, node.constant(np.arange(2, 2 + axes))),)


@contrib("Rfft", "Irfft")
def real_fourier(node: OnnxNode) -> tuple[str, ...]:
    """Imports Rfft, from [..., N] to [..., N / 2 + 1, 2], and Irfft, from [..., N / 2 + 1, 2] to [..., N] with an even
    N."""
    if node.attr("normalized", 0) or not node.attr("onesided", 1) or node.attr("signal_ndim", 1) != 1:
        raise MegccError("requires attributes normalized = 0, onesided = 1 and signal_ndim = 1")
    shape = node.type(0).shape
    if node.op_type == "Rfft":
        (value,) = node.emit("reshape", node.inputs[:1], shape=(*shape, 1))
        return (emit_dft(node, value, shape[-1], inverse=False, onesided=True),)
    length = 2 * (shape[-2] - 1)
    value = emit_dft(node, node.inputs[0], length, inverse=True, onesided=True)
    return node.emit("reshape", (value,), shape=(*shape[:-2], length))
