# SPDX-License-Identifier: Apache-2.0
"""Quantisation and its inverse, with scales of a tensor or an axis."""

from __future__ import annotations

import numpy as np

from ...ir.dims import product
from ...ir.graph import Attrs
from ...ir.types import DTYPES, PLAIN, numpy_dtype
from ...ops.memory import memory_axes
from ..base import ANY, FLOAT32, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..site import Site


class PerAxisKernel(Kernel):
    """One scale and zero point for the tensor, or for each index of an axis."""

    name = "lines"
    dtypes = (ANY, FLOAT32, ANY)

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            if layout.kind != "nchwc" or site.inputs[1].size == 1:
                yield (layout, *(PLAIN,) * (len(site.inputs) - 1)), (layout,)

    def refuse(self, site: Site):
        quantized = site.x if site.kind == "dequantize_linear" else site.y
        if quantized.dtype not in ("int8", "uint8", "int16", "uint16", "int32"):
            return f"not on {quantized.dtype}"
        if site.kind == "quantize_linear" and quantized.dtype == "int32":
            return "not to int32"
        return "not by blocks" if site.attrs.block else None

    def lower(self, site: Site) -> Lowered:
        axes = memory_axes(site.x)
        sizes = [extent for _, _, extent in axes]
        if site.inputs[1].size == 1:
            extents = {"OUTER": 1, "N": 1, "INNER": product(sizes)}
            if len(sizes) > 1:
                extents = {"OUTER": product(sizes[:-1]), "N": 1, "INNER": sizes[-1]}
        else:
            position = next(index for index, (axis, _, _) in enumerate(axes) if axis == site.attrs.axis)
            extents = {"OUTER": product(sizes[:position]), "N": sizes[position], "INNER": product(sizes[position + 1:])}
        outer, n, inner = extent_symbols(*extents)
        to_float = site.kind == "dequantize_linear"
        dtype = site.x.dtype if to_float else site.y.dtype
        zero = len(site.inputs) > 2 and site.inputs[2] is not None
        params = {"unit": DTYPES[dtype].c_type, "zero": zero}
        if not to_float:
            limits = np.iinfo(numpy_dtype(dtype))
            params.update(low=int(limits.min), high=int(limits.max))
        operands = [Operand("x", 0, outer * n * inner), Operand("scale", 1, n)]
        if zero:
            operands.append(Operand("zero_point", 2, n))
        return Lowered(f"quant/{'dequantize' if to_float else 'quantize'}", Attrs(params), extents, tuple(operands),
                       (Operand("y", 0, outer * n * inner),), outer * n, site.kind + "_zero" * zero, self.name)

    def cost(self, site: Site) -> float:
        return 3.0 * site.y.stored if site.y.is_static else 1e6
