# SPDX-License-Identifier: Apache-2.0
"""Quantization with a scale that the kernel computes from the range of its operand."""

from __future__ import annotations

from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols
from ..parameters import Parameters
from ..site import Site


class DynamicQuantizeKernel(Kernel):
    """Quantizes a tensor in one task, because the scale depends on all elements."""

    name = "per_tensor"
    dtypes = (FLOAT32,)

    def lower(self, site: Site) -> Lowered:
        (n,) = extent_symbols("N")
        results = Operand("y", 0, n), Operand("scale", 1, 1), Operand("zero_point", 2, 1)
        return Lowered("quant/dynamic", Parameters(), {"N": site.x.size}, (Operand("x", 0, n),), results, 1, site.kind,
                       self.name)

    def cost(self, site: Site) -> float:
        # For each element: 2, as x is read twice, for its range and to quantize it; for each vector 8, to scale, round,
        # clip and convert it.
        return (2.0 + 8.0 / site.isa.lanes) * site.likely.x.size
