# SPDX-License-Identifier: Apache-2.0
"""Kernels of Col2Im and MaxUnpool."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, Symbol, product
from ..base import ANY, NUMBERS, Kernel, Lowered, Operand, extent_symbols
from ..conv2d.geometry import steps_name
from ..move.copies import copy_cost
from ..parameters import Parameters, UnitParameters
from ..site import Site


@dataclass(frozen=True)
class ColumnsParameters(UnitParameters):
    """Parameters of `columns.c.j2`.

    windows: (letter of the axis, stride and dilation of the window) for each axis; the last axis is W.
    """

    windows: tuple[tuple[str, int, int], ...]


class ColumnsRows(Kernel):
    """Col2Im: x [N, C * taps, positions] -> y [N, C, image]. One task computes one row of the image."""

    name = "rows"
    dtypes = (NUMBERS, ANY)

    def lower(self, site: Site) -> Lowered:
        attrs = site.attrs
        axes = "DHW"[-len(attrs.kernel):]
        extents: dict[str, Dim] = {"R": product(site.y.shape[:2])}
        # For each axis, I: the image, B: the positions of the window, K: its taps, P: the pad before.
        for axis, *dims in zip(axes, attrs.image, attrs.blocks, attrs.kernel, attrs.pads, strict=True):
            extents.update({f"{letter}{axis}": dim for letter, dim in zip("IBKP", dims, strict=True)})
        rows, image = Symbol("R"), [Symbol(f"I{axis}") for axis in axes]
        positions = product(Symbol(f"B{axis}") for axis in axes)
        taps = product(Symbol(f"K{axis}") for axis in axes)
        windows = tuple(zip(axes, attrs.strides, attrs.dilations, strict=True))
        return Lowered("pool/columns", ColumnsParameters(site.x.c_type, windows), extents,
                       (Operand("x", 0, rows * taps * positions),),
                       (Operand("y", 0, rows * product(image)),), rows * product(image[:-1]),
                       f"col2im_{len(axes)}d{steps_name(attrs.strides, attrs.dilations)}", self.name)

    def cost(self, site: Site) -> float:
        # For each element 2, to add it to a pixel.
        return copy_cost(site.x, per_element=2.0)


class ScatterMaxima(Kernel):
    """MaxUnpool: writes zeros, then each element at its index. An index out of range fails the call.

    There is one task, because an index may point to any element of the result.
    """

    name = "scatter"

    def lower(self, site: Site) -> Lowered:
        count, total = extent_symbols("COUNT", "TOTAL")
        return Lowered("pool/unpool", Parameters(), {"COUNT": site.x.size, "TOTAL": site.y.size},
                       (Operand("x", 0, count), Operand("where", 1, count)), (Operand("y", 0, total),), 1,
                       "max_unpool", self.name)

    def cost(self, site: Site) -> float:
        # For each element of y 1, to store a zero; for each of x 3, to store it at its index.
        return copy_cost(site.y, per_element=1.0) + copy_cost(site.x, per_element=3.0)
