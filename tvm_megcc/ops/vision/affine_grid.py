# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's AffineGrid as the product of a grid of coordinates and the affine maps."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.dims import Dim, product
from ..base import OnnxNode, decomposes
from ..elementwise import cast_to, emit_broadcast
from ..emit_onnx import number
from ..nn.attention import arange_int32


@decomposes("AffineGrid")
def affine_grid(node: OnnxNode) -> tuple[str, ...]:
    """Imports AffineGrid over d = 2 or 3 axes. Operands: theta, affine maps [N, d, d + 1]; size, the extents
    (N, C, …, H, W). The result is the grid [N, …, H, W, d], for GridSample.

    ONNX's function body is not used: it drops a batch axis of 1, and divides 0 by 0 for an axis of one pixel with
    align_corners.
    """
    theta, size = node.type(0), node.dims(1, "size")
    axes = len(size) - 2
    if axes not in (2, 3) or theta.rank != 3 or theta.shape[1:] != (axes, axes + 1):
        raise ShapeError(f"maps {theta} for a grid of size {size}; they are [N, 2, 3] of images, [N, 3, 4] of volumes")
    spatial, dtype = size[2:], theta.dtype
    if all(isinstance(extent, int) for extent in spatial):
        node.require_budget(*spatial, axes + 1)
    columns = []
    for axis in reversed(range(axes)):  # x before y before z
        coordinates = _coordinates(node, spatial[axis], bool(node.attr("align_corners", 0)), dtype)
        (coordinates,) = node.emit("reshape", (coordinates,), shape=tuple(
            spatial[axis] if other == axis else 1 for other in (*range(axes), axes)))
        columns += node.emit("expand", (coordinates,), shape=(*spatial, 1))
    columns += node.emit("expand", (number(node, 1, dtype),), shape=(*spatial, 1))
    (grid,) = node.emit("concat", tuple(columns), axis=axes)
    (grid,) = node.emit("reshape", (grid,), shape=(1, product(spatial), axes + 1))
    (result,) = node.emit("matmul", (grid, node.inputs[0]), trans_a=0, trans_b=1)
    return node.emit("reshape", (result,), shape=(theta.shape[0], *spatial, axes))


def _coordinates(node: OnnxNode, extent: Dim, align: bool, dtype: str) -> str:
    """Emits the coordinates of the pixels along an axis, [extent]. With `align`, -1 and 1 are the centres of the first
    and the last pixel, else their outer edges."""
    if isinstance(extent, int):
        steps = np.arange(extent)
        coordinates = 2 * steps / max(extent - 1, 1) - 1 if align else (2 * steps + 1) / max(extent, 1) - 1
        return node.constant(coordinates.astype(np.dtype(dtype)))
    (steps,) = cast_to(node, arange_int32(node, extent), dtype)
    (extent_value,) = cast_to(node, node.extent(extent), dtype)
    if align:
        (extent_value,) = emit_broadcast(node, "sub", (extent_value, number(node, 1, dtype)))
        (extent_value,) = emit_broadcast(node, "max", (extent_value, number(node, 1, dtype)))
    (steps,) = emit_broadcast(node, "mul", (steps, number(node, 2, dtype)))
    if not align:
        (steps,) = emit_broadcast(node, "add", (steps, number(node, 1, dtype)))
    (coordinates,) = emit_broadcast(node, "div", (steps, extent_value))
    return emit_broadcast(node, "sub", (coordinates, number(node, 1, dtype)))[0]
