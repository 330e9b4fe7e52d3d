# SPDX-License-Identifier: Apache-2.0
"""The kernel `passes`: fast Fourier transforms by Stockham's algorithm, one pass for each factor of the length."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ...ir.types import DTYPES
from ...ops.math.fourier import factors_of
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..parameters import UnitParameters
from ..site import Site


@dataclass(frozen=True)
class FourierParameters(UnitParameters):
    """Parameters of `fourier.c.j2`.

    n: the number of complex numbers in a transform.
    factors: the factors of n, in the order of the passes.
    inverse: whether the inverse transform is computed.
    pairs: whether the complex numbers are pairs of neighbouring real ones (operator `Fourier`).
    """

    n: int
    factors: tuple[int, ...]
    inverse: bool
    pairs: bool


class FourierPasses(Kernel):
    """Transforms of [..., n, 2], real and imaginary parts last. One task computes one transform."""

    name = "passes"
    dtypes, uniform = (("float32", "float64"),), True

    def lower(self, site: Site) -> Lowered:
        x, n = site.x, site.x.shape[-2]
        (transforms,) = extent_symbols("COUNT")
        pairs = bool(site.attrs.pairs)
        params = FourierParameters(
            unit=x.c_type, n=n, factors=factors_of(n), inverse=bool(site.attrs.inverse), pairs=pairs)
        # Complex numbers. `pairs`: the twiddles of a transform of 2n, and the first n + 1 numbers of the spectrum.
        twiddles, results = (2 * n, n + 1) if pairs else (n, n)
        # Scratch: two buffers of n complex numbers, [2][n][2] elements, between which passes alternate.
        return Lowered("linear/fourier", params, {"COUNT": product(x.shape[:-2])},
                       (Operand("x", 0, transforms * 2 * n), Operand("twiddles", 1, 2 * twiddles)),
                       (Operand("y", 0, transforms * 2 * results),), transforms,
                       f"fourier_n{n}" + "_inverse" * params.inverse + "_pairs" * pairs, self.name,
                       scratch=4 * n * DTYPES[x.dtype].bytes)

    def cost(self, site: Site) -> float:
        # 4: cycles of an element in one pass, an estimate.
        return 4.0 * site.likely.x.size * len(factors_of(site.x.shape[-2]))
