# SPDX-License-Identifier: Apache-2.0
"""Kernels that copy with any strides: transposes, slices, tiles, expansions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.dims import Dim, Symbol, ceildiv, product
from ...ir.graph import Op
from ...ir.types import TensorType
from ...ops.memory import MemoryAxis, memory_axes
from ...ops.rules import slice_axes
from ..base import Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..parameters import UnitParameters
from ..site import Site
from .copies import CHUNK, copy_cost


@dataclass(frozen=True)
class StridedParameters(UnitParameters):
    """Parameters of `strided.c.j2`.

    axes: the number of axes of the result.
    backwards: for each axis, whether its stride is negative.
    run: whether the last axis has stride 1, so that its elements are copied as one block.
    chunk: the number of elements in a task, if there is one axis only.
    """

    axes: int
    backwards: tuple[bool, ...]
    run: bool
    chunk: int


@dataclass(frozen=True)
class TransposeParameters(UnitParameters):
    """Parameters of `transpose.c.j2`. columns: the number of columns that a task transposes."""

    columns: int


@dataclass(frozen=True)
class StridedAxis:
    """An axis of the result in memory, and how the operand is read along it.

    stride: the distance in the operand from one index to the next, in elements.
    backwards: whether the operand is read backwards (a negative stride).
    """

    extent: Dim
    stride: Dim
    backwards: bool = False


def merge_axes(strided_axes: Sequence[StridedAxis]) -> list[StridedAxis]:
    """Returns the axes without those of extent 1. Neighbouring axes that are contiguous in the operand become one
    axis."""
    result: list[StridedAxis] = []
    for axis in strided_axes:
        if axis.extent == 1:
            continue
        previous = result[-1] if result else None
        if previous and not previous.backwards and not axis.backwards \
                and previous.stride == axis.stride * axis.extent:
            result[-1] = StridedAxis(previous.extent * axis.extent, axis.stride)
        else:
            result.append(axis)
    return result or [StridedAxis(1, 1)]


def strides(axes: Sequence[MemoryAxis]) -> dict[tuple[int, str], Dim]:
    """Returns (axis, part) of each `MemoryAxis` -> its stride in elements. part: "", "block" or "lane"."""
    result: dict[tuple[int, str], Dim] = {}
    stride: Dim = 1
    for axis, part, extent in reversed(axes):
        result[axis, part] = stride
        stride = stride * extent
    return result


class Strided(Kernel):
    """The base class of copies that read the operand at regular strides, such as a transpose, a slice or a tile."""

    name = "strided"

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        """Returns (the result's axes in memory, offset of the first element that is read)."""
        raise NotImplementedError

    def lower(self, site: Site) -> Lowered:
        strided_axes, base = self.strided_axes(site.op, site.x, site.y)
        strided_axes = merge_axes(strided_axes)
        extents: dict[str, Dim] = {"BASE": base}
        for index, axis in enumerate(strided_axes):
            extents[f"D{index}"], extents[f"S{index}"] = axis.extent, axis.stride
        d, s = ([Symbol(f"{letter}{index}") for index in range(len(strided_axes))] for letter in "DS")
        unit_stride = strided_axes[-1].stride == 1 and not strided_axes[-1].backwards
        if len(strided_axes) == 1:
            tasks = ceildiv(d[0], CHUNK)
        else:
            columns = strided_axes[-1].extent
            # If the length of a row is unknown, 16 rows: as many as a task has of rows of 128 elements.
            extents["ROWS"] = max(1, CHUNK // columns) if isinstance(columns, int) and columns else 16
            tasks = product(d[:-2]) * ceildiv(d[-2], Symbol("ROWS"))
        # The elements up to the last one that is read.
        size = Symbol("BASE") + 1 + sum(((extent - 1) * stride for extent, stride in zip(d, s, strict=True)), start=0)
        backwards = tuple(axis.backwards for axis in strided_axes)
        params = StridedParameters(
            unit=site.x.c_type, axes=len(strided_axes), backwards=backwards, run=unit_stride, chunk=CHUNK)
        # For the name of the kernel: "b" for an axis that is read backwards, else "a"; "1" if the last is contiguous.
        pattern = "".join("b" if flag else "a" for flag in backwards) + ("1" if unit_stride else "")
        return Lowered("move/strided", params, extents, (Operand("x", 0, size),), (Operand("y", 0, product(d)),),
                       tasks, f"{site.kind}_{pattern}", self.name)

    def cost(self, site: Site) -> float:
        # Contiguous runs are copied by vectors, other elements one by one.
        run = merge_axes(self.strided_axes(site.op, site.x, site.y)[0])[-1].stride == 1
        return copy_cost(site.y, per_element=1.0 if run else 4.0)


def _unblocked_layouts(site: Site):
    """Yields each pair of layouts of operand and result, except blocked ones, whose lanes a stride cannot reach."""
    for source in possible_layouts(site.x, site.target):
        for result in possible_layouts(site.y, site.target):
            if "nchwc" not in (source.kind, result.kind):
                yield (source,), (result,)


class StridedTranspose(Strided):
    """Transposes from any layout to any other, except blocked ones."""

    def layouts(self, site: Site):
        return _unblocked_layouts(site)

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        x_strides = strides(memory_axes(x))
        return [StridedAxis(extent, x_strides[op.attrs.perm[axis], ""]) for axis, _, extent in memory_axes(y)], 0


class StridedExpand(Strided):
    """Repeats the operand along axes of extent 1, which get stride 0."""

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        shape = (1,) * (y.rank - x.rank) + x.shape
        x_strides = strides(memory_axes(x.with_shape(shape)))
        return [StridedAxis(extent, 0 if shape[axis] == 1 else x_strides[axis, ""])
                for axis, _, extent in memory_axes(y)], 0


class StridedTile(Strided):
    """Repeats the operand along any axis: each axis becomes two, the repeats with stride 0."""

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        x_strides = strides(memory_axes(x))
        strided_axes = []
        for axis, part, extent in memory_axes(x):
            strided_axes += [StridedAxis(op.attrs.repeats[axis], 0), StridedAxis(extent, x_strides[axis, part])]
        return strided_axes, 0


class StridedSlice(Strided):
    """Slices in one layout. A blocked tensor is sliced in whole blocks of channels."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout.kind == "nchwc" and 1 in site.attrs.axes:
                first, count, step = slice_axes(site.attrs, site.x.shape)[1]
                is_known_range = isinstance(first, int) and isinstance(count, int) and step == 1
                if not is_known_range or first % layout.block:
                    continue
                if count % layout.block and first + count != site.x.shape[1]:
                    continue  # only the last block may have pad lanes
            yield (layout,), (layout,)

    def strided_axes(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[StridedAxis], Dim]:
        cuts = slice_axes(op.attrs, x.shape)
        strided_axes, base = [], 0
        axes = memory_axes(x)
        x_strides = strides(axes)
        for (axis, part, extent), (_, _, result) in zip(axes, memory_axes(y), strict=True):
            stride = x_strides[axis, part]
            if axis not in cuts or part == "lane":
                strided_axes.append(StridedAxis(extent, stride))
                continue
            first, count, step = cuts[axis]
            first = first // x.layout.block if part == "block" else first
            first_read = first if step > 0 else first + (count - 1) * step
            base = base + first_read * stride
            strided_axes.append(StridedAxis(result, stride * abs(step), step < 0))
        return strided_axes, base


class TransposeMatrix(Kernel):
    """Transposes matrices tile by tile. Most transposes are of this kind once contiguous axes are merged."""

    name = "tiled"
    COLUMNS = 16

    def layouts(self, site: Site):
        return _unblocked_layouts(site)

    @staticmethod
    def _matrices(op: Op, x: TensorType, y: TensorType) -> tuple[Dim, Dim, Dim] | None:
        """Returns (matrices, rows, columns) of the operand; None if it is no transpose of matrices."""
        strided_axes = merge_axes(StridedTranspose().strided_axes(op, x, y)[0])
        if len(strided_axes) == 2:
            strided_axes = [StridedAxis(1, strided_axes[0].extent * strided_axes[1].extent), *strided_axes]
        if len(strided_axes) != 3:
            return None
        # Axes of the result, in memory order: a column of the operand becomes a row.
        batch, columns, rows = strided_axes
        is_matrix = columns.stride == 1 and rows.stride == columns.extent \
            and batch.stride == columns.extent * rows.extent
        return (batch.extent, rows.extent, columns.extent) if is_matrix else None

    def refuse(self, site: Site):
        if self._matrices(site.op, site.x, site.y) is None:
            return "is not a transpose of matrices"
        return None

    def lower(self, site: Site) -> Lowered:
        n, r, c = extent_symbols("N", "R", "C")
        extents = dict(zip("NRC", self._matrices(site.op, site.x, site.y), strict=True))
        return Lowered("move/transpose", TransposeParameters(site.x.c_type, self.COLUMNS), extents,
                       (Operand("x", 0, n * r * c),), (Operand("y", 0, n * r * c),), n * ceildiv(c, self.COLUMNS),
                       "transpose_matrix", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.5)
