# SPDX-License-Identifier: Apache-2.0
"""Imports int16 functions of one operand: interpolation in LiteRT's tables of 513 points, and square roots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....ir.expr import Expr, X, arg, call, clip, maximum, minimum
from ....ops.elementwise import emit_broadcast
from ...fixed_point import floor_shift
from .. import elementwise as float_elementwise  # noqa: F401  (registers the importers that are taken over below)
from ..file import Quantization
from ..node import IMPORTERS, Node, Results
from . import fixed_point
from .elementwise import FUNCTIONS, TINY
from .fixed_point import rounded
from .importers import (
    INT16_IMPORTERS,
    QUANTISED_DTYPES,
    QUANTISED_IMPORTERS,
    common_dtype,
    elementwise,
    emit_as_result,
    imports_int16,
    imports_quantised,
    lookup,
    operand,
    requantize,
    result,
)

#: Segments of a table, and the low bits of a number that are interpolated within a segment.
_SEGMENTS, _BITS = 512, 7


def _points(function: Callable[[np.ndarray], np.ndarray], x: Quantization, y: Quantization) -> np.ndarray:
    """Returns the points of LiteRT's `LUTPopulateInt16`, in float32. Each point is moved by half of the error that the
    line has in its middle."""
    smallest, largest = np.float32(-2**15), np.float32(2**15 - 1)
    first = x.scale[0] * smallest
    step = (x.scale[0] * largest - first) / np.float32(_SEGMENTS)
    steps = np.arange(_SEGMENTS + 1, dtype=np.float32)
    scale = np.float32(2**16) / (y.scale[0] * largest - y.scale[0] * smallest)
    with np.errstate(all="ignore"):
        ends = function(first + steps * step).astype(np.float32) * scale
        ends[_SEGMENTS] = function(x.scale[0] * largest).astype(np.float32) * scale
        middle = function(first + steps[:-1] * step + step / np.float32(2)).astype(np.float32) * scale
    following = function(first + steps[1:] * step).astype(np.float32) * scale
    interpolated = rounded((following + rounded(ends[:-1])) / np.float32(2))
    corrected = rounded(ends)
    corrected[:-1] -= rounded((interpolated - rounded(middle)) / np.float32(2))
    return np.clip(corrected, smallest, largest).astype(np.int32)


def _interpolated(node: Node, points: np.ndarray) -> Results:
    """Interpolates on the segment that the upper nine bits select. int16 overflow wraps, as in LiteRT's
    `LUTLookup`."""
    value, constant = node.value(0), node.onnx_node().constant
    slopes = np.diff(points).astype(np.int16).astype(np.int32)
    segment = floor_shift(X, _BITS) + _SEGMENTS // 2
    (index,) = emit_broadcast(node.onnx_node(), "elementwise", (value.name,), expr=segment, dtype="int32")
    base, slope = (node.emit("gather", constant(part), index, axis=0) for part in (points[:-1], slopes))
    total: Expr = arg(1) + floor_shift(arg(2) * (X - (arg(3) - _SEGMENTS // 2) * 2**_BITS) + 2**(_BITS - 1), _BITS)
    if (slopes != np.diff(points)).any():
        total = total - floor_shift(total + 2**15, 16) * 2**16
    return [node.as_value(emit_as_result(node, total, value.name, base, slope, index), value.order)]


def _reciprocal_root(x: np.ndarray, node: Node) -> np.ndarray:
    largest_real = np.float32(2**15 - 1) * result(node).scale[0]
    return np.where(x > 0, np.float32(1) / np.sqrt(np.maximum(x, TINY)), largest_real)


_TABULATED = {**{kind: FUNCTIONS[kind] for kind in ("EXP", "LOG", "GELU")}, "RSQRT": _reciprocal_root}


@imports_int16(*_TABULATED)
def function(node: Node) -> Results:
    common_dtype(node, ("int16",))
    return _interpolated(node, _points(lambda x: _TABULATED[node.kind](x, node), operand(node, 0), result(node)))


@imports_int16("ABS")
def absolute(node: Node) -> Results:
    common_dtype(node, ("int16",))
    x, y = operand(node, 0), result(node)
    magnitude = maximum(X, 0) - minimum(X, 0)
    if x.scale[0] != y.scale[0]:
        magnitude = requantize(magnitude, fixed_point.multiplier(float(x.scale[0] / y.scale[0])))
    return [elementwise(node, clip(magnitude, -2**15, 2**15 - 1))]


@imports_quantised("SQRT", also_int16=True)
def square_root(node: Node) -> Results:
    """Computes the root in float32 and rounds towards zero. LiteRT aborts on a negative number; here the result is
    0."""
    dtype, x, y = common_dtype(node, QUANTISED_DTYPES), operand(node, 0), result(node)
    smallest, largest = fixed_point.integer_range(dtype)
    if dtype == "int16":
        real = call("sqrt", maximum(call("real", X), 0) * float(x.scale[0])) / float(y.scale[0])
        return [elementwise(node, call("nearest", minimum(call("floor", real), largest)))]
    real = x.scale[0] * np.maximum(fixed_point.codes(dtype) - np.int32(x.zero_point[0]), 0).astype(np.float32)
    truncated = np.trunc(np.sqrt(real) / y.scale[0]) + np.float32(y.zero_point[0])
    return [lookup(node, np.clip(truncated, smallest, largest).astype(dtype), node.value(0))]


#: Operators that LiteRT computes on the integers, ignoring their scales.
for _kind in ("NEG", "FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR", "RIGHT_SHIFT"):
    QUANTISED_IMPORTERS[_kind] = INT16_IMPORTERS[_kind] = IMPORTERS[_kind]
