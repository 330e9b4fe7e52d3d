# SPDX-License-Identifier: Apache-2.0
"""Imports bilinear resizing of quantised images: in integers for int8 and int16, in floats for uint8, as LiteRT
does."""

from __future__ import annotations

import numpy as np

from ....errors import ShapeError
from ....ir.dims import Dim, number
from ....ir.expr import Expr, X, arg, call, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ...fixed_point import times_power_of_two
from ..node import Node, Results, Unsupported
from ..value import CHANNELS_FIRST
from ..windows import channels
from .importers import emit_as_result, imports_quantised, require_same_scales

#: Positions between two elements are multiples of 1 / 2^10.
_STEPS = 1 << 10


@imports_quantised("RESIZE_BILINEAR", also_int16=True)
def bilinear(node: Node) -> Results:
    """Operands: x, int32 [2] with height and width of the result, which have to be known."""
    require_same_scales(node)
    x, sizes, dtype = channels(node), node.dims(1, "size"), node.type(0).dtype
    if len(sizes) != 2:
        raise ShapeError(f"requires two sizes, not {sizes}")
    corners, half_pixel = bool(node.option("AlignCorners")), bool(node.option("HalfPixelCenters"))
    for axis, size in enumerate(sizes):
        extent = node.type_of(x).shape[2 + axis]
        if not isinstance(extent, int) or not isinstance(size, int):
            raise Unsupported(f"resizing an extent {extent} to {size}, which are not known, is not supported")
        if extent < 1 or size < 1:
            raise ShapeError(f"resizes {extent} elements to {size}")
        node.require_budget(size)
    make = {"int8": _bilinear_int8, "int16": _bilinear_int16, "uint8": _bilinear_uint8}[dtype]
    return [node.as_value(make(node, x, sizes, corners, half_pixel), CHANNELS_FIRST[4])]


def _bilinear_int8(node: Node, x: str, sizes: tuple[Dim, ...], corners: bool, half_pixel: bool) -> str:
    """Resizes along rows, then columns, in int32. With weights in units of 2^-10, all sums of products are exact."""
    value = x
    for axis, size in enumerate(sizes):
        below, above, fraction = _neighbours(node.type_of(x).shape[2 + axis], size, corners, half_pixel)
        value = _interpolated(node, value, 2 + axis, below, above, fraction, X * (_STEPS - arg(2)) + arg(1) * arg(2),
                         "int32")
    # The sums are in units of 2^-20, of weights along both axes. 1 is subtracted from negative numbers, so that ties
    # round away from zero.
    expr = times_power_of_two(X + minimum(maximum(X, -1), 0), -20)
    return emit_as_result(node, expr, value)


def _bilinear_int16(node: Node, x: str, sizes: tuple[Dim, ...], corners: bool, half_pixel: bool) -> str:
    """Resizes int16 in float64, which holds the sums exactly: their weights are in units of 2^-20."""
    value = node.emit("cast", x, dtype="float64")
    for axis, size in enumerate(sizes):
        below, above, fraction = _neighbours(node.type_of(x).shape[2 + axis], size, corners, half_pixel)
        value = _interpolated(node, value, 2 + axis, below, above, fraction.astype(np.float64),
                         X * (_STEPS - arg(2)) + arg(1) * arg(2), "")
    steps = float(_STEPS * _STEPS)
    magnitude = call("floor", (call("abs", X) + steps / 2) / steps)
    return node.emit("cast", node.compute(call("if_lt", X, 0, -magnitude, magnitude), value), dtype="int16")


def _interpolated(node: Node, value: str, axis: int, below, above, fraction, expr: Expr, dtype: str) -> str:
    """Emits `expr` over three operands along an axis: the elements below and above each position, and the fraction of
    the way between them.

    Args:
        below, above, fraction: for each position, the indices of both elements, and the fraction.
        dtype: that of the result, "" for that of the operands.
    """
    constant = node.onnx_node().constant
    neighbours = [node.emit("gather", value, constant(index.astype(np.int32)), axis=axis) for index in (below, above)]
    fractions = constant(fraction.reshape(-1, *(1,) * (3 - axis)))
    return emit_broadcast(node.onnx_node(), "elementwise", (*neighbours, fractions), expr=expr,
                          **({"dtype": dtype} if dtype else {}))[0]


def _neighbours(extent: int, size: int, corners: bool, half_pixel: bool) -> tuple[np.ndarray, ...]:
    """Returns the indices of the elements below and above each position, and the fraction between them in units of
    2^-10."""
    aligned = corners and size > 1
    over, under = (extent - 1, size - 1) if aligned else (extent, size)
    scale = (_STEPS * over + under // 2) // under
    coordinate = np.arange(size, dtype=np.int64) * scale + (scale // 2 - _STEPS // 2 if half_pixel else 0)
    below = np.maximum(np.trunc(coordinate / _STEPS).astype(np.int64), 0)
    above = np.minimum(np.trunc((coordinate + _STEPS - 1) / _STEPS).astype(np.int64), extent - 1)
    return below, above, (coordinate - _STEPS * below).astype(np.int32)


def _bilinear_uint8(node: Node, x: str, sizes: tuple[Dim, ...], corners: bool, half_pixel: bool) -> str:
    """Resizes uint8 in float32: four products of an element and both fractions, in LiteRT's order of operations, are
    summed and rounded, ties up (`floor(x + 0.5)`). In the expression, `real` converts to float32 and `nearest` to an
    integer."""
    tables = []
    for extent, size in zip(map(number, node.type_of(x).shape[2:]), map(number, sizes), strict=True):
        aligned = corners and size > 1
        scale = np.float32(extent - 1 if aligned else extent) / np.float32(size - 1 if aligned else size)
        coordinate = np.arange(size, dtype=np.float32)
        coordinate = (coordinate + np.float32(0.5)) * scale - np.float32(0.5) if half_pixel else coordinate * scale
        below = np.maximum(np.floor(coordinate).astype(np.int64), 0)
        above = np.minimum(np.ceil(coordinate).astype(np.int64), extent - 1)
        tables.append((below, above, (coordinate - below.astype(np.float32)).astype(np.float32)))
    constant = node.onnx_node().constant
    corner = []
    for column in (0, 1):
        for row in (0, 1):
            rows = node.emit("gather", x, constant(tables[0][row].astype(np.int32)), axis=2)
            corner.append(node.emit("gather", rows, constant(tables[1][column].astype(np.int32)), axis=3))
    down, right = constant(tables[0][2].reshape(-1, 1)), constant(tables[1][2])
    y, x_ = arg(4), arg(5)
    parts = [call("real", arg(index)) for index in range(4)]
    total = parts[0] * (1 - y) * (1 - x_) + parts[1] * y * (1 - x_) + parts[2] * (1 - y) * x_ + parts[3] * y * x_
    expr = call("nearest", call("floor", total + 0.5))
    return emit_as_result(node, expr, *corner, down, right)
