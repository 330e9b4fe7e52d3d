# SPDX-License-Identifier: Apache-2.0
"""Imports quantised operators that move elements and also requantize them or insert padding."""

from __future__ import annotations

from ....errors import ShapeError
from ..moves import densify, joined, padded, space_in_batch
from ..node import Node, Results, Unsupported
from . import fixed_point
from .importers import (
    QUANTISED_DTYPES,
    common_dtype,
    imports_quantised,
    lookup,
    operand,
    require_same_scales,
    result,
    zero,
)


@imports_quantised("CONCATENATION", also_int16=True)
def concatenation(node: Node) -> Results:
    """Imports CONCATENATION. Only uint8 operands may differ in scale; they are requantized by a table."""
    y, dtype = result(node), common_dtype(node, QUANTISED_DTYPES)
    values = []
    for index, value in enumerate(node.values):
        x = operand(node, index)
        if (x.scale[0], zero(x)) != (y.scale[0], zero(y)):
            if dtype != "uint8":
                raise Unsupported("its operands have different scales")
            value = lookup(node, fixed_point.requantize_table(x, dtype, y, dtype), value)
        values.append(value)
    axis = node.option("Axis")
    rank = len(values[0].order)
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of {values[0].type}")
    return [joined(node, values, axis % rank)]


imports_quantised("DENSIFY", also_int16=True)(densify)


@imports_quantised("PAD", "PADV2", also_int16=True)
def pad(node: Node) -> Results:
    """Imports PAD and PADV2. PAD pads with the zero point, PADV2 with its third operand (`padded`)."""
    return [padded(node, zero(result(node)))]


@imports_quantised("SPACE_TO_BATCH_ND", also_int16=True)
def space_to_batch(node: Node) -> Results:
    """Imports SPACE_TO_BATCH_ND. The padding is the zero point."""
    require_same_scales(node)
    return [space_in_batch(node, zero(result(node)))]
