# SPDX-License-Identifier: Apache-2.0
"""Imports convolutions, pooling and resizing of float32. TFLite has channels last, our operators have them first."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import tflite

from ...errors import MegccError, ShapeError
from ...ir.dims import Dim, ceildiv, number
from ...ops.nn.windows import pad_for_windows
from ...ops.vision.interpolation import axis_tables, nearest_indices, source_coordinates
from .node import Node, Results, Unsupported, imports
from .value import CHANNELS_FIRST, Order, Value

#: TFLite's padding -> ONNX's `auto_pad`.
_PADDING = {tflite.Padding.SAME: "SAME_UPPER", tflite.Padding.VALID: "VALID"}
#: TfLitePadding in the C structures of custom operators -> whether it is "same".
_PADDING_IN_C = {1: True, 2: False}


def windows(node: Node) -> dict:
    """Returns strides, pads and dilations as ONNX attributes."""
    padding = node.option("Padding")
    if padding not in _PADDING:
        raise Unsupported(f"padding {padding} is not known")
    axes = "DHW" if "StrideD" in node.operator.options else "HW"
    return {"strides": [node.option(f"Stride{axis}") for axis in axes], "auto_pad": _PADDING[padding],
            "dilations": [node.option(f"Dilation{axis}Factor", 1) for axis in axes]}


def channels(node: Node, index: int = 0) -> str:
    """Returns an operand with channels first."""
    return node.checked_in_order(node.value(index), CHANNELS_FIRST[4])


def convolution(node: Node, image: str, depthwise: bool, fill: int = 0) -> tuple[str, str, dict]:
    """Returns the image of a quantised or hybrid convolution, padded with `fill` if its pads are symbolic; the weights,
    [outputs, inputs, height, width]; and the attributes of our operator.

    Raises:
        ShapeError: if the weights' channels contradict the image's.
    """
    w = node.checked_in_order(node.value(1), weight_order(depthwise))
    groups = group_count(node, node.type_of(image).shape[1], node.type_of(w).shape, depthwise)
    conv = node.onnx_node("Conv", (image, w), windows(node))
    image, attrs = pad_for_windows(conv, image, node.type_of(w).shape[2:], fill)
    # Convolutions take the kernel's extents from the weights, and round down.
    return image, w, {**{name: value for name, value in attrs.items() if name not in ("kernel", "ceil")},
                      "groups": groups}


def weight_order(depthwise: bool) -> Order:
    """Returns the order of axes in which the weights of CONV_2D, [outputs, height, width, inputs of a group], or of
    DEPTHWISE_CONV_2D, [1, height, width, outputs], are [outputs, inputs of a group, height, width]."""
    return (3, 0, 1, 2) if depthwise else CHANNELS_FIRST[4]


def group_count(node: Node, inputs: Dim, weights: Sequence[Dim], depthwise: bool) -> int:
    """Returns the number of groups of a convolution.

    Args:
        inputs: the number of the image's channels.
        weights: the shape of the weights, [outputs, inputs of a group, height, width].

    Raises:
        ShapeError: if the weights' channels contradict the image's.
    """
    outputs, group_inputs = weights[:2]
    if isinstance(inputs, int) and inputs and group_inputs:
        if depthwise:
            fits = outputs % inputs == 0 and group_inputs == 1
        else:
            fits = inputs % group_inputs == 0
        if fits:
            return inputs // group_inputs
    raise ShapeError(f"weights {node.type(1)} for {node.type(0)}")


@imports("CONV_2D", "DEPTHWISE_CONV_2D", fused=True)
def conv(node: Node) -> Results:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    x, w = channels(node), node.checked_in_order(node.value(1), weight_order(depthwise))
    groups = group_count(node, node.type_of(x).shape[1], node.type_of(w).shape, depthwise)
    (y,) = node.onnx("Conv", x, w, node.optional(2), group=groups, **windows(node))
    return [node.as_value(y, CHANNELS_FIRST[4])]


@imports("CONV_3D", fused=True)
def conv3d(node: Node) -> Results:
    """Weights are [depth, height, width, inputs, outputs]."""
    x = node.checked_in_order(node.value(0), CHANNELS_FIRST[5])
    w = node.checked_in_order(node.value(1), (4, 3, 0, 1, 2))
    (y,) = node.onnx("Conv", x, w, node.optional(2), **windows(node))
    return [node.as_value(y, CHANNELS_FIRST[5])]


def transposed_shape(node: Node) -> Sequence[Dim]:
    """Returns the shape of a transposed convolution's result: the value of its first operand or, if that is computed at
    run time, the shape that the file states for the result."""
    stated = node.results[0]
    is_known = node.onnx_node("", (node.plain(0),)).is_known(0)
    is_stated = len(stated.shape) == 4 and all(extent >= 0 for extent in stated.signature[1:3])
    if is_known or not is_stated:
        return node.dims(0, "output_shape")
    attrs = windows(node)
    positions = [extent if attrs["auto_pad"] == "SAME_UPPER" else extent - kernel + 1
                 for extent, kernel in zip(stated.shape[1:3], node.type(1).shape[1:3], strict=True)]
    convolved = [ceildiv(count, stride) for count, stride in zip(positions, attrs["strides"], strict=True)]
    if convolved != list(node.type(2).shape[1:3]):  # a convolution of the result has to have the operand's extents
        raise ShapeError(f"its shape is computed at run time, and the file states {list(stated.shape)} for the result, "
                         f"which a convolution does not shrink to the operand {node.type(2)}")
    return stated.shape


@imports("TRANSPOSE_CONV", fused=True)
def conv_transpose(node: Node) -> Results:
    """Operands: shape of the result, weights [outputs, height, width, inputs], x, bias."""
    attrs = windows(node)
    return [_transposed(node, channels(node, 2), transposed_shape(node)[1:3], attrs["strides"],
                        attrs["auto_pad"] == "SAME_UPPER", node.optional(3))]


@imports("CUSTOM Convolution2DTransposeBias")
def conv_transpose_of_mediapipe(node: Node) -> Results:
    """Operands: x, weights, bias. The options are a C struct of three numbers: padding, horizontal, vertical stride."""
    try:
        padding, *strides = struct.unpack("<3i", node.operator.custom)
    except struct.error:
        raise ShapeError(f"has {len(node.operator.custom)} bytes of options, not 12") from None
    if padding not in _PADDING_IN_C or min(strides) < 1:
        raise ShapeError(f"has padding {padding} and strides {strides}")
    same, x = _PADDING_IN_C[padding], channels(node)
    strides.reverse()
    result = [extent * stride if same else (extent - 1) * stride + kernel for extent, kernel, stride in zip(
        node.type_of(x).shape[2:], node.type(1).shape[1:3], strides, strict=True)]
    return [_transposed(node, x, result, strides, same, node.optional(2))]


def _transposed(node: Node, x: str, shape: Sequence[Dim], strides: Sequence[int], same: bool, bias: str) -> Value:
    """Emits a transposed convolution with a result of this height and width. Elements of windows outside of it are
    cropped; elements that no window reaches equal the bias.

    Args:
        x: channels first.
        shape, strides: of height and width.
        same: whether the padding is "same"; else it is "valid".
        bias: "" for none.
    """
    w = node.checked_in_order(node.value(1), (3, 0, 1, 2))
    begins: list[int] = []
    ends: list[int] = []
    output_padding: list[int] = []
    for extent, result, kernel, stride in zip(node.type_of(x).shape[2:], shape, node.type_of(w).shape[2:], strides,
                                              strict=True):
        if not (isinstance(extent, int) and isinstance(result, int) and isinstance(kernel, int)) or stride < 1:
            raise MegccError(f"an extent of {node.type_of(x)}, {shape} or {node.type(1)} is not known")
        # The pads are those of the convolution from the result to the operand (ComputePadding in TFLite's padding.h).
        total = max((ceildiv(result, stride) - 1) * stride + kernel - result, 0)
        before = total // 2 if same else 0
        after = (extent - 1) * stride + kernel - before - result
        begins.append(before)
        ends.append(max(after, 0))
        output_padding.append(max(-after, 0))
    (y,) = node.onnx("ConvTranspose", x, w, bias, strides=list(strides), pads=[*begins, *ends],
                     output_padding=output_padding)
    return node.as_value(y, CHANNELS_FIRST[4])


@imports("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", fused=True)
def pool(node: Node) -> Results:
    """Imports pooling. Padding is not counted in means; L2_POOL_2D is the root of the mean square."""
    x = channels(node)
    attrs = {**windows(node), "kernel_shape": [node.option("FilterHeight"), node.option("FilterWidth")]}
    if node.kind == "L2_POOL_2D":
        y = node.emit("sqrt", *node.onnx("AveragePool", node.emit("mul", x, x), **attrs))
    else:
        (y,) = node.onnx("MaxPool" if node.kind == "MAX_POOL_2D" else "AveragePool", x, **attrs)
    return [node.as_value(y, CHANNELS_FIRST[4])]


@imports("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(node: Node) -> Results:
    x, sizes = channels(node), node.dims(1, "size")
    if len(sizes) != 2:
        raise ShapeError(f"requires two sizes, not {sizes}")
    corners, half_pixel = bool(node.option("AlignCorners")), bool(node.option("HalfPixelCenters"))
    mode = "linear" if node.kind == "RESIZE_BILINEAR" else "nearest"
    before = node.type_of(x).shape
    if all(isinstance(extent, int) for extent in (*before[2:], *sizes)):
        return [node.as_value(_resize_by_tables(node, x, sizes, mode, corners, half_pixel), CHANNELS_FIRST[4])]
    wanted = node.builder.shape_constant((*before[:2], *sizes), f"{node.name}.sizes")
    coordinates = "align_corners" if corners else "half_pixel" if half_pixel else "asymmetric"
    # For half pixels TFLite rounds (i + 0.5) * scale down. ONNX's coordinate is 0.5 less, and rounded to the nearest.
    rounding = "round_prefer_ceil" if corners or half_pixel else "floor"
    (y,) = node.onnx("Resize", x, "", "", wanted, mode=mode, coordinate_transformation_mode=coordinates,
                     nearest_mode=rounding)
    return [node.as_value(y, CHANNELS_FIRST[4])]


def _resize_by_tables(node: Node, x: str, sizes: tuple[Dim, ...], mode: str, corners: bool, half_pixel: bool) -> str:
    """Resizes height and width of x, channels first, by gathering from tables of indices, and weights if `mode` is
    "linear". Source coordinates of nearest neighbours are computed in float32, as in TFLite, since rounding decides
    halfway between two.

    Args:
        corners, half_pixel: the options AlignCorners and HalfPixelCenters.
    """
    operands = []
    for extent, result in zip(map(number, node.type_of(x).shape[2:]), map(number, sizes), strict=True):
        node.require_budget(result)
        if extent < 1 or result < 1:
            raise ShapeError(f"resizes {extent} elements to {result}")
        if mode == "linear":
            coordinates = "align_corners" if corners else "half_pixel" if half_pixel else "asymmetric"
            operands += axis_tables(source_coordinates(extent, result, result / extent, coordinates), extent, mode, "")
            continue
        are_aligned = corners and result > 1  # the first elements coincide, and so do the last ones
        lengths = (extent - 1, result - 1) if are_aligned else (extent, result)
        scale = np.float32(lengths[0]) / np.float32(lengths[1])
        position = (np.arange(result, dtype=np.float32) + np.float32(0.5 if half_pixel else 0)) * scale
        rounding = "round_prefer_ceil" if corners else "floor"
        operands.append(nearest_indices(position, extent, rounding).astype(np.int32))
    return node.emit("resize", x, *map(node.onnx_node().constant, operands), axes=(2, 3), mode=mode)


@imports("LOCAL_RESPONSE_NORMALIZATION")
def local_response(node: Node) -> Results:
    """Normalises over `radius` channels on both sides. TFLite's alpha multiplies a sum, ONNX's a mean."""
    size = 2 * int(node.option("Radius")) + 1
    (y,) = node.onnx("LRN", channels(node), size=size, alpha=float(node.option("Alpha")) * size,
                     beta=float(node.option("Beta")), bias=float(node.option("Bias")))
    return [node.as_value(y, CHANNELS_FIRST[4])]


@imports("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_to_space_or_back(node: Node) -> Results:
    op_type = {"DEPTH_TO_SPACE": "DepthToSpace", "SPACE_TO_DEPTH": "SpaceToDepth"}[node.kind]
    return [node.as_value(node.onnx(op_type, channels(node), blocksize=node.option("BlockSize"))[0], CHANNELS_FIRST[4])]
