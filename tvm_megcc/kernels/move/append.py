# SPDX-License-Identifier: Apache-2.0
"""The kernels that append rows to a KV cache and widen what it stores."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import dim_max, dim_min, product
from ...ops.cache_rows import SCALE_ELEMENTS
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site
from .copies import copy_cost


@dataclass(frozen=True)
class CacheParameters(UnitParameters):
    """Parameters of `append.c.j2` and `widen.c.j2`.

    cache: the dtype of the cache, if float32 is converted to it or from it; "" if elements are only copied.
    """

    cache: str


@dataclass(frozen=True)
class AppendParameters(CacheParameters):
    """Parameters of `append.c.j2`.

    wraps: the cache is a ring buffer.
    batched: each element of a batch has its first row and its number of new rows.
    sinks: the cache is a ring buffer after its first SINKS rows.
    first: there is an operand with the first rows.
    """

    wraps: bool
    batched: bool
    sinks: bool
    first: bool


class AppendRows(Kernel):
    """Writes the new rows, after copying the cache unless it is updated in place. Rows of float32 are rounded to the
    cache's float16, or quantised to its int8."""

    name = "rows"

    def refuse(self, site: Site):
        dtypes = site.x.dtype, site.inputs[1].dtype
        return None if dtypes[0] == dtypes[1] or dtypes in (("float16", "float32"), ("int8", "float32")) else \
            f"rows of {dtypes[1]} for a cache of {dtypes[0]}"

    def lower(self, site: Site) -> Lowered:
        x, rows = site.inputs[:2]
        axis, batched = site.attrs.axis, site.has(3)
        converted_to = x.dtype if x.dtype != rows.dtype else ""
        extents = {"OUTER": product(x.shape[:axis]), "CAPACITY": x.shape[axis], "COUNT": rows.shape[axis]}
        if converted_to == "int8":
            extents |= {"GROUPS": product(rows.shape[axis + 1:-1]), "RUN": rows.shape[-1]}
        else:
            extents |= {"RUN": product(rows.shape[axis + 1:])}
        outer, capacity, count, *row = extent_symbols(*extents)
        extents |= {"BATCH": x.shape[0]} if batched else {}
        extents |= {"SINKS": site.attrs.sinks} if site.attrs.sinks else {}
        batch, sinks = extent_symbols("BATCH", "SINKS")
        stored_row = product(row)
        if converted_to == "int8":
            groups, run = row
            stored_row = groups * (run + SCALE_ELEMENTS)  # each group of a row has its scale after it
        name = "append" + "_ring" * site.attrs.wraps + "_sinks" * bool(site.attrs.sinks) + "_first" * site.has(4)
        name += "_batch" * batched + f"_{converted_to}" * bool(converted_to)
        operands = [Operand("x", 0, outer * capacity * stored_row), Operand("rows", 1, outer * count * product(row)),
                    Operand("start", 2, batch if batched else 1)]
        operands += [Operand("new_rows", 3, batch)] if batched else []
        operands += [Operand("first", 4, outer * sinks * product(row))] if site.has(4) else []
        params = AppendParameters(x.c_type, converted_to, site.attrs.wraps, batched, bool(site.attrs.sinks),
                                  site.has(4))
        # Scalar code is mostly for microcontrollers, which have one worker: there the division by tasks costs cycles.
        tasks = outer if site.isa.lanes == 1 else dim_max(1, dim_min(outer, count))
        return Lowered("move/append", params, extents, tuple(operands),
                       (Operand("y", 0, outer * capacity * stored_row),), tasks, name, self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        return copy_cost(site.inputs[1], per_element=1.0)


class WidenCache(Kernel):
    """Widens one row of a cache in a task."""

    name = "rows"
    dtypes = (("float16", "int8"),)

    def refuse(self, site: Site):
        return None if site.y.dtype == "float32" else f"its result is float32, not {site.y.dtype}"

    def lower(self, site: Site) -> Lowered:
        x, y = site.x, site.y
        rows, run = extent_symbols("ROWS", "RUN")
        stored = run + SCALE_ELEMENTS if x.dtype == "int8" else run
        return Lowered("move/widen", CacheParameters(x.c_type, x.dtype),
                       {"ROWS": product(y.shape[:-1]), "RUN": y.shape[-1]}, (Operand("x", 0, rows * stored),),
                       (Operand("y", 0, rows * run),), rows, f"widen_{x.dtype}", self.name)
