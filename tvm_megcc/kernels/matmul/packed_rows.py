# SPDX-License-Identifier: Apache-2.0
"""The kernel `packed` of matmul_rows: gathers the weights of columns from those that `PackedMatMul` packs."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import Dim, number
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..move.copies import copy_cost
from ..parameters import Parameters
from ..site import Site
from .packed import packed_weights, task_grid


@dataclass(frozen=True)
class PackedRowsParameters(Parameters):
    """Parameters of `packed_rows.c.j2`.

    block: columns in a block of packed weights.
    step: columns of a tile of the product: the columns after the last whole tile are one block.
    """

    block: int
    step: int


class PackedRowsGather(Kernel):
    """Gathers columns of packed weights [K, N] to y [indices, K] of floats. An index out of range fails the call. One
    task gathers one column."""

    name = "packed"
    dtypes = (("int32", "int64"), ("float32",))
    constants = (1,)

    def lower(self, site: Site) -> Lowered:
        b = site.types[1]
        assert b is not None  # a constant, which has numbers as extents
        depth, columns = map(number, b.shape[::-1 if site.attrs.trans_b else 1])
        COUNT, K, N = extent_symbols("COUNT", "K", "N")
        rows: Dim = site.attrs.rows or COUNT
        weights, block, step = packed_weights(site, task_grid(site, rows, depth, columns), K, N)
        return Lowered("matmul/packed_rows", PackedRowsParameters(block, step),
                       {"COUNT": site.x.size, "K": depth, "N": columns}, (Operand("index", 0, COUNT), weights),
                       (Operand("y", 0, COUNT * K),), COUNT, "matmul_rows",
                       f"{self.name}{block}" + f"_{step}" * (step > block))

    def cost(self, site: Site) -> float:
        return copy_cost(site.y, per_element=2.0)  # each element is in a cache line of its own
