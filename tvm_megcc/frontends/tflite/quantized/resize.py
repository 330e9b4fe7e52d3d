# SPDX-License-Identifier: Apache-2.0
"""Imports bilinear resizing of quantised images: in integers for int8 and int16, in floats for uint8, as LiteRT
does."""

from __future__ import annotations

import numpy as np

from ....errors import ShapeError
from ....ir.dims import Dim, number
from ....ir.expr import X, arg, call
from ....ops.elementwise import emit_broadcast
from ....ops.vision.resize_bilinear import FRACTION_BITS, int8_tables, uint8_tables
from ..node import Node, Results, Unsupported
from ..value import CHANNELS_FIRST
from ..windows import channels
from .importers import imports_quantised, require_same_scales

#: Positions between two elements are multiples of 1 / _STEPS.
_STEPS = 1 << FRACTION_BITS


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
    make = _bilinear_int16 if dtype == "int16" else _bilinear_bytes
    return [node.as_value(make(node, x, sizes, corners, half_pixel), CHANNELS_FIRST[4])]


def _bilinear_bytes(node: Node, x: str, sizes: tuple[Dim, ...], corners: bool, half_pixel: bool) -> str:
    """Resizes int8 or uint8 by tables of indices and fractions."""
    tables_of = int8_tables if node.type_of(x).dtype == "int8" else uint8_tables
    tables = [table for extent, size in zip(node.type_of(x).shape[2:], sizes, strict=True)
              for table in tables_of(number(extent), number(size), corners, half_pixel)]
    return node.emit("resize_bilinear", x, *map(node.onnx_node().constant, tables))


def _bilinear_int16(node: Node, x: str, sizes: tuple[Dim, ...], corners: bool, half_pixel: bool) -> str:
    """Resizes int16 in float64, which holds the sums exactly: their weights are in units of 2^-20."""
    value = node.emit("cast", x, dtype="float64")
    for axis, size in enumerate(sizes):
        below, above, fraction = int8_tables(number(node.type_of(x).shape[2 + axis]), number(size), corners, half_pixel)
        value = _interpolated(node, value, 2 + axis, below, above, fraction.astype(np.float64))
    steps = float(_STEPS * _STEPS)
    magnitude = call("floor", (call("abs", X) + steps / 2) / steps)
    return node.emit("cast", node.compute(call("if_lt", X, 0, -magnitude, magnitude), value), dtype="int16")


def _interpolated(node: Node, value: str, axis: int, below: np.ndarray, above: np.ndarray, fraction: np.ndarray) -> str:
    """Emits the interpolation along an axis, times 2^10, given for each position the indices of the elements below and
    above, and the fraction of the way between them in units of 2^-10, float64."""
    constant = node.onnx_node().constant
    neighbours = [node.emit("gather", value, constant(index), axis=axis) for index in (below, above)]
    fractions = constant(fraction.reshape(-1, *(1,) * (3 - axis)))
    return emit_broadcast(node.onnx_node(), "elementwise", (*neighbours, fractions),
                          expr=X * (_STEPS - arg(2)) + arg(1) * arg(2))[0]
