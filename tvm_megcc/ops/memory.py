# SPDX-License-Identifier: Apache-2.0
"""The order of a tensor's axes in memory, by its layout; passes and kernels ask here which tensors share bytes."""

from __future__ import annotations

from ..ir.dims import Dim, product
from ..ir.types import NHWC, PLAIN, TensorType

#: An axis in memory: (logical axis, part of it: "" for all, "block" or "lane" in a blocked layout, extent).
MemoryAxis = tuple[int, str, Dim]


def memory_axes(type_: TensorType) -> list[MemoryAxis]:
    """Returns the axes in memory order, outermost first. A blocked layout has its channel axis twice: the blocks before
    the spatial axes, the lanes after them."""
    layout, shape = type_.layout, type_.shape
    if layout.kind == "plain":
        return [(axis, "", dim) for axis, dim in enumerate(shape)]
    if layout.kind == "nhwc":
        return [(axis, "", shape[axis]) for axis in (0, *range(2, len(shape)), 1)]
    spatial = [(axis, "", dim) for axis, dim in enumerate(shape) if axis >= 2]
    blocks = type_.slots // layout.block
    return [(0, "", shape[0]), (1, "block", blocks), *spatial, (1, "lane", layout.block)]


def split_at(type_: TensorType, axis: int) -> tuple[Dim, Dim, Dim]:
    """Returns the product of the extents before an axis in memory order, the extent of the axis (the number of blocks,
    if it is blocked), and the product of the extents after it."""
    axes = memory_axes(type_)
    position = next(index for index, (other, _, _) in enumerate(axes) if other == axis)
    sizes = [extent for _, _, extent in axes]
    return product(sizes[:position]), sizes[position], product(sizes[position + 1:])


def is_padded(type_: TensorType) -> bool:
    """Returns whether memory holds more elements than the tensor has: those of pad lanes."""
    return type_.layout.kind == "nchwc" and type_.stored != type_.size


def same_memory(source: TensorType, result: TensorType, reshaped: bool = False,
                permutation: tuple[int, ...] | None = None) -> bool:
    """Returns whether the result's bytes are the first bytes of the source, unchanged.

    reshaped: elements correspond in row-major order of their tensors. permutation: axis i of the result is axis
    permutation[i] of the source. With neither, axes correspond.
    """
    if is_padded(result):
        return False
    if reshaped:
        return _row_major(source) and _row_major(result)
    order = permutation or tuple(range(source.rank))
    # Axes of extent 1 move no element. The result's axes are compared as those of the source.
    source_axes = [(axis, extent) for axis, _, extent in memory_axes(_without_lanes(source)) if extent != 1]
    result_axes = [(order[axis], extent) for axis, _, extent in memory_axes(_without_lanes(result)) if extent != 1]
    return source_axes == result_axes and _unpadded(source) and _unpadded(result)


def _without_lanes(type_: TensorType) -> TensorType:
    """Returns an unblocked type with the same bytes for a blocked tensor of one pixel or one block; other types are
    returned unchanged."""
    if type_.layout.kind == "nchwc" and _one_pixel(type_):
        return type_.with_layout(PLAIN)
    if type_.layout.kind == "nchwc" and type_.slots == type_.layout.block:
        return type_.with_layout(NHWC)
    return type_


def _one_pixel(type_: TensorType) -> bool:
    return all(dim == 1 for dim in type_.shape[2:])


def _unpadded(type_: TensorType) -> bool:
    """Returns whether there are no pad lanes, or only after the last element."""
    return not is_padded(type_) or (_one_pixel(type_) and type_.shape[0] == 1)


def _row_major(type_: TensorType) -> bool:
    """Returns whether elements are in row-major order of the logical axes, without gaps."""
    axes = [axis for axis, _, extent in memory_axes(_without_lanes(type_)) if extent != 1]
    # A blocked layout has its channel axis twice, so its axes are not distinct.
    return axes == sorted(set(axes)) and _unpadded(type_)
