# SPDX-License-Identifier: Apache-2.0
"""The kernel of table lookups with 8-bit indices."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import ceildiv
from ...ops.quantized.lookup_table import INT8_TYPES, TABLE_LENGTH
from ..base import ANY, Kernel, Lowered, Operand, extent_symbols, possible_layouts
from ..parameters import UnitParameters
from ..site import Site

#: The elements that a task looks up.
CHUNK = 4096


@dataclass(frozen=True)
class LookupParameters(UnitParameters):
    """Parameters of `lookup.c.j2`.

    signed: indices are int8, so the table begins with the result for -128; else they are uint8.
    result: C type of the table's elements.
    result_bytes: bytes of an element of the table.
    chunk: elements of a task.
    """

    signed: bool
    result: str
    result_bytes: int
    chunk: int


class LookupBytes(Kernel):
    """Looks up element by element in memory order; by vectors if results have 8 bits and the CPU shuffles bytes."""

    name = "bytes"
    dtypes = (INT8_TYPES, ANY)

    def layouts(self, site: Site):
        for layout in possible_layouts(site.x, site.target):
            yield (layout, site.inputs[1].layout), (layout,)

    def lower(self, site: Site) -> Lowered:
        (size,) = extent_symbols("SIZE")
        x, y = site.x, site.y
        params = LookupParameters(x.c_type, x.dtype == "int8", y.c_type, y.itemsize, CHUNK)
        return Lowered("elementwise/lookup", params, {"SIZE": x.stored},
                       (Operand("x", 0, size), Operand("table", 1, TABLE_LENGTH)), (Operand("y", 0, size),),
                       ceildiv(size, CHUNK), f"lookup_{x.dtype}_{y.dtype}", self.name,
                       in_place=((0, 0),) if y.itemsize == 1 else ())

    def cost(self, site: Site) -> float:
        shuffles = site.isa.lanes > 1 and site.y.itemsize == 1
        # 1 for an element; shuffles look up a quarter as many elements as a vector has float32 lanes in that time.
        return site.x.stored / (site.isa.lanes / 4 if shuffles else 1)
