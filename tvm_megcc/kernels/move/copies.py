# SPDX-License-Identifier: Apache-2.0
"""The kernels of concat and pad, for any element type."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, Symbol, product
from ...ir.types import TensorType
from ...ops.memory import memory_axes, split_at
from ..base import Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..constants import c_constant, constant_name
from ..parameters import UnitParameters
from ..sharing import MIN_TASKS
from ..site import Site

#: About how many elements a task copies.
CHUNK = 2048


@dataclass(frozen=True)
class ConcatParameters(UnitParameters):
    """Parameters of `concat.c.j2`.

    names: names of the operands in C.
    parts: tasks that share a row of the result, each of which copies a part of each operand's run.
    """

    names: tuple[str, ...]
    parts: int


@dataclass(frozen=True)
class PadParameters(UnitParameters):
    """Parameters of `pad.c.j2`.

    axes: the number of axes before the run.
    mode: ONNX's: "constant", "reflect", "edge" or "wrap".
    value: the C constant of the padding in mode "constant"; otherwise "".
    """

    axes: int
    mode: str
    value: str = ""


def copy_cost(type_: TensorType, per_element: float) -> float:
    """Returns the cycles to write a tensor, with its pad lanes. per_element: cycles of an element, about 0.7 to 1 in
    contiguous runs, 1.5 if runs are short or transposed, 2 to 4 if each element has an address of its own."""
    return type_.stored * per_element


def integer_bits(type_: TensorType) -> str:
    """Returns the bits of the elements of a tensor of signed integers, "32" or "64", for the names of kernels."""
    return type_.dtype.removeprefix("int")


class ConcatRuns(Kernel):
    """Concatenates by copying a run of each operand in turn."""

    name = "runs"
    #: Least number of elements that is worth sharing among threads.
    LARGE = 1 << 15

    def layouts(self, site: Site):
        for layout in possible_layouts(site.y, site.target):
            # Along the channels, only the last operand may end within a block.
            if layout.kind == "nchwc" and site.attrs.axis == 1 \
                    and any(not isinstance(t.shape[1], int) or t.shape[1] % layout.block for t in site.inputs[:-1]):
                continue
            yield (layout,) * len(site.inputs), (layout,)

    def lower(self, site: Site) -> Lowered:
        extents: dict[str, Dim] = {"OUTER": split_at(site.y, site.attrs.axis)[0]}
        extents.update((f"RUN{index}", product(split_at(type_, site.attrs.axis)[1:]))
                       for index, type_ in enumerate(site.inputs))
        # A few long rows are split, so that threads can share them; at -O size more calls share a kernel without.
        size, rows = site.y.size, extents["OUTER"]
        is_large = isinstance(size, int) and size >= self.LARGE
        parts = max(1, MIN_TASKS // rows) if is_large and not site.compact else 1
        outer, *runs = extent_symbols(*extents)
        names = tuple(f"x{index}" for index in range(len(site.inputs)))
        return Lowered("move/concat", ConcatParameters(site.y.c_type, names, parts), extents,
                       tuple(Operand(name, index, outer * run)
                             for index, (name, run) in enumerate(zip(names, runs, strict=True))),
                       (Operand("y", 0, outer * sum(runs, start=0)),), outer * parts, f"concat{len(site.inputs)}",
                       self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=0.7)


class PadRows(Kernel):
    """Pads row by row. Axes that are not padded are merged with their neighbours."""

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
        # Axes in memory as (extent, elements of padding before it, after it). Neighbours without padding become one.
        axes: list[tuple[Dim, Dim, Dim]] = []
        for axis, part, extent in memory_axes(site.x):
            # A blocked axis, of which `part` is the blocks or the lanes, has no padding (`layouts`).
            begin, end = (0, 0) if part else (site.attrs.before[axis], site.attrs.after[axis])
            if axes and begin == end == 0 and axes[-1][1:] == (0, 0):
                axes[-1] = (axes[-1][0] * extent, 0, 0)
            else:
                axes.append((extent, begin, end))
        # Without padding, the last axis is the run that is copied for an element.
        inner = axes.pop()[0] if len(axes) > 1 and axes[-1][1:] == (0, 0) else 1
        extents: dict[str, Dim] = {"RUN": inner}
        for index, (extent, begin, end) in enumerate(axes):
            extents[f"X{index}"], extents[f"B{index}"], extents[f"Y{index}"] = extent, begin, begin + extent + end
        run = Symbol("RUN")
        x = [Symbol(f"X{index}") for index in range(len(axes))]
        # Symbols of their own: products of the sums begin + extent + end would have up to 3^5 terms.
        y = [Symbol(f"Y{index}") for index in range(len(axes))]
        mode, value = site.attrs.mode, ""
        operation = f"pad_{mode}{len(axes)}"
        if mode == "constant":
            value = c_constant(site.attrs.value, site.x.dtype)
            operation += constant_name(value) * bool(site.attrs.value)
        return Lowered("move/pad", PadParameters(site.x.c_type, len(axes), mode, value), extents,
                       (Operand("x", 0, product(x) * run),), (Operand("y", 0, product(y) * run),), product(y[:-1]),
                       operation, self.name)

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=1.0)
