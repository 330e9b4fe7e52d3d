# SPDX-License-Identifier: Apache-2.0
"""The kernels of what moves elements, of any element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.dims import Dim, Symbol, ceildiv, product
from ..ir.graph import Attrs, Op
from ..ir.types import DTYPES, NHWC, PLAIN, TensorType, nchwc
from .base import Kernel, Lowered, Operand, Site, extent_symbols, possible_layouts
from .memory import MemoryAxis, memory_axes
from .rules import slice_axes
from .sharing import TASKS

CHUNK = 2048
"""Elements a task moves, roughly."""

def moved(type_: TensorType) -> dict[str, str]:
    """Parameter `unit`: the C type of an element."""
    return {"unit": DTYPES[type_.dtype][0]}


def copy_cost(type_: TensorType, per_element: float) -> float:
    return type_.stored * per_element if type_.is_static else 1e6


@dataclass(frozen=True)
class Walk:
    """An axis of the result in memory: extent, elements between neighbours in the operand, and whether it runs
    through the operand backwards."""

    extent: Dim
    stride: Dim
    backwards: bool = False


def merged(walks: Sequence[Walk]) -> list[Walk]:
    """Without axes of one element, neighbours that are one run joined."""
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
    """Elements between neighbours along each axis in memory."""
    result: dict[tuple[int, str], Dim] = {}
    stride: Dim = 1
    for axis, part, extent in reversed(axes):
        result[axis, part] = stride
        stride = stride * extent
    return result


class Strided(Kernel):
    """Any result whose element is that of the operand at a strided place: transposed, sliced, repeated."""

    name = "strided"

    def walks(self, op: Op, x: TensorType, y: TensorType) -> tuple[list[Walk], Dim]:
        """The result's axes in memory, and the first place in the operand that is read."""
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
        params = Attrs(axes=len(walks), backwards=backwards, run=unit_stride, chunk=CHUNK, **moved(site.x))
        pattern = "".join("ba"[not flag] for flag in backwards) + ("1" if unit_stride else "")
        return Lowered("move/strided", params, extents, (Operand("x", 0, size),), (Operand("y", 0, product(d)),),
                       tasks, f"{site.kind}_{pattern}", self.name)

    def cost(self, site: Site) -> float:
        # Runs are copied by vectors, other elements are picked one by one.
        run = merged(self.walks(site.op, site.x, site.y)[0])[-1].stride == 1
        return copy_cost(site.y, 1.0 if run else 4.0)


class StridedTranspose(Strided):
    """Between any layouts whose lanes are full or stay together."""

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
    """In one layout; of a blocked tensor whole blocks of channels."""

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
    """Matrices turned over, tile by tile: what most transposes are once neighbouring axes are joined."""

    name = "tiled"
    COLUMNS = 16

    def layouts(self, site: Site):
        return StridedTranspose.layouts(self, site)

    @staticmethod
    def _matrices(op: Op, x: TensorType, y: TensorType) -> tuple[Dim, Dim, Dim] | None:
        """(matrices, rows, columns) of the operand, or None."""
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
        return Lowered("move/transpose", Attrs(columns=self.COLUMNS, **moved(site.x)), extents,
                       (Operand("x", 0, n * r * c),), (Operand("y", 0, n * r * c),), n * ceildiv(c, self.COLUMNS),
                       "transpose_matrix", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.5)


class RelayoutMatrix(TransposeMatrix):
    """Between plain and nhwc: a transpose of channels and pixels."""

    name = "tiled"

    def layouts(self, site: Site):
        if site.x.rank == 4:
            yield (PLAIN,), (NHWC,)
            yield (NHWC,), (PLAIN,)

    @staticmethod
    def _matrices(op: Op, x: TensorType, y: TensorType) -> tuple[Dim, Dim, Dim] | None:
        n, c, h, w = x.shape
        return (n, c, h * w) if x.layout == PLAIN else (n, h * w, c)

    def refuse(self, site: Site):
        return None


class RelayoutBlocks(Kernel):
    """Between blocks of channels and plain or nhwc, by vectors."""

    name = "blocks"
    template = "move/relayout"
    #: Pixels of a block that a task moves, at most: 64 KB of it where vectors have 16 lanes.
    PIXELS = 1024

    def layouts(self, site: Site):
        if site.x.rank == 4 and site.isa.lanes > 1:
            for other in (PLAIN, NHWC):
                yield (other,), (nchwc(site.isa.lanes),)
                yield (nchwc(site.isa.lanes),), (other,)

    def refuse(self, site: Site):
        return None if site.x.dtype == "float32" else "only float32"

    def params(self, type_: TensorType) -> dict:
        return {}

    def lower(self, site: Site) -> Lowered:
        n, c, pixels = extent_symbols("N", "C", "HW")
        shape = site.x.shape
        extents = {"N": shape[0], "C": shape[1], "HW": shape[2] * shape[3]}
        block = site.isa.lanes
        padded = ceildiv(c, block) * block * n * pixels
        source, result = site.x.layout, site.y.layout
        sizes = [padded if layout.kind == "nchwc" else n * c * pixels for layout in (source, result)]
        to_blocks = result.kind == "nchwc"
        other = source if to_blocks else result
        attrs = Attrs(to_blocks=to_blocks, other=other.kind, pixels=self.PIXELS, **self.params(site.x))
        return Lowered(self.template, attrs, extents, (Operand("x", 0, sizes[0]),), (Operand("y", 0, sizes[1]),),
                       n * ceildiv(c, block) * ceildiv(pixels, self.PIXELS), f"relayout_{source}_{result}", self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.5)


class RelayoutElements(RelayoutBlocks):
    """The same element by element, of any type: no type may be without a way between two layouts."""

    name = "elements"
    template = "move/relayout_elements"

    def refuse(self, site: Site):
        return "float32 goes by vectors" if site.x.dtype == "float32" else None

    def params(self, type_: TensorType) -> dict:
        return moved(type_)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 4.0)


class ConcatRuns(Kernel):
    """Runs of every operand copied one after the other."""

    name = "runs"
    #: Elements that are worth sharing among threads.
    LARGE = 1 << 15

    def layouts(self, site: Site):
        for layout in possible_layouts(site.y, site.target):
            if layout.kind == "nchwc" and site.attrs.axis == 1 \
                    and any(not isinstance(t.shape[1], int) or t.shape[1] % layout.block for t in site.inputs[:-1]):
                continue
            yield (layout,) * len(site.inputs), (layout,)

    def lower(self, site: Site) -> Lowered:
        axes = memory_axes(site.y)
        position = next(index for index, (axis, _, _) in enumerate(axes) if axis == site.attrs.axis)
        extents: dict[str, Dim] = {"OUTER": product(extent for _, _, extent in axes[:position])}
        for index, type_ in enumerate(site.inputs):
            extents[f"RUN{index}"] = product(extent for _, _, extent in memory_axes(type_)[position:])
        # Few long rows are cut for threads to share.
        size, rows = site.y.size, extents["OUTER"]
        parts = max(1, TASKS // rows) if isinstance(size, int) and size >= self.LARGE and not site.compact else 1
        outer, *runs = extent_symbols(*extents)
        names = tuple(f"x{index}" for index in range(len(site.inputs)))
        return Lowered("move/concat", Attrs(names=names, parts=parts, **moved(site.y)), extents,
                       tuple(Operand(name, index, outer * run)
                             for index, (name, run) in enumerate(zip(names, runs, strict=True))),
                       (Operand("y", 0, outer * sum(runs, start=0)),), outer * parts, f"concat{len(site.inputs)}",
                       self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 0.7)


class PadRows(Kernel):
    """Row by row; only axes that are padded are told apart."""

    name = "rows"

    def layouts(self, site: Site):
        for layout in possible_layouts(site.y, site.target):
            if layout.kind != "nchwc" or not (site.attrs.before[1] or site.attrs.after[1]):
                yield (layout,), (layout,)

    def refuse(self, site: Site):
        amounts = (*site.attrs.before, *site.attrs.after)
        if any(isinstance(amount, int) and amount < 0 for amount in amounts):
            return "crops; a slice does that"
        return None

    def lower(self, site: Site) -> Lowered:
        axes: list[tuple[Dim, Dim, Dim]] = []
        for axis, part, extent in memory_axes(site.x):
            low, high = (0, 0) if part else (site.attrs.before[axis], site.attrs.after[axis])
            if axes and low == high == 0 and axes[-1][1:] == (0, 0):
                axes[-1] = (axes[-1][0] * extent, 0, 0)
            else:
                axes.append((extent, low, high))
        inner = axes.pop()[0] if len(axes) > 1 and axes[-1][1:] == (0, 0) else 1
        extents: dict[str, Dim] = {"RUN": inner}
        for index, (extent, low, high) in enumerate(axes):
            extents[f"X{index}"], extents[f"B{index}"], extents[f"A{index}"] = extent, low, high
        run = Symbol("RUN")
        x = [Symbol(f"X{index}") for index in range(len(axes))]
        y = [Symbol(f"B{index}") + Symbol(f"X{index}") + Symbol(f"A{index}") for index in range(len(axes))]
        mode, dtype = site.attrs.mode, site.x.dtype
        params, what = {"axes": len(axes), "mode": mode, **moved(site.x)}, f"pad_{mode}{len(axes)}"
        if mode == "constant":
            params["value"] = c_constant(site.attrs.value, dtype)
            what += constant_name(params["value"]) * bool(site.attrs.value)
        return Lowered("move/pad", Attrs(params), extents, (Operand("x", 0, product(x) * run),),
                       (Operand("y", 0, product(y) * run),), product(y[:-1]), what, self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, 1.0)


def constant_name(*constants: str) -> str:
    """C constants as a part of a kernel's name: `_0p75_1em05` of 0.75f and 1e-05f."""
    words = (c.removesuffix("f").removesuffix(".0").replace(".", "p").replace("-", "m").replace("+", "")
             for c in constants)
    return "".join(f"_{word}" for word in words)


def c_constant(value: float, dtype: str) -> str:
    """A value as a C constant of an element type; float16 as its bits."""
    if dtype == "float16":
        return f"{int(np.float16(value).view(np.uint16))}u"
    if dtype.startswith("float"):
        number = float(value)
        if number != number:
            return "MGC_NAN"
        if number in (float("inf"), float("-inf")):
            return "MGC_INF" if number > 0 else "-MGC_INF"
        return repr(number) if dtype == "float64" else f"{number!r}f"
    number = int(value)
    if number == -2**63:
        return "INT64_MIN"
    return f"{number}" if abs(number) < 2**31 else f"{number}{'u' if number >= 2**63 else ''}ll"
