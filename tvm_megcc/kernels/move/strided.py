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
    """Parameters of `transpose.c.j2`. columns: columns of a task."""

    columns: int


@dataclass(frozen=True)
class Walk:
    """An axis of the result in memory: its extent, the distance in the operand from one index to the next (in
    elements), and whether the operand is read backwards (a negative stride)."""

    extent: Dim
    stride: Dim
    backwards: bool = False


def merged(walks: Sequence[Walk]) -> list[Walk]:
    """Returns the axes without those of extent 1. Neighbouring axes that are contiguous in the operand become one
    axis."""
    result: list[Walk] = []
    for walk in walks:
        if walk.extent == 1:
            continue
        previous = result[-1] if result else None
        if previous and not previous.backwards and not walk.backwards \
                and previous.stride == walk.stride * walk.extent:
            result[-1] = Walk(previous.extent * walk.extent, walk.stride)
        else:
            result.append(walk)
    return result or [Walk(1, 1)]


def strides(axes: Sequence[MemoryAxis]) -> dict[tuple[int, str], Dim]:
    """Returns the stride of each axis in memory, in elements."""
    result: dict[tuple[int, str], Dim] = {}
    stride: Dim = 1
    for axis, part, extent in reversed(axes):
        result[axis, part] = stride
        stride = stride * extent
    return result


class Strided(Kernel):
    """Any copy that reads the operand at regular strides, such as a transpose, a slice or a repetition."""

    name = "strided"

    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        """Returns (the result's axes in memory, offset of the first element that is read)."""
        raise NotImplementedError

    def lower(self, site: Site) -> Lowered:
        walks, base = self.walks(site.op, site.x, site.y)
        walks = merged(walks)
        extents: dict[str, Dim] = {"BASE": base}
        for index, walk in enumerate(walks):
            extents[f"D{index}"], extents[f"S{index}"] = walk.extent, walk.stride
        d, s = ([Symbol(f"{letter}{index}") for index in range(len(walks))] for letter in "DS")
        unit_stride = walks[-1].stride == 1 and not walks[-1].backwards
        if len(walks) == 1:
            tasks = ceildiv(d[0], CHUNK)
        else:
            columns = walks[-1].extent
            extents["ROWS"] = max(1, CHUNK // columns) if isinstance(columns, int) and columns else 16
            tasks = product(d[:-2]) * ceildiv(d[-2], Symbol("ROWS"))
        size = Symbol("BASE") + 1 + sum(((d_ - 1) * s_ for d_, s_ in zip(d, s, strict=True)), start=0)
        backwards = tuple(walk.backwards for walk in walks)
        params = StridedParameters(site.x.c_type, len(walks), backwards, unit_stride, CHUNK)
        pattern = "".join("b" if flag else "a" for flag in backwards) + ("1" if unit_stride else "")
        return Lowered("move/strided", params, extents, (Operand("x", 0, size),), (Operand("y", 0, product(d)),),
                       tasks, f"{site.kind}_{pattern}", self.name)

    def cost(self, site: Site) -> float:
        # Contiguous runs are copied by vectors, other elements one by one.
        run = merged(self.walks(site.op, site.x, site.y)[0])[-1].stride == 1
        return copy_cost(site.y, 1.0 if run else 4.0)


class StridedTranspose(Strided):
    """Transposes from any layout to any other, except blocked ones, whose lanes a stride cannot reach."""

    def layouts(self, site: Site):
        for source in possible_layouts(site.x, site.target):
            for result in possible_layouts(site.y, site.target):
                if "nchwc" not in (source.kind, result.kind):
                    yield (source,), (result,)

    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        steps = strides(memory_axes(x))
        return [Walk(extent, steps[op.attrs.perm[axis], ""]) for axis, _, extent in memory_axes(y)], 0


class StridedExpand(Strided):
    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        shape = (1,) * (y.rank - x.rank) + x.shape
        steps = strides(memory_axes(x.with_shape(shape)))
        return [Walk(extent, 0 if shape[axis] == 1 else steps[axis, ""])
                for axis, _, extent in memory_axes(y)], 0


class StridedTile(Strided):
    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        steps = strides(memory_axes(x))
        walks = []
        for axis, part, extent in memory_axes(x):
            walks += [Walk(op.attrs.repeats[axis], 0), Walk(extent, steps[axis, part])]
        return walks, 0


class StridedSlice(Strided):
    """Slices in one layout. A blocked tensor is sliced in whole blocks of channels."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout.kind == "nchwc" and 1 in site.attrs.axes:
                first, count, step = slice_axes(site.attrs, site.x.shape)[1]
                whole = isinstance(first, int) and isinstance(count, int) and step == 1
                if not whole or first % layout.block or (count % layout.block
                                                         and first + count != site.x.shape[1]):
                    continue
            yield (layout,), (layout,)

    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        cuts = slice_axes(op.attrs, x.shape)
        walks, base = [], 0
        axes = memory_axes(x)
        steps = strides(axes)
        for (axis, part, extent), (_, _, result) in zip(axes, memory_axes(y), strict=True):
            stride = steps[axis, part]
            if axis not in cuts or part == "lane":
                walks.append(Walk(extent, stride))
                continue
            first, count, step = cuts[axis]
            first = first // x.layout.block if part == "block" else first
            lowest = first if step > 0 else first + (count - 1) * step
            base = base + lowest * stride
            walks.append(Walk(result, stride * abs(step), step < 0))
        return walks, base


class TransposeMatrix(Kernel):
    """Transposes matrices tile by tile. Most transposes are of this kind once contiguous axes are merged."""

    name = "tiled"
    COLUMNS = 16

    def layouts(self, site: Site):
        return StridedTranspose.layouts(self, site)

    @staticmethod
    def _matrices(op: Op, x: TensorType, y: TensorType) -> tuple[Dim, Dim, Dim] | None:
        """Returns (matrices, rows, columns) of the operand; None if it is no transpose of matrices."""
        walks = merged(StridedTranspose().walks(op, x, y)[0])
        if len(walks) == 2:
            walks = [Walk(1, walks[0].extent * walks[1].extent), *walks]
        if len(walks) != 3:
            return None
        batch, columns, rows = walks
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
        return copy_cost(site.y, 1.5)
