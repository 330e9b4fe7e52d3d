# SPDX-License-Identifier: Apache-2.0
"""The kernels of layer normalization and of RMS normalization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...foreign import digest
from ...ir.dims import product
from ...ir.expr import c_double, c_float
from ...ir.types import DTYPES
from ...ops.quantized.lookup_table import INT8_TYPES
from ..base import FLOAT32, Kernel, Lowered, Operand, extent_symbols, present
from ..integer.dot import zero_name
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class LayerNormParameters(Parameters):
    """Parameters of `layer.c.j2`.

    epsilon: the number that is added to the variance, a C literal.
    weight, bias: whether there is a factor, and a summand, for each element of a row.
    """

    epsilon: str
    weight: bool
    bias: bool


class LayerNormRows(Kernel):
    """Normalizes one row in a task."""

    name = "rows"
    dtypes = (FLOAT32, FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        R, N = extent_symbols("R", "N")
        epsilon = c_float(site.attrs.epsilon)
        params = LayerNormParameters(epsilon, site.has(1), site.has(2))
        inputs = present(site, Operand("x", 0, R * N), Operand("weight", 1, N), Operand("bias", 2, N))
        name = f"{site.kind}{'_weight' * params.weight}{'_bias' * params.bias}_e{digest(epsilon, 4)}"
        return Lowered("norm/layer", params, {"R": product(site.x.shape[:-1]), "N": site.x.shape[-1]}, inputs,
                       (Operand("y", 0, R * N),), R, name, self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        # 6: a vector is read three times, for the mean, the variance and the result.
        return 6.0 * site.likely.x.size / site.isa.lanes


@dataclass(frozen=True)
class RmsNormParameters(Parameters):
    """Parameters of `rms.c.j2`.

    epsilon: the number that is added to the mean square, a C literal.
    weight: whether there is a factor for each element of a row.
    """

    epsilon: str
    weight: bool


class RmsNormRows(Kernel):
    """Divides one row by its root mean square in a task."""

    name = "rows"
    dtypes = (FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        R, N = extent_symbols("R", "N")
        epsilon = c_float(site.attrs.epsilon)
        params = RmsNormParameters(epsilon, site.has(1))
        inputs = present(site, Operand("x", 0, R * N), Operand("weight", 1, N))
        name = f"{site.kind}{'_weight' * params.weight}_e{digest(epsilon, 4)}"
        return Lowered("norm/rms", params, {"R": product(site.x.shape[:-1]), "N": site.x.shape[-1]}, inputs,
                       (Operand("y", 0, R * N),), R, name, self.name, in_place=((0, 0),))

    def cost(self, site: Site) -> float:
        # 4: a vector is read twice, for the mean square and for the result.
        return 4.0 * site.likely.x.size / site.isa.lanes


@dataclass(frozen=True)
class LayerNormBytesParameters(LayerNormParameters):
    """Parameters of `layer_bytes.c.j2`.

    unit, result_unit: the C types of an element of x and of the result.
    x_suffix, result_suffix: the suffixes of mgc functions for their dtypes.
    x_zero, result_zero: the zero points of x and of the result.
    minimum, maximum: the limits of the result's dtype.
    """

    unit: str
    x_suffix: str
    x_zero: int
    result_unit: str
    result_suffix: str
    result_zero: int
    minimum: int
    maximum: int


class LayerNormBytes(Kernel):
    """Normalizes one row in a task, with the same bits on every CPU."""

    name = "rows"
    dtypes = (INT8_TYPES, FLOAT32, FLOAT32, FLOAT32)

    def lower(self, site: Site) -> Lowered:
        R, N = extent_symbols("R", "N")
        attrs, x, y = site.attrs, site.x, site.y
        epsilon, limits = c_double(attrs.epsilon).text, np.iinfo(np.dtype(y.dtype))
        params = LayerNormBytesParameters(
            epsilon=epsilon, weight=site.has(2), bias=site.has(3), unit=x.c_type, x_suffix=DTYPES[x.dtype].short,
            x_zero=attrs.x_zero, result_unit=y.c_type, result_suffix=DTYPES[y.dtype].short, result_zero=attrs.zero,
            minimum=int(limits.min), maximum=int(limits.max))
        inputs = present(site, Operand("x", 0, R * N), Operand("scales", 1, 2), Operand("weight", 2, N),
                         Operand("bias", 3, N))
        name = (f"{site.kind}{'_weight' * params.weight}{'_bias' * params.bias}_{x.dtype}{zero_name(attrs.x_zero)}_"
                f"{y.dtype}{zero_name(attrs.zero)}_e{digest(epsilon, 4)}")
        return Lowered("norm/layer_bytes", params, {"R": product(x.shape[:-1]), "N": x.shape[-1]}, inputs,
                       (Operand("y", 0, R * N),), R, name, self.name)

    def cost(self, site: Site) -> float:
        # For each element: 2 for the exact sums, 8 for a vector of results, which is converted, scaled and stored.
        return (2.0 + 8.0 / site.isa.lanes) * site.likely.x.size
