# SPDX-License-Identifier: Apache-2.0
"""Quantization and dequantization with one scale, or one for each index of an axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import product
from ...ir.types import DTYPES, TensorType
from ...ops.memory import memory_axes, split_at
from ..base import (
    ANY,
    FLOAT32,
    NUMBERS,
    Kernel,
    Lowered,
    Operand,
    extent_symbols,
    layout_pair,
    possible_layouts,
    present,
)
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class PerAxisParameters(UnitParameters):
    """Parameters of `per_axis.c.j2`.

    unit: the C type of a quantized element.
    short: its suffix in mgc functions, such as "u8".
    zero: whether there are zero points.
    to_integers: whether the kernel quantizes; otherwise it dequantizes.
    lower, upper: the limits of the quantized type.
    """

    short: str
    zero: bool
    to_integers: bool
    lower: int
    upper: int


class PerAxisKernel(Kernel):
    """The base class of `QuantizeKernel` and `DequantizeKernel`. There is one scale and zero point for the tensor, or
    for each index of an axis."""

    name = "per_axis"
    integers: tuple[str, ...]

    def layouts(self, site: Site):
        # Neighbours in a block of channels would need different scales.
        has_one_scale = site.inputs[1].size == 1
        for layout in possible_layouts(site.x, site.target):
            if layout.kind != "nchwc" or has_one_scale:
                yield layout_pair(site, layout)

    def refuse(self, site: Site):
        if self.quantized(site).dtype not in self.integers:
            return f"not on {self.quantized(site).dtype}"
        return "not by blocks" if site.attrs.block else None

    def quantized(self, site: Site) -> TensorType:
        """Returns the type of the operand or result that has integers."""
        raise NotImplementedError

    def lower(self, site: Site) -> Lowered:
        if site.inputs[1].size == 1:
            # One scale for all: a task computes the elements along the last axis in memory.
            *sizes, last = [1, *(extent for _, _, extent in memory_axes(site.x))]
            values = product(sizes), 1, last
        else:
            values = split_at(site.x, site.attrs.axis)
        outer, n, inner = extent_symbols("OUTER", "N", "INNER")
        operands = present(site, Operand("x", 0, outer * n * inner), Operand("scale", 1, n),
                           Operand("zero_point", 2, n))
        quantized = self.quantized(site)
        limits = np.iinfo(np.dtype(quantized.dtype))
        params = PerAxisParameters(quantized.c_type, DTYPES[quantized.dtype].short, site.has(2), quantized is site.y,
                                   int(limits.min), int(limits.max))
        return Lowered("quant/per_axis", params,
                       dict(zip(("OUTER", "N", "INNER"), values, strict=True)), operands,
                       (Operand("y", 0, outer * n * inner),), outer * n, site.kind + "_zero" * site.has(2), self.name)

    def cost(self, site: Site) -> float:
        # For each element: 1; for each vector 8, to scale, round, clip and convert it.
        return (1.0 + 8.0 / site.isa.lanes) * site.y.stored


class DequantizeKernel(PerAxisKernel):
    dtypes = (NUMBERS, FLOAT32, ANY)
    integers = ("int8", "uint8", "int16", "uint16", "int32")

    def quantized(self, site: Site) -> TensorType:
        return site.x


class QuantizeKernel(PerAxisKernel):
    dtypes = (FLOAT32, FLOAT32, ANY)
    integers = ("int8", "uint8", "int16", "uint16")

    def quantized(self, site: Site) -> TensorType:
        return site.y
