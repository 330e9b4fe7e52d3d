# SPDX-License-Identifier: Apache-2.0
"""The kernels `elimination` of determinants and inverses of small matrices, [..., N, N] of float32 or float64."""

from __future__ import annotations

from ...ir.dims import product
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site


class Elimination(Kernel):
    """Gaussian elimination in double. One task computes one matrix, in scratch."""

    name = "elimination"
    dtypes = (("float32", "float64"),)
    #: The maximum of rows, so that the scratch of an inverse has at most 256 KiB.
    MAX_ROWS = 128

    def refuse(self, site: Site):
        n = site.x.shape[-1]
        return None if isinstance(n, int) and n <= self.MAX_ROWS else f"matrices of at most {self.MAX_ROWS} rows"


class DeterminantKernel(Elimination):
    """Determinants: [..., N, N] -> [...]."""

    def lower(self, site: Site) -> Lowered:
        x = site.x
        count, n = extent_symbols("COUNT", "N")
        return Lowered("linear/determinant", UnitParameters(x.c_type),
                       {"COUNT": product(x.shape[:-2]), "N": x.shape[-1]}, (Operand("x", 0, count * n * n),),
                       (Operand("y", 0, count),), count, "determinant", self.name, scratch=8 * n * n)


class InverseKernel(Elimination):
    """Inverses: [..., N, N] -> [..., N, N]."""

    def lower(self, site: Site) -> Lowered:
        x = site.x
        count, n = extent_symbols("COUNT", "N")
        size = count * n * n
        return Lowered("linear/inverse", UnitParameters(x.c_type), {"COUNT": product(x.shape[:-2]), "N": x.shape[-1]},
                       (Operand("x", 0, size),), (Operand("y", 0, size),), count, "inverse", self.name,
                       scratch=16 * n * n)
