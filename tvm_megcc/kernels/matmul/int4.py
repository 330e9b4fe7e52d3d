# SPDX-License-Identifier: Apache-2.0
"""Weights of 4 bits: products that unpack them in registers, and rows as floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.dims import ceildiv, product
from ..base import Kernel, Lowered, Operand, extent_symbols, present
from ..packing import packer
from ..parameters import Parameters
from ..site import Site


@packer("panels")
def pack_panels(array: np.ndarray, width: int) -> np.ndarray:
    """[N, X] → [N/width][X][width], zeros behind the last row."""
    rows = np.pad(array, ((0, -array.shape[0] % width), (0, 0)))
    return np.swapaxes(rows.reshape(-1, width, array.shape[1]), 1, 2)


@dataclass(frozen=True)
class Int4Parameters(Parameters):
    """Parameters of `int4.c.j2`. block: numbers of a row that share a scale. vectors: of columns in a panel. rows: of a
    tile.
    """

    block: int
    bias: bool
    vectors: int
    rows: int


class Int4MatMul(Kernel):
    """A task is a panel of columns: numbers become floats in registers, and are multiplied by some rows of a."""

    name = "int4"
    fuses_epilogue = True
    constants = (1, 2, 3, 4)

    def lower(self, site: Site) -> Lowered:
        isa, (columns, _) = site.isa, site.inputs[1].shape
        vectors = min(2 if isa.lanes > 1 else 4, -(-columns // isa.lanes))
        rows = 4 if isa.registers > 16 else 2
        width = vectors * isa.lanes
        M, K, N = extent_symbols("M", "K", "N")
        extents = {"M": product(site.y.shape[:-1]), "K": site.x.shape[-1], "N": columns}
        panels, blocks = ceildiv(N, width) * width, ceildiv(K, site.attrs.block)
        operands = present(site, Operand("a", 0, M * K), Operand("w", 1, panels * ceildiv(K, 2), ("panels", width)),
                           Operand("scale", 2, panels * blocks, ("panels", width)),
                           Operand("zero", 3, panels * blocks, ("panels", width)), Operand("bias", 4, N))
        bias = site.has(4)
        return Lowered("matmul/int4", Int4Parameters(site.attrs.block, bias, vectors, rows), extents, operands,
                       (Operand("y", 0, M * N),), ceildiv(N, width),
                       f"matmul_int4_{site.attrs.block}" + "_bias" * bias, f"int4_{vectors}v", channels=N)

    def cost(self, site: Site) -> float:
        return 500 + 2.0 * site.y.size * site.x.shape[-1] / site.isa.lanes


@dataclass(frozen=True)
class RowsParameters(Parameters):
    """Parameters of `int4_rows.c.j2`. block: as of products."""

    block: int


class Int4Rows(Kernel):
    """A task is a row."""

    name = "rows"

    def lower(self, site: Site) -> Lowered:
        R, K = extent_symbols("R", "K")
        extents = {"R": product(site.x.shape[:-1]), "K": site.attrs.depth}
        blocks = ceildiv(K, site.attrs.block)
        return Lowered("matmul/int4_rows", RowsParameters(site.attrs.block), extents,
                       (Operand("w", 0, R * ceildiv(K, 2)), Operand("scale", 1, R * blocks),
                        Operand("zero", 2, R * blocks)), (Operand("y", 0, R * K),), R,
                       f"int4_rows_{site.attrs.block}", self.name)

    def cost(self, site: Site) -> float:
        return 2.0 * site.y.size
