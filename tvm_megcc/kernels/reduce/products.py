# SPDX-License-Identifier: Apache-2.0
"""The kernel of products in fixed point."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.dims import product
from ...ops.quantized.reduce_prod import DTYPES
from ..base import Kernel, Lowered, Operand, extent_symbols
from ..integer.dot import zero_name
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class ProductParameters(Parameters):
    """Parameters of `products.c.j2`.

    unit: the C type of an element.
    minimum, maximum: the limits of its dtype.
    zero, result_zero: the zero points of x and of the result.
    significand, bits: each product is requantized by significand / 2^bits.
    """

    unit: str
    minimum: int
    maximum: int
    zero: int
    result_zero: int
    significand: int
    bits: int


class FixedProducts(Kernel):
    """Computes one product in a task, factor by factor, as the requantization after each factor requires."""

    name = "scalar"
    dtypes = (DTYPES,)

    def lower(self, site: Site) -> Lowered:
        M, K = extent_symbols("M", "K")
        attrs, x, sign_bit = site.attrs, site.x, 1 << (8 * site.x.itemsize - 1)
        params = ProductParameters(
            unit=x.c_type, minimum=-sign_bit, maximum=sign_bit - 1, zero=attrs.zero, result_zero=attrs.result_zero,
            significand=attrs.significand, bits=attrs.bits)
        name = f"product_fixed_{x.dtype}_{attrs.significand}_{attrs.bits}{zero_name(attrs.zero)}" \
            + zero_name(attrs.result_zero)
        return Lowered("reduce/products", params, {"M": product(x.shape[:-1]), "K": x.shape[-1]},
                       (Operand("x", 0, M * K),), (Operand("y", 0, M),), M, name, self.name)

    def cost(self, site: Site) -> float:
        # For each element 10, for a product and its requantization.
        return 10.0 * site.likely.x.size
