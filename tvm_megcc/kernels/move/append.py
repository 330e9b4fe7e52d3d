# SPDX-License-Identifier: Apache-2.0
"""The kernels that append rows to a KV cache and widen what it stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.dims import Dim, product
from ...ir.types import TensorType
from ...ops.cache_rows import SCALE
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost


@dataclass(frozen=True)
class CacheParameters(UnitParameters):
    """Parameters of `append.c.j2` and `widen.c.j2`.

    cache: the dtype of the cache, if rows are float32 and it is not; "" if elements are only moved.
    """

    cache: str


class AppendRows(Kernel):
    """Writes the new rows, after copying the cache unless it is updated in place. Rows of float32 are rounded to the
    cache's float16, or quantised to its int8."""

    name = "rows"

    def refuse(self, site: Site):
        dtypes = site.x.dtype, site.inputs[1].dtype
        return None if dtypes[0] == dtypes[1] or dtypes in (("float16", "float32"), ("int8", "float32")) else \
            f"rows of {dtypes[1]} for a cache of {dtypes[0]}"

    def lower(self, site: Site) -> Lowered:
        x, rows, _ = site.inputs
        axis = site.attrs.axis
        extents = {"OUTER": product(x.shape[:axis]), "CAPACITY": x.shape[axis], "COUNT": rows.shape[axis],
                   "RUN": product(rows.shape[axis + 1:])}
        stored = x.dtype if x.dtype != rows.dtype else ""
        if stored == "int8":
            extents |= {"LINES": product(rows.shape[axis + 1:-1]), "RUN": rows.shape[-1]}
            return self._quantized(x, extents)
        outer, capacity, count, run = extent_symbols(*extents)
        operands = (Operand("x", 0, outer * capacity * run), Operand("rows", 1, outer * count * run),
                    Operand("at", 2, 1))
        return Lowered("move/append", CacheParameters(site.x.c_type, stored), extents, operands,
                       (Operand("y", 0, outer * capacity * run),), outer, "append" + f"_{stored}" * bool(stored),
                       self.name, in_place=((0, 0),))

    def _quantized(self, x: TensorType, extents: Mapping[str, Dim]) -> Lowered:
        """Returns the call for a cache of int8: RUN numbers and a scale in each of LINES lines of a row."""
        outer, capacity, count, run, lines = extent_symbols(*extents)
        room = outer * capacity * lines * (run + SCALE)
        operands = Operand("x", 0, room), Operand("rows", 1, outer * count * lines * run), Operand("at", 2, 1)
        return Lowered("move/append", CacheParameters(x.c_type, x.dtype), extents, operands, (Operand("y", 0, room),),
                       outer, "append_int8", self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return copy_cost(site.inputs[1], 1.0)


class WidenCache(Kernel):
    """Widens one row of a cache in a task."""

    name = "rows"
    dtypes = (("float16", "int8"),)

    def refuse(self, site: Site):
        return None if site.y.dtype == "float32" else f"its result is float32, not {site.y.dtype}"

    def lower(self, site: Site) -> Lowered:
        x, y = site.x, site.y
        rows, run = extent_symbols("ROWS", "RUN")
        stored = run + SCALE if x.dtype == "int8" else run
        return Lowered("move/widen", CacheParameters(x.c_type, x.dtype),
                       {"ROWS": product(y.shape[:-1]), "RUN": y.shape[-1]}, (Operand("x", 0, rows * stored),),
                       (Operand("y", 0, rows * run),), rows, f"widen_{x.dtype}", self.name)
