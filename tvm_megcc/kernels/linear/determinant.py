# SPDX-License-Identifier: Apache-2.0
"""The kernels `elimination` of determinants and inverses of small matrices, [..., N, N] of float32 or float64."""

from __future__ import annotations

from ...ir.dims import product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site


class Elimination(Kernel):
    """Gaussian elimination in double. One task computes one matrix, in scratch.

    operation: "determinant", [..., N, N] -> [...], or "inverse", [..., N, N] -> [..., N, N].
    """

    name = "elimination"
    dtypes = (("float32", "float64"),)
    #: The maximum of rows, so that the scratch of an inverse has at most 256 KiB.
    MAX_ROWS = 128

    def __init__(self, operation: str):
        self.operation = operation

    def refuse(self, site: Site):
        n = site.x.shape[-1]
        return None if isinstance(n, int) and n <= self.MAX_ROWS else f"matrices of at most {self.MAX_ROWS} rows"

    def lower(self, site: Site) -> Lowered:
        x = site.x
        count, n = extent_symbols("COUNT", "N")
        # Scratch, double: the matrix [N][N]; for an inverse [N][2 * N], with the identity on its right.
        results, scratch = (count, 8 * n * n) if self.operation == "determinant" else (count * n * n, 16 * n * n)
        return Lowered(f"linear/{self.operation}", UnitParameters(x.c_type),
                       {"COUNT": product(x.shape[:-2]), "N": x.shape[-1]}, (Operand("x", 0, count * n * n),),
                       (Operand("y", 0, results),), count, self.operation, self.name, scratch=scratch)
