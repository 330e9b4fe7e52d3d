# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of quantised numbers: sums of int32, rescaled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import floordiv, product
from ...ir.expr import X, arg, call, clip
from ...ops.windows import window_attrs
from . import fixed
from .file import Quantization
from .fixed import Multiplier
from .node import Node, Results, Unsupported
from .quantised import (
    BYTES,
    activation,
    of_tensor,
    operand,
    quantised,
    result,
    typed,
    zero,
)
from .value import IMAGES
from .windows import channels, windows


def requantised(node: Node, sums: str, factors: Sequence[Multiplier], axes_behind: int, how: str) -> str:
    """Sums of products as results; with several factors they are those of channels. how: the function."""
    within, end = activation(node), zero(result(node))
    if max(factor.shift for factor in factors) > 30:
        raise Unsupported("its scales differ too much")
    if len(set(factors)) == 1:
        return typed(node, clip(call(how, X, *factors[0]) + end, *within), sums)
    parts = (np.array(part, np.int32).reshape(-1, *(1,) * axes_behind) for part in zip(*factors, strict=True))
    expr = clip(call(how, X, arg(1), arg(2)) + end, *within)
    return typed(node, expr, sums, *map(node.spelled().constant, parts))


def weights(node: Node, axis: int) -> Quantization:
    """Those of operand 1: one scale, or one for each element of an axis, and one zero point."""
    tensor = node.tensors[1]
    quantization = None if tensor is None else tensor.quantization
    if tensor is None or tensor.dtype not in BYTES or quantization is None:
        raise Unsupported("its weights are not quantised to 8 bits")
    several = len(quantization.scale) != 1
    if (several and (quantization.axis != axis or quantization.zero_point.any())) or not (quantization.scale > 0).all():
        raise Unsupported("its weights have scales or zero points that are not supported")
    if not several:
        of_tensor(tensor)
    return quantization


def bias(node: Node, index: int) -> str:
    if not node.has(index):
        return ""
    if node.type(index).dtype != "int32":
        raise Unsupported(f"a bias of {node.type(index).dtype} is not supported")
    return node.plain(index)


@quantised("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(node: Node) -> Results:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    x, own = operand(node, 0), weights(node, 3 if depthwise else 0)
    image = channels(node)
    w = node.images(node.value(1), (3, 0, 1, 2) if depthwise else IMAGES[4])
    inputs, (outputs, each) = node.type_of(image).shape[1], node.type_of(w).shape[:2]
    if not isinstance(inputs, int) or not inputs or not each or (outputs % inputs or each != 1 if depthwise
                                                                 else inputs % each):
        raise ShapeError(f"weights {node.type(1)} for {node.type(0)}")
    attrs = window_attrs(node.spelled("Conv", (image, w), windows(node)), node.type_of(w).shape[2:])
    attrs.pop("kernel"), attrs.pop("ceil")
    operands = [image, w, *filter(None, (bias(node, 2),))]
    sums = node.emit("conv2d_integer", *operands, **attrs, groups=inputs // each, x_zero=zero(x), w_zero=zero(own))
    factors = fixed.products(x, own, result(node), node.type(0).dtype == "int8")
    return [node.made(requantised(node, sums, factors, 2, "rescale_fixed"), IMAGES[4])]


@quantised("FULLY_CONNECTED")
def fully_connected(node: Node) -> Results:
    """Its kernel in LiteRT rounds once, where all others round the high half of the product and then the shift."""
    if node.option("WeightsFormat", 0):
        raise Unsupported("its weights are shuffled, which is not supported")
    x, own, shape = operand(node, 0), weights(node, 0), node.type(0).shape
    if node.type(1).rank != 2:
        raise ShapeError(f"weights {node.type(1)} are no matrix")
    outputs, inputs = node.type(1).shape
    keeps = bool(node.option("KeepNumDims", False)) and bool(shape) and shape[-1] == inputs
    rows = product(shape[:-1]) if keeps else floordiv(product(shape), inputs) if inputs else 0
    matrix = node.in_order(node.reshaped(node.value(0), (rows, inputs)))
    sums = node.emit("matmul_integer", matrix, node.plain(1), *filter(None, (bias(node, 2),)), trans_a=0, trans_b=1,
                     a_zero=zero(x), b_zero=zero(own))
    factors = fixed.products(x, own, result(node), len(own.scale) > 1)
    value = node.made(requantised(node, sums, factors, 0, "rescale_once"))
    return [node.reshaped(value, (*shape[:-1], outputs))] if keeps else [value]
